"""Whole passes over a fake cluster in which pods stay: the order of the writes, and whose objects are not touched."""

from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.cluster import CONFIG_MAPS, LeaseLost, Listing, NotFound, Object
from hulk_operator.status import holds
from test_reconcile_pass import World
from views import LAUNCHED, decision, job

GANG = ("configmaps", "lab", "demo-gang")


def up(worker: int) -> Object:
    running = [{"name": "w", "state": {"running": {}}}]
    return {"phase": "Running", "podIP": f"10.0.0.{worker + 1}", "containerStatuses": running}


async def disturbed() -> World:
    """A job that ran, of which worker 1's pod is gone, with the next plan at hand."""
    world = World(decision(), **LAUNCHED)
    await world.passes(3)
    world.pods_become(up)
    await world.passes(2)
    assert holds(world.job().status, "Running")
    gone = world.cluster.objects.pop(("pods", "lab", "demo-1-1"))
    world.store.pods.delete({**gone, "metadata": {**gone["metadata"], "resourceVersion": "999"}})
    await world.passes()
    assert not holds(world.job().status, "Planned")
    world.plans.answer, world.plans.full = decision(2), None
    await world.passes()
    assert world.job().status.attempt == 2
    world.cluster.writes.clear()
    return world


def labels(world: World) -> dict[str, dict[str, str]]:
    pods = {name: pod for (plural, _, name), pod in world.cluster.objects.items() if plural == "pods"}
    return {name: pod["metadata"]["labels"] for name, pod in pods.items()}


async def test_the_plan_is_written_before_the_labels_and_these_before_a_sweep() -> None:
    world = await disturbed()
    uids = {
        name: pod["metadata"]["uid"] for (plural, _, name), pod in world.cluster.objects.items() if plural == "pods"
    }
    await world.passes()
    of_deploy = [write for step, write in world.cluster.writes if step == "deploy"]
    assert of_deploy[4:] == ["create configmaps", "patch configmaps", "patch pods", "patch pods", "create pods"]
    assert not [write for step, write in world.cluster.writes if step == "sweep"]
    assert labels(world) == {
        "demo-1-0": names.worker_labels("demo", 2, 0),
        "demo-2-1": names.worker_labels("demo", 2, 1),
        "demo-1-2": names.worker_labels("demo", 2, 2),
    }
    assert {world.cluster.objects["pods", "lab", name]["metadata"]["uid"] for name in uids} == set(uids.values())
    assert world.cluster.objects[GANG]["metadata"]["labels"] == names.attempt_labels("demo", 2)
    world.cluster.writes.clear()
    await world.passes()
    assert ("sweep", "delete pods") in world.cluster.writes


async def test_a_pass_that_is_repeated_writes_the_plan_once() -> None:
    world = await disturbed()
    await world.passes()
    for name in ("demo-1-0", "demo-2-1"):  # as if the operator had died before these
        world.cluster.objects.pop(("pods", "lab", name))
    world.store.pods.replace(Listing((), "999"))
    world.cluster.writes.clear()
    await world.passes()
    assert ("deploy", "patch configmaps") not in world.cluster.writes


async def test_a_config_map_of_someone_else_is_left_alone() -> None:
    stranger = {"metadata": {"name": GANG[2], "namespace": "lab"}, "data": {"mine": "yes"}}
    world = World(decision(), **LAUNCHED)
    world.cluster._store(CONFIG_MAPS, stranger)
    await world.passes(2)
    assert world.cluster.objects[GANG]["data"] == {"mine": "yes"}
    last = world.job().status.last_failure
    assert last is not None
    assert last.reason == "NameTaken"


async def test_an_operator_whose_lease_is_over_relabels_nothing() -> None:
    world = await disturbed()
    before = labels(world)
    world.acts = False
    with pytest.raises(LeaseLost):
        await world.passes()
    assert labels(world) == before


async def test_a_pod_that_is_gone_by_then_stops_no_other() -> None:
    world = await disturbed()
    real = world.cluster.patch

    async def patch(resource: Any, name: str, *arguments: Any, **options: Any) -> Object:
        if name == "demo-1-0":
            raise NotFound(404, "NotFound", "pods demo-1-0 not found")
        return await real(resource, name, *arguments, **options)

    world.cluster.patch = patch  # type: ignore[method-assign]
    await world.passes()
    assert labels(world)["demo-1-2"] == names.worker_labels("demo", 2, 2)


async def test_another_program_gets_no_such_config_map() -> None:
    world = World(decision())
    await world.passes(2)
    assert GANG not in world.cluster.objects
    assert job().spec.template.spec.containers[0].model_extra == {"image": "hulk:0.1.0"}
