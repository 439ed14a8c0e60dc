"""What one object holds, or does while a pass runs, costs no other job its plan, and no job a stranger's plan."""

import asyncio
import json
import logging
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.cluster import CONFIG_MAPS, HULK_JOBS, ApiResource, Forbidden, Listing, Object
from hulk_operator.inputs import topology as inputs
from hulk_operator.planning import inventory
from hulk_operator.planning.process import MAX_RESUME_S, MAX_SEARCH_S, Problem, Search, budget_for
from hulk_operator.pods import plan_config_map
from hulk_operator.reconcile.types import Planned, Unplanned
from hulk_placement.model import Layer, Model
from hulk_placement.solution import Budget
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload
from test_planning import World, job, machines, node, planning_over

GPT2 = {"n_layer": 2, "n_embd": 8, "n_head": 2, "n_positions": 8, "vocab_size": 16}
BY_CONFIG_MAP: dict[str, Any] = {"model": {"huggingFace": {"configMap": "m", "key": "k"}}}


def config_map(text: str) -> tuple[ApiResource, Object]:
    return CONFIG_MAPS, {"metadata": {"name": "m", "namespace": "lab"}, "data": {"k": text}}


def worker(**fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "w", "image": "i"}], **fields}}}


@pytest.mark.parametrize(
    ("name", "text", "spec", "reason"),
    [
        ("nested", "[" * 100_000, BY_CONFIG_MAP, "InvalidModel"),
        ("infinite", json.dumps({**GPT2, "n_layer": float("inf")}), BY_CONFIG_MAP, "InvalidModel"),
        ("huge", json.dumps({**GPT2, "vocab_size": 10**310}), BY_CONFIG_MAP, "InvalidModel"),
        ("no number", json.dumps({**GPT2, "n_inner": {"a": 1}}), BY_CONFIG_MAP, "InvalidModel"),
        ("exponent", "", worker(overhead={"memory": "1e999999999"}), "InvalidTemplate"),
        ("operator", "", worker(affinity="here"), "InvalidTemplate"),
        ("tolerations", "", worker(tolerations=[5], nodeSelector=5), "InvalidTemplate"),
    ],
)
async def test_what_a_job_holds_stops_no_other(name: str, text: str, spec: dict[str, Any], reason: str) -> None:
    async with planning_over(node("a"), node("b"), config_map(text), job("bad", **spec), job("good")) as world:
        world.planner.request("lab/bad")
        world.planner.request("lab/good")
        assert machines(await world.answer("good")) == ["a", "b"], name
        bad = world.planner.decision("lab/bad")
        assert isinstance(bad, Unplanned), name
        assert bad.reason == reason, bad


async def test_what_a_job_may_not_read_is_said_to_it_alone() -> None:
    async with planning_over(node("a"), node("b"), job("bad", **BY_CONFIG_MAP), job("good")) as world:
        real = world.cluster.get

        async def get(resource: ApiResource, name: str, namespace: str | None = None) -> Object:
            if resource is CONFIG_MAPS:
                raise Forbidden(403, "Forbidden", "configmaps is forbidden")
            return await real(resource, name, namespace)

        world.cluster.get = get  # type: ignore[method-assign]
        world.planner.request("lab/bad")
        world.planner.request("lab/good")
        assert machines(await world.answer("good")) == ["a", "b"]
        bad = world.planner.decision("lab/bad")
        assert isinstance(bad, Unplanned)
        assert "configmaps is forbidden" in bad.message


async def test_a_defect_is_counted_said_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with planning_over(node("a"), node("b"), job("bad"), job("good")) as world:
        failed: list[str] = []
        world.planner._failed = lambda: failed.append("planning")
        real = inventory.to_workload

        def broken(one: Any, *rest: Any) -> Workload:
            if one.metadata.name == "bad":
                raise ZeroDivisionError("a defect")
            return real(one, *rest)

        monkeypatch.setattr(inventory, "to_workload", broken)
        world.planner.request("lab/bad")
        world.planner.request("lab/good")
        assert machines(await world.answer("good")) == ["a", "b"]
        bad = world.planner.decision("lab/bad")
        assert isinstance(bad, Unplanned)
        assert (bad.reason, failed) == ("PlannerError", ["planning"])
        assert "a defect" in caplog.text


async def test_a_pass_that_fails_answers_and_the_next_one_plans(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    async with planning_over(node("a"), node("b"), job("one")) as world:
        real, failures = world.cluster.list, iter([ZeroDivisionError("a defect")])

        async def flaky(*arguments: Any, **options: Any) -> Listing:
            for failure in failures:
                raise failure
            return await real(*arguments, **options)

        world.cluster.list = flaky  # type: ignore[method-assign]
        world.planner.request("lab/one")
        refused = await world.answer("one")
        assert isinstance(refused, Unplanned)
        assert refused.reason == "PlannerError"
        world.planner.request("lab/one")
        world.planner.changed()
        assert machines(await world.answer("one")) == ["a", "b"]


async def test_a_search_that_fails_on_one_job_places_the_others() -> None:
    def workload(key: str, flops: float) -> Workload:
        model = Model((Layer("all", 1000, flops, 2 * flops, 0, 5),))  # 10**310 is no float: dividing it fails
        return Workload(key, model, 8, dict.fromkeys("ab", 1), allow_unknown_links=True)

    failed: list[int] = []
    search = Search(Budget(), lambda: failed.append(1))
    try:
        problem = Problem(
            (workload("x/bad", 10**310), workload("x/first", 1e9), workload("x/second", 1e9)),
            Topology((Machine("a", "eu"), Machine("b", "eu"))),
        )
        found = await search.solve(problem)
    finally:
        search.close()
    assert found.unplaced["x/bad"].reason == "PlannerError"
    assert sorted(slot.machine for plan in found.plans.values() for slot in plan.workers) == ["a", "b"]
    assert len(failed) == 2  # together, and alone


@pytest.mark.parametrize("damage", ["no annotations", "no data", "no owner", "another plan"])
async def test_a_plan_that_was_tampered_with_is_no_plan(damage: str) -> None:
    async with planning_over(node("a"), node("b"), job("one")) as world:
        world.planner.request("lab/one")
        await world.answer("one")
        known = world.commit("one").full
    again = World(node("c"), (HULK_JOBS, world.cluster.objects["hulkjobs", "lab", "one"]), job("two", 1))
    written = plan_config_map(again.job("one"), 1, known.blob, known.digest)
    if damage == "no annotations":
        del written["metadata"]["annotations"]
    elif damage == "no data":
        del written["binaryData"]
    elif damage == "no owner":
        del written["metadata"]["ownerReferences"]
    else:
        written["binaryData"][names.PLAN_KEY] = "AAAA"
    again.cluster._store(CONFIG_MAPS, written)
    found = await again.planner.full_plan(again.job("one"))
    assert (found is not None) == (damage == "no annotations")  # they are for people
    task = asyncio.create_task(again.planner.run())
    again.planner.request("lab/two")
    assert machines(await again.answer("two")) == ["c"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_job_that_is_made_again_gets_a_plan_of_its_own() -> None:
    async with planning_over(node("a"), node("b"), job("one", num_workers=2)) as world:
        world.planner.request("lab/one")
        await world.answer("one")
        world.store.jobs.delete(world.cluster.objects["hulkjobs", "lab", "one"])
        world.store.jobs.put(world.cluster._store(*job("one", num_workers=1)))
        assert world.planner.decision("lab/one") is None
        world.planner.request("lab/one")
        assert len(machines(await world.answer("one"))) == 1


async def test_a_job_that_is_made_again_during_a_pass_is_planned_again() -> None:
    async with planning_over(node("a"), node("b"), job("one", num_workers=2)) as world:
        real, once = world.cluster.list, iter([True])

        async def replaced(*arguments: Any, **options: Any) -> Listing:
            for _ in once:
                world.store.jobs.delete(world.cluster.objects["hulkjobs", "lab", "one"])
                world.planner.forget("lab/one")
                world.store.jobs.put(world.cluster._store(*job("one", num_workers=1)))
                world.planner.request("lab/one")
            return await real(*arguments, **options)

        world.cluster.list = replaced  # type: ignore[method-assign]
        world.planner.request("lab/one")
        assert len(machines(await world.answer("one"))) == 1


async def test_a_plan_that_is_committed_while_others_are_read_is_held() -> None:
    async with planning_over(node("a"), node("b"), job("one"), job("lost")) as world:
        world.planner.request("lab/one")
        answer = await world.answer("one")
        assert isinstance(answer, Planned)
        lost = world.cluster.objects["hulkjobs", "lab", "lost"]
        plan = {**answer.summary.wire(), "name": "lost-plan-1", "digest": "gone"}
        condition = {"type": "Planned", "status": "True", "reason": "Planned", "message": "", "observedGeneration": 1}
        time = {"lastTransitionTime": "2026-05-04T12:00:00Z"}
        status = {"attempt": 1, "plan": plan, "conditions": [condition | time]}
        world.store.jobs.put(world.cluster._store(HULK_JOBS, {**lost, "status": status}))
        real, reads = world.cluster.get, []

        async def get(resource: ApiResource, name: str, namespace: str | None = None) -> Object:
            if name == "lost-plan-1":
                reads.append(name)
                world.commit("one")
            return await real(resource, name, namespace)

        world.cluster.get = get  # type: ignore[method-assign]
        held = await world.planner._held(())
        assert reads == ["lost-plan-1"]
        assert [one.job.key for one in held] == ["lab/one"]


async def test_a_node_that_comes_after_the_listing_is_seen_soon() -> None:
    async with planning_over(node("a"), job("one")) as world:
        real, once = world.cluster.list, iter([True])

        async def late(resource: ApiResource, *arguments: Any, **options: Any) -> Listing:
            found = await real(resource, *arguments, **options)
            if resource.plural == "nodes":
                for _ in once:
                    world.cluster._store(*node("b"))
                    world.planner.changed()
            return found

        world.cluster.list = late  # type: ignore[method-assign]
        world.planner.request("lab/one")
        assert isinstance(await world.answer("one"), Unplanned)
        assert machines(await world.answer("one")) == ["a", "b"]


async def test_a_plan_that_does_not_fit_even_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "candidates", lambda *_: {"a": 9})
    async with planning_over(node("a", cpu="2"), job("one", 1, cpu="3")) as world:
        world.planner.request("lab/one")
        refused = await world.answer("one")
        assert isinstance(refused, Unplanned)
        assert refused.reason == "NotEnoughRoom"
        assert "node a has 2000 of cpu (thousandths) free, 3000 are needed" in refused.message


async def test_a_search_may_not_take_for_ever() -> None:
    search = Search(Budget(iterations=10**9), lambda: None)
    try:
        assert search._budget == Budget(iterations=10**9, seconds=MAX_SEARCH_S)
    finally:
        search.close()


def test_a_job_whose_workers_wait_gets_its_plan_soon() -> None:
    model = Model((Layer("all", 1000, 10.0, 20.0, 0, 5),))
    waiting = Workload("lab/one", model, 8, {"a": 1, "b": 1})
    interrupted = Workload("lab/two", model, 8, {"a": 1, "b": 1}, kept={"a": 1})
    assert budget_for([waiting], Budget(seconds=MAX_SEARCH_S)).seconds == MAX_SEARCH_S
    assert budget_for([waiting, interrupted], Budget(seconds=MAX_SEARCH_S)).seconds == MAX_RESUME_S
    assert budget_for([interrupted], Budget(seconds=0.5)).seconds == 0.5
