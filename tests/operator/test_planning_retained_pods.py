"""The places of pods that stay for their job's next plan: free for that job, taken for every other one."""

from datetime import timedelta
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.cluster import HULK_JOBS, PODS, ApiResource, Object
from hulk_operator.pods import pods
from hulk_operator.reconcile.attempt_state import DISRUPTED, RESIZED
from hulk_operator.reconcile.types import FullPlan, Planned, Unplanned
from hulk_placement.plan import Plan
from test_planning import World, job, machines, node, planning_over
from views import NOW


def launched(name: str, num_workers: int = 2, cpu: str = "1", **spec: Any) -> tuple[ApiResource, Object]:
    """A job whose workers run the launcher."""
    worker = {"name": "w", "image": "i", "command": ["hulk-launch"], "resources": {"requests": {"cpu": cpu}}}
    return job(name, num_workers, **{"template": {"spec": {"containers": [worker]}}, **spec})


async def run(world: World, name: str) -> FullPlan:
    """Plan a job, commit that, and bind its pods."""
    world.planner.request(f"lab/{name}")
    answer = await world.answer(name)
    assert isinstance(answer, Planned), answer
    full = world.commit(name).full
    bind(world, name, full.plan, range(len(full.plan.workers)))
    return full


def bind(world: World, name: str, plan: Plan, workers: Any) -> None:
    for pod in pods(world.job(name), plan, workers):
        machine = plan.workers[int(pod["metadata"]["labels"][names.LABEL_WORKER])].machine
        world.cluster._store(
            PODS, {**pod, "spec": {**pod["spec"], "nodeName": machine}, "status": {"phase": "Running"}}
        )


def release(world: World, name: str, reason: str = DISRUPTED, **spec: Any) -> None:
    """What the reconcile writes when an attempt is over."""
    raw = world.cluster.objects["hulkjobs", "lab", name]
    planned, *others = raw["status"]["conditions"]
    assert planned["type"] == "Planned"
    over = {**planned, "status": "False", "reason": reason}
    changed = {**raw, "spec": {**raw["spec"], **spec}, "status": {**raw["status"], "conditions": [over, *others]}}
    world.store.jobs.put(world.cluster._store(HULK_JOBS, changed))


def lose(world: World, full: FullPlan, worker: int, name: str = "one") -> str:
    """A worker's pod is gone; answers its node."""
    del world.cluster.objects["pods", "lab", names.pod(name, full.plan.attempt, worker)]
    return full.plan.workers[worker].machine


async def test_a_job_gets_the_places_of_its_own_pods_again() -> None:
    """The other job is older, asks at the same time, and has room for itself only where nobody's pod waits."""
    nodes = (node("a"), node("b"), node("c"))
    async with planning_over(*nodes, launched("one", 2), launched("an-older-one", 1)) as world:
        full = await run(world, "one")
        lost = lose(world, full, 0)
        kept = full.plan.workers[1].machine
        release(world, "one")
        world.planner.request("lab/one")
        world.planner.request("lab/an-older-one")
        other, again = await world.answer("an-older-one"), world.planner.decision("lab/one")
        assert again is not None
        assert kept in machines(again)
        assert not set(machines(again)) & set(machines(other))
        assert lost in [*machines(again), *machines(other)]


@pytest.mark.parametrize("wait", ["for a plan", "for the commit", "for the labels"])
async def test_nobody_else_gets_the_place_of_a_pod_that_waits(wait: str) -> None:
    async with planning_over(node("a"), node("b"), launched("one", 2), launched("two", 1)) as world:
        await run(world, "one")
        release(world, "one", RESIZED)
        if wait != "for a plan":
            world.planner.request("lab/one")
            assert machines(await world.answer("one")) == ["a", "b"]
        if wait == "for the labels":
            assert world.commit("one").full.plan.attempt == 2
        world.planner.request("lab/two")
        refused = await world.answer("two")
        assert isinstance(refused, Unplanned), wait
        assert refused.reason == "NotEnoughAccelerators"


async def test_a_place_that_the_next_plan_gives_up_is_free_when_its_pod_is_gone() -> None:
    async with planning_over(node("a"), node("b"), launched("one", 2), launched("two", 1)) as world:
        full = await run(world, "one")
        release(world, "one", RESIZED, workers={"min": 1, "max": 1})
        world.planner.request("lab/one")
        (kept,) = machines(await world.answer("one"))
        world.commit("one")
        world.planner.request("lab/two")
        assert isinstance(await world.answer("two"), Unplanned)
        surplus = next(worker for worker, slot in enumerate(full.plan.workers) if slot.machine != kept)
        gone = lose(world, full, surplus)
        world.planner.changed()
        assert machines(await world.answer("two")) == [gone]


async def test_a_claim_is_met_by_a_pod_that_will_be_taken_over_and_by_no_other() -> None:
    """A terminating pod of the job on the same machine speaks for no worker: the worker's own pod is still to come."""
    async with planning_over(node("a", 2), launched("one", 1), launched("two", 1)) as world:
        full = await run(world, "one")
        ending = world.cluster.objects["pods", "lab", "one-1-0"]
        ending["metadata"]["deletionTimestamp"] = (NOW + timedelta(seconds=5)).isoformat()
        release(world, "one")
        world.planner.request("lab/one")
        await world.answer("one")
        world.commit("one")
        world.planner.request("lab/two")
        refused = await world.answer("two")
        assert isinstance(refused, Unplanned), "one accelerator ends, one is claimed"
        assert full.plan.workers[0].machine == "a"


async def test_a_pod_stays_on_a_node_that_takes_no_new_ones() -> None:
    async with planning_over(node("a"), node("b"), node("c"), launched("one", 2)) as world:
        full = await run(world, "one")
        kept = full.plan.workers[1].machine
        world.cluster.objects["nodes", None, kept]["spec"]["unschedulable"] = True
        lose(world, full, 0)
        release(world, "one")
        world.planner.request("lab/one")
        assert kept in machines(await world.answer("one"))


async def test_a_pods_cpu_is_its_jobs_own_as_well() -> None:
    """Two workers fill their nodes: without their pods' own share nothing would fit."""
    async with planning_over(node("a", cpu="2"), node("b", cpu="2"), launched("one", 2, cpu="2")) as world:
        await run(world, "one")
        release(world, "one")
        world.planner.request("lab/one")
        assert machines(await world.answer("one")) == ["a", "b"]


@pytest.mark.parametrize("why", ["dead node", "another program", "could not start"])
async def test_a_pod_that_does_not_stay_holds_its_place(why: str) -> None:
    one = job("one", 2) if why == "another program" else launched("one", 2)
    async with planning_over(node("a"), node("b"), one) as world:
        full = await run(world, "one")
        if why == "dead node":
            dead = world.cluster.objects["nodes", None, full.plan.workers[0].machine]
            dead["status"]["conditions"][0]["status"] = "Unknown"
        release(world, "one", "StartFailed" if why == "could not start" else DISRUPTED)
        world.planner.request("lab/one")
        assert isinstance(await world.answer("one"), Unplanned)
