"""A schedule -> when every turn comes, counted in turns; one that would never end is refused before it starts.

Transfers wait for nobody: what is sent is there for whoever takes it, whenever that is. So a device is held up only by
blocks that others have not yet done, and by the other devices of a block on several, which start it together.

Devices 0 and 1 with the orders F0 B0 and B1 F1 are refused: device 0 waits at B0 for B1, device 1 at B1 for F1.
"""

from hulk_runtime.errors import PlanError
from hulk_runtime.pipeline.dataflow import Flows
from hulk_runtime.plan.pipeline_schedule import Schedule, Turn


def ends(flows: Flows) -> dict[Turn, int]:
    """When each turn ends if each takes 1. Raises PlanError where devices wait for each other, saying for what."""
    schedule = flows.schedule
    needs = [tuple(dict.fromkeys(flows.needs(number))) for number in range(len(schedule.blocks))]
    done: dict[Turn, int] = {}
    places, free = [0] * schedule.num_devices, [0] * schedule.num_devices
    moving = True
    while moving:
        moving = False
        for device in range(schedule.num_devices):
            while (turn := _next(schedule, places, device)) and _can_start(schedule, places, needs, done, turn):
                devices = schedule.blocks[turn[0]].devices
                done[turn] = 1 + max([free[d] for d in devices] + [done[n, turn[1]] for n in needs[turn[0]]])
                for d in devices:
                    places[d], free[d] = places[d] + 1, done[turn]
                moving = True
    stuck = [device for device in range(schedule.num_devices) if _next(schedule, places, device)]
    if stuck:
        waits = "; ".join(_waits(schedule, places, needs, done, device) for device in stuck)
        raise PlanError(f"schedule: it would never end: {waits}")
    return done


def _next(schedule: Schedule, places: list[int], device: int) -> Turn | None:
    turns = schedule.orders[device].turns
    return turns[places[device]] if places[device] < len(turns) else None


def _can_start(
    schedule: Schedule, places: list[int], needs: list[tuple[int, ...]], done: dict[Turn, int], turn: Turn
) -> bool:
    block, m = turn
    together = all(_next(schedule, places, device) == turn for device in schedule.blocks[block].devices)
    return together and all((needed, m) in done for needed in needs[block])


def _waits(
    schedule: Schedule, places: list[int], needs: list[tuple[int, ...]], done: dict[Turn, int], device: int
) -> str:
    turn = _next(schedule, places, device)
    assert turn is not None
    block, m = turn
    missing = [schedule.words((needed, m)) for needed in needs[block] if (needed, m) not in done]
    elsewhere = [
        f"device {d} to start it too" for d in schedule.blocks[block].devices if _next(schedule, places, d) != turn
    ]
    return f"device {device} waits at {schedule.words(turn)} for {', '.join(missing or elsewhere)}"
