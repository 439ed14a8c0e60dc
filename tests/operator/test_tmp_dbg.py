import pytest
from test_queue_preemption import *
@pytest.mark.parametrize("x",[0,1])
async def test_x(make, x):
    world=make(*nodes(2), *( [high(1000, preemptionPolicy="Never")] if x else []), want("victim",2,2))
    await world.until(lambda: world.num_workers("victim") == 2)
    await world.turns(12)
    world.add(want("older", 2, 2, after_s=10))
    if x: world.add(want("polite", 2, 2, after_s=20, priorityClassName="high"))
    for _ in range(30):
        await world.turn()
    for n in world.jobs(): print(n, world.why(n), world.events(n), world.num_workers(n))
    print(world.moves)
    assert 0
