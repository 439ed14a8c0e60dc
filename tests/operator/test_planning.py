"""The planning pass over a fake cluster with the real search: no accelerator twice, refusals with reasons, retries."""

import asyncio
import gzip
import json
import os
import signal
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.api import ConditionType, HulkJob
from hulk_operator.api.base import format_time
from hulk_operator.cluster import (
    CONFIG_MAPS,
    HULK_JOBS,
    HULK_TOPOLOGIES,
    NODE_PROFILES,
    NODES,
    PODS,
    ApiResource,
    Object,
    Unavailable,
)
from hulk_operator.inputs.workloads import Situation, to_model, to_workload
from hulk_operator.observation import Preflight
from hulk_operator.planning import child_process, process
from hulk_operator.planning import planner as planning
from hulk_operator.planning.child_process import MAX_WORK_S, ChildProcess, OneProcess, die_with
from hulk_operator.planning.planner import Planner
from hulk_operator.pods import plan_config_map, pods
from hulk_operator.reconcile.steps.planning import committed
from hulk_operator.reconcile.types import Planned, Unplanned, View
from hulk_operator.status import condition
from hulk_operator.watched import Store
from hulk_operator.watched.informers import read
from hulk_placement.accelerators import fastest
from hulk_placement.model import Layer, Model
from hulk_placement.solution import Budget, Solution
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload
from views import NOW

WAIT_S = 60


OF_TOO_MUCH = {"spec": {"containers": [{"name": "w", "image": "i", "resources": {"requests": {"memory": "500Gi"}}}]}}
"""Of which no node has as much, were it empty."""


def node(name: str, accelerators: int = 1, cpu: str = "8") -> tuple[ApiResource, Object]:
    allocatable = {"cpu": cpu, "memory": "16Gi", "pods": "20", "nvidia.com/gpu": str(accelerators)}
    conditions = [{"type": "Ready", "status": "True"}]
    labels = {names.NODE_REGION: "eu", names.NODE_PRODUCT: "lab-cpu"}
    return NODES, {
        "metadata": {"name": name, "labels": labels, "uid": name},
        "spec": {},
        "status": {"allocatable": allocatable, "conditions": conditions},
    }


def job(name: str, num_workers: int = 2, cpu: str = "1", **spec: Any) -> tuple[ApiResource, Object]:
    worker = {"name": "w", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return HULK_JOBS, {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "metadata": {"name": name, "namespace": "lab", "generation": 1},
        "spec": {
            "workers": {"min": num_workers, "max": num_workers},
            "model": {"transformer": {"layers": 1, "hidden": 8, "heads": 1, "sequenceLength": 4, "vocabulary": 16}},
            "training": {"globalBatch": 8, "steps": 10},
            "placement": {"allowUnknownLinks": True},
            "template": {"spec": {"containers": [worker]}},
            **spec,
        },
        "status": {},
    }


class World:
    """A planner over a fake cluster."""

    def __init__(self, *objects: tuple[ApiResource, Object]) -> None:
        self.cluster, self.store = FakeCluster(*objects), Store()
        for (plural, _, _), body in self.cluster.objects.items():
            if plural == "hulkjobs":
                self.store.jobs.put(body)
        self.answered: asyncio.Queue[str] = asyncio.Queue()
        seen = partial(read, self.cluster)
        self.planner = Planner(self.cluster, self.store, seen, self.answered.put_nowait, lambda: NOW)

    def job(self, name: str) -> HulkJob:
        found = self.store.job(f"lab/{name}")
        assert found is not None
        return found

    def view(self, name: str) -> View:
        one = self.job(name)
        return View(job=one, status=one.status, now=NOW)

    def commit(self, name: str) -> Planned:
        """What the reconcile does with a plan: it is in the status, then the planner lets go of its answer."""
        answer = self.planner.decision(f"lab/{name}")
        assert isinstance(answer, Planned)
        raw = self.cluster.objects["hulkjobs", "lab", name]
        self.store.jobs.put(
            self.cluster._store(HULK_JOBS, {**raw, "status": committed(self.view(name), answer).wire()})
        )
        self.planner.forget(f"lab/{name}")
        return answer

    async def answer(self, name: str) -> Planned | Unplanned:
        """The next answer for a job."""
        while await asyncio.wait_for(self.answered.get(), WAIT_S) != f"lab/{name}":
            continue
        found = self.planner.decision(f"lab/{name}")
        assert found is not None
        return found


@asynccontextmanager
async def planning_over(*objects: tuple[ApiResource, Object]) -> AsyncIterator[World]:
    world = World(*objects)
    task = asyncio.create_task(world.planner.run())
    try:
        yield world
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def machines(answer: Planned | Unplanned) -> list[str]:
    assert isinstance(answer, Planned), answer
    return sorted(slot.machine for slot in answer.full.plan.workers)


async def test_jobs_that_come_together_never_share_an_accelerator() -> None:
    async with planning_over(node("a"), node("b"), node("c"), node("d"), job("one"), job("two")) as world:
        world.planner.request("lab/one")
        world.planner.request("lab/two")
        first, second = await world.answer("one"), world.planner.decision("lab/two")
        assert second is not None
        assert sorted([*machines(first), *machines(second)]) == ["a", "b", "c", "d"]


def shown(
    node: str, flops_per_s: int, of: tuple[ApiResource, Object], by: Sequence[str] = ("lab",)
) -> tuple[ApiResource, Object]:
    """The profile of a node that has computed so fast with a job's workload, as jobs of these namespaces say."""
    found = HulkJob.model_validate(of[1])
    digest = to_workload(found, to_model(found.spec), Situation(1, {})).digest
    entry = {"product": "lab-cpu", "workload": digest, "flopsPerSecond": flops_per_s, "time": format_time(NOW)}
    entries = [{"namespace": namespace, "job": "earlier", **entry} for namespace in by]
    return NODE_PROFILES, {"metadata": {"name": node}, "status": {"accelerators": entries}}


@pytest.mark.parametrize(("shares", "expected"), [(None, [2, 6]), ("planned", [2, 6]), ("equal", [4, 4])])
async def test_shares_follow_the_speeds_that_nodes_showed(shares: str | None, expected: list[int]) -> None:
    worker = {"name": "w", "image": "i", "command": ["python", "-m", "hulk_runtime.examples.gpt"]}
    training = {"globalBatch": 8, "steps": 10} | ({"shares": shares} if shares else {})
    one = job("one", training=training, template={"spec": {"containers": [worker]}})
    profiles = (shown("a", 10**6, one), shown("b", 3 * 10**6, one))
    async with planning_over(node("a"), node("b"), one, *profiles) as world:
        world.planner.request("lab/one")
        answer = await world.answer("one")
        assert isinstance(answer, Planned)
        by_node = dict(zip(answer.full.plan.rank_machines, answer.full.plan.shares, strict=True))
        assert [by_node["a"], by_node["b"]] == expected
        summary = answer.summary
        assert [summary.smallest_share, summary.largest_share] == expected


async def test_the_plan_of_replicas_that_train_apart_says_how_many_steps_come_before() -> None:
    one = job("one", training={"globalBatch": 8, "steps": 1000}, sync={"mode": "local"})
    async with planning_over(node("a"), node("b"), one) as world:
        world.planner.request("lab/one")
        answer = await world.answer("one")
        assert isinstance(answer, Planned)
        assert answer.summary.rounds is not None
        assert answer.summary.rounds.warmup_steps == 200


async def test_speeds_of_another_workload_decide_until_the_pods_measure() -> None:
    other = job("other", training={"globalBatch": 8, "steps": 10, "optimizer": "sgd"})
    one = job("one", training={"globalBatch": 8, "steps": 10, "shares": "planned"})
    profiles = (shown("a", 10**6, other), shown("b", 3 * 10**6, other))
    async with planning_over(node("a"), node("b"), one, *profiles) as world:
        world.planner.request("lab/one")
        answer = await world.answer("one")
        assert isinstance(answer, Planned)
        plan = answer.full.plan
        assert dict(zip(plan.rank_machines, plan.shares, strict=True)) == {"a": 2, "b": 6}
        assert answer.full.preflight


@pytest.mark.parametrize(
    ("liars", "expected"),
    [
        pytest.param([], {"a", "b"}, id="nobody lies"),
        pytest.param(["evil"], {"a", "b"}, id="another tenant does"),
        pytest.param(["evil", "evil-too"], {"c", "d"}, id="two tenants that agree are believed"),
    ],
)
async def test_a_tenant_does_not_steer_where_others_jobs_go(liars: list[str], expected: set[str]) -> None:
    """It says that c and d are a thousand times as fast as a and b, where the job's own namespace has run before."""
    one = job("one")
    honest = [shown(name, 10**6, one) for name in "ab"]
    lies = [shown(name, 10**9, one, liars) for name in "cd"]
    async with planning_over(*(node(name) for name in "abcd"), one, *honest, *lies) as world:
        world.planner.request("lab/one")
        assert set(machines(await world.answer("one"))) == expected


async def test_the_most_for_the_money_is_decided_and_stated() -> None:
    """Both nodes are as fast as each other; one alone costs least for a sequence, and the cheap one less."""
    one = job("one", workers={"min": 1, "max": 2}, placement={"objective": "throughputPerMoney"})
    dear = node("b")
    dear[1]["metadata"]["labels"][names.NODE_PRODUCT] = "dear-cpu"
    prices = {"prices": [{"product": "lab-cpu", "perHour": "0.25"}, {"product": "dear-cpu", "perHour": "2"}]}
    topology = HULK_TOPOLOGIES, {"metadata": {"name": names.TOPOLOGY_NAME}, "spec": prices}
    async with planning_over(node("a"), dear, one, topology) as world:
        world.planner.request("lab/one")
        answer = await world.answer("one")
        assert machines(answer) == ["a"]
        assert isinstance(answer, Planned)
        assert (answer.summary.objective, answer.summary.price_per_hour) == ("throughputPerMoney", "0.2500")
        status = committed(world.view("one"), answer)
        [planned] = [condition for condition in status.conditions if condition.type == "Planned"]
        assert planned.message == "attempt 1: 1 worker, 1 in eu; 0.25 an hour"


async def test_pinned_layers_are_where_the_pins_say_and_the_status_shows_it() -> None:
    pins = [{"parameters": "token*", "nodes": ["b", "c"]}, {"layers": "1", "nodes": ["c", "a"]}]
    one = job("one", workers={"min": 1, "max": 3}, placement={"pins": pins})
    async with planning_over(node("a"), node("b"), node("c"), one) as world:
        world.planner.request("lab/one")
        answer = await world.answer("one")
        assert machines(answer) == ["c"]
        assert isinstance(answer, Planned)
        [place] = answer.summary.layers
        assert (place.layers, place.num_nodes, place.regions) == ("0-2", 1, ("eu",))


async def test_a_decided_and_a_committed_plan_hold_what_has_no_pod_yet() -> None:
    async with planning_over(node("a"), node("b"), job("one"), job("two")) as world:
        world.planner.request("lab/one")
        await world.answer("one")
        world.planner.request("lab/two")
        refused = await world.answer("two")
        assert isinstance(refused, Unplanned)
        assert refused.reason == "NotEnoughAccelerators"
        world.commit("one")
        world.planner.changed()
        assert isinstance(await world.answer("two"), Unplanned)


async def test_a_refused_job_is_tried_again_when_another_one_goes() -> None:
    async with planning_over(node("a"), node("b"), job("one"), job("two")) as world:
        world.planner.request("lab/one")
        await world.answer("one")
        world.planner.request("lab/two")
        assert isinstance(await world.answer("two"), Unplanned)
        world.planner.forget("lab/one")
        assert machines(await world.answer("two")) == ["a", "b"]


async def test_a_terminating_pod_holds_its_accelerator_until_it_is_gone() -> None:
    held = {"requests": {"nvidia.com/gpu": "1"}}
    ending = {
        "metadata": {"name": "old", "namespace": "lab", "deletionTimestamp": "2026-05-04T12:00:00Z"},
        "spec": {"nodeName": "b", "containers": [{"name": "w", "resources": held}]},
        "status": {"phase": "Running"},
    }
    async with planning_over(node("a"), node("b"), job("one"), (PODS, ending)) as world:
        world.planner.request("lab/one")
        assert isinstance(await world.answer("one"), Unplanned)
        del world.cluster.objects["pods", "lab", "old"]
        world.planner.changed()
        assert machines(await world.answer("one")) == ["a", "b"]


async def test_plans_that_do_not_fit_together_by_cpu_are_made_one_after_the_other() -> None:
    two_each = (node("a", 2, cpu="2"), node("b", 2, cpu="2"))
    async with planning_over(*two_each, job("one", 2, cpu="2"), job("two", 2, cpu="2")) as world:
        world.planner.request("lab/one")
        world.planner.request("lab/two")
        answers = [await world.answer("one"), await world.answer("two")]
        assert [type(answer) for answer in answers] == [Planned, Unplanned]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"parallelism": {"tensor": 2}}, "UnsupportedLayout"),
        (
            {"parallelism": {"shard": 2}, "training": {"globalBatch": 8}, "workers": {"max": 3, "min": 3}},
            "UnsupportedLayout",
        ),
        ({"parallelism": {"pipeline": 2}, "sync": {"mode": "wan"}}, "UnsupportedLayout"),
        ({"placement": {"objective": "throughputPerMoney"}}, "NoPrices"),
        ({"placement": {"pins": [{"layers": "9", "regions": ["eu"]}]}}, "InvalidPins"),
        ({"placement": {"deniedRegions": ["eu"]}}, "ContradictoryPlacement"),
        ({"model": {"huggingFace": {"configMap": "gone", "key": "k"}}}, "ModelNotFound"),
        ({"priorityClassName": "gone"}, "PriorityClassNotFound"),
        ({"workers": {"max": 2, "resourceName": "amd.com/gpu"}}, "NoCandidates"),
        ({"workers": {"min": 9, "max": 9}}, "BatchTooSmall"),
        ({"template": OF_TOO_MUCH}, "NotEnoughResources"),
    ],
)
async def test_a_job_that_cannot_be_planned_is_refused_with_a_reason(spec: dict[str, Any], reason: str) -> None:
    async with planning_over(node("a"), node("b"), job("one", **spec)) as world:
        world.planner.request("lab/one")
        answer = await world.answer("one")
        assert isinstance(answer, Unplanned)
        assert answer.reason == reason
        assert answer.message
        assert not answer.message.endswith(": .")


async def test_how_a_config_was_read_is_said_in_the_condition() -> None:
    """The language part of a model of text and images."""
    text = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 1,
        "intermediate_size": 8,
        "max_position_embeddings": 64,
        "vocab_size": 16,
    }
    config = {"model_type": "llava", "text_config": text, "vision_config": {"hidden_size": 8}}
    body = {
        "metadata": {"name": "m", "namespace": "lab"},
        "data": {"config.json": json.dumps(config)},
    }
    model = {
        "huggingFace": {"configMap": "m", "key": "config.json"},
        "sequenceLength": 4,
        "trainable": {"share": "0.5"},
    }
    async with planning_over(node("a"), node("b"), job("one", model=model), (CONFIG_MAPS, body)) as world:
        world.planner.request("lab/one")
        answer = await world.answer("one")
        assert isinstance(answer, Planned), answer
        said = condition(committed(world.view("one"), answer), ConditionType.PLANNED)
        note = "Of llava the language part (text_config, llama) is counted; vision_config not: leave memory for it."
        assert said is not None
        assert said.message.endswith(f". {note}")
        assert note in answer.full.plan.why


async def test_an_unusable_template_is_refused_and_others_are_planned() -> None:
    async with planning_over(node("a"), node("b"), job("bad", cpu="much"), job("good")) as world:
        world.planner.request("lab/bad")
        world.planner.request("lab/good")
        assert machines(await world.answer("good")) == ["a", "b"]
        bad = world.planner.decision("lab/bad")
        assert isinstance(bad, Unplanned)
        assert "'much'" in bad.message


async def test_the_pass_survives_a_cluster_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "RETRY_S", 0.01)
    async with planning_over(node("a"), node("b"), job("one")) as world:
        real, failures = world.cluster.list, iter([Unavailable(503, "", "down")])

        async def flaky(*arguments: Any, **options: Any) -> Any:
            for failure in failures:
                raise failure
            return await real(*arguments, **options)

        world.cluster.list = flaky  # type: ignore[method-assign]
        world.planner.request("lab/one")
        assert machines(await world.answer("one")) == ["a", "b"]


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[OneProcess]:
    """What planners of this test make: processes of their own, in place of the shared one."""
    made: list[OneProcess] = []

    def watched() -> OneProcess:
        made.append(OneProcess())
        return made[-1]

    monkeypatch.setattr(child_process, "OneProcess", watched)
    return made


def child_of(pool: OneProcess) -> BaseProcess:
    (child,) = pool._processes.values()
    return child


async def test_a_planner_process_that_dies_is_replaced(pools: list[OneProcess]) -> None:
    async with planning_over(node("a"), node("b"), job("one"), job("two")) as world:
        world.planner.request("lab/one")
        await world.answer("one")
        child = child_of(pools[0])
        child.kill()
        await asyncio.to_thread(child.join)
        world.planner.forget("lab/one")
        world.planner.request("lab/two")
        assert machines(await world.answer("two")) == ["a", "b"]
        assert len(pools) == 2


async def test_the_planner_process_starts_with_the_first_problem_and_ends_after_a_while_without() -> None:
    failed: list[str] = []
    search = process.Search(Budget(10), lambda: failed.append("search"), idle_s=0.2)
    assert not search.has_process
    problem = process.Problem((), Topology(()))
    for _ in range(2):  # the second one is solved by a process of its own
        assert await search.solve(problem) == Solution({}, {})
        assert search.has_process
        async with asyncio.timeout(WAIT_S):
            while search.has_process:
                await asyncio.sleep(0.05)
    assert failed == []


async def test_what_is_promised_of_a_plan_waits_for_no_search(pools: list[OneProcess]) -> None:
    topology = Topology((Machine("a", "eu"), Machine("b", "eu")))
    model = Model((Layer("all", 1000, 1e9, 2e9, 0, 5),))
    workload = Workload("x/one", model, 8, dict.fromkeys("ab", 1), allow_unknown_links=True)
    failed: list[int] = []
    search = process.Search(Budget(10), lambda: failed.append(1))
    plan = (await search.solve(process.Problem((workload,), topology))).plans["x/one"]
    both = await asyncio.gather(*(search.foresee(plan, workload, topology) for _ in range(2)))
    assert both[0].prediction.step_s == both[1].prediction.step_s > 0
    assert not search._beside.exists
    busy = asyncio.create_task(search._searched(time.sleep, WAIT_S))
    await asyncio.sleep(0)
    try:
        assert (await search.foresee(plan, workload, topology)).prediction.step_s > 0
        assert not busy.done()
        _, beside = pools
        child = child_of(beside)
        child.kill()
        child.join()
        assert (await search.foresee(plan, workload, topology)).prediction.step_s > 0
    finally:
        busy.cancel()
        search.close()


async def test_work_that_goes_on_keeps_nobody_from_ending(pools: list[OneProcess]) -> None:
    """It ends with the operator, which would wait for it on its own way out."""
    beside = ChildProcess(lambda: None)
    assert await beside.run(int) == 0
    child = child_of(pools[0])
    busy = asyncio.create_task(beside.run(time.sleep, MAX_WORK_S))
    await asyncio.sleep(0)
    busy.cancel()
    beside.close()
    await asyncio.to_thread(child.join)
    while child.exitcode is None:  # the pool's own thread was first to see its end, and has not noted it yet
        await asyncio.sleep(0.01)
    assert child.exitcode == -signal.SIGKILL


async def test_searches_that_lose_their_process_together_share_the_next_one(pools: list[OneProcess]) -> None:
    beside = ChildProcess(lambda: None)

    async def again() -> int:
        with pytest.raises(BrokenProcessPool):
            await beside.run(time.sleep, WAIT_S)
        return await beside.run(int)

    waiting = [asyncio.create_task(again()) for _ in range(3)]
    async with asyncio.timeout(WAIT_S):
        while not (pools and pools[0]._processes):
            await asyncio.sleep(0.05)
        child_of(pools[0]).kill()
        assert await asyncio.gather(*waiting) == [0, 0, 0]
    assert len(pools) == 2
    beside.close()


def test_a_planner_process_whose_operator_was_killed_before_it_was_ready_ends() -> None:
    orphaned = ProcessPoolExecutor(1, get_context("spawn"), initializer=die_with, initargs=(os.getppid(),))
    with orphaned, pytest.raises(BrokenProcessPool):
        orphaned.submit(int).result(WAIT_S)


async def test_the_full_plan_is_read_back_after_a_restart() -> None:
    async with planning_over(node("a"), node("b"), job("one")) as world:
        world.planner.request("lab/one")
        await world.answer("one")
        known = world.commit("one").full
    again = World(*[(HULK_JOBS, world.cluster.objects["hulkjobs", "lab", "one"])])
    assert await again.planner.full_plan(again.job("one")) is None  # it was never written
    again.cluster._store(CONFIG_MAPS, plan_config_map(again.job("one"), 1, known.blob, known.digest))
    found = await again.planner.full_plan(again.job("one"))
    assert found is not None
    assert (found.blob, found.digest, found.num_steps) == (known.blob, known.digest, 10)
    assert found.plan.workers == known.plan.workers


async def test_a_plan_of_another_version_is_no_plan() -> None:
    async with planning_over(node("a"), node("b"), job("one")) as world:
        world.planner.request("lab/one")
        await world.answer("one")
        known = world.commit("one").full
    again = World(*[(HULK_JOBS, world.cluster.objects["hulkjobs", "lab", "one"])])
    written = plan_config_map(again.job("one"), 1, known.blob, known.digest)
    written["binaryData"]["plan.json.gz"] = b64encode(gzip.compress(b'{"version": 99}')).decode()
    again.cluster._store(CONFIG_MAPS, written)
    assert await again.planner.full_plan(again.job("one")) is None


async def test_a_preflight_becomes_speeds_and_a_prediction() -> None:
    async with planning_over(node("a"), node("b"), job("one")) as world:
        world.planner.request("lab/one")
        await world.answer("one")
        full = world.commit("one").full
        one = world.view("one")
        view = View(job=one.job, status=one.status, now=NOW, full=full)
        made = await world.planner.calibrate(view, Preflight(1, (0.5, 0.25)))
        assert made is not None
        assert made.prediction.compute_microseconds == 500_000
        assert (made.prediction.source, made.prediction.calibrated) == ("preflight", True)
        slow, fast = (full.plan.workers[rank].machine for rank in (0, 1))
        assert made.flops_per_s[fast] == 2 * made.flops_per_s[slow]
        assert (made.new, made.micro_batch) == ({"a", "b"}, min(full.plan.micro_batch, *full.plan.shares))
        varying = await world.planner.calibrate(view, Preflight(1, (0.5, 0.25), slowest_s=0.6))
        assert varying is not None
        assert varying.prediction.compute_microseconds == 600_000
        assert varying.flops_per_s[fast] == pytest.approx(2 * varying.flops_per_s[slow])
        assert await world.planner.calibrate(view, Preflight(1, (0.5,))) is None


async def test_a_preflight_that_no_accelerator_can_make_counts_as_much_as_the_data_sheet_has() -> None:
    nodes = [node(name) for name in "ab"]
    for (_, body), product in zip(nodes, ("A100-SXM4-80GB", "nobody-knows"), strict=True):
        body["metadata"]["labels"][names.NODE_PRODUCT] = product
    large = {"transformer": {"layers": 8, "hidden": 64, "heads": 1, "sequenceLength": 64, "vocabulary": 16}}
    async with planning_over(*nodes, job("one", model=large)) as world:
        world.planner.request("lab/one")
        await world.answer("one")
        full = world.commit("one").full
        one = world.view("one")
        view = View(job=one.job, status=one.status, now=NOW, full=full)
        made = await world.planner.calibrate(view, Preflight(1, (1e-9, 1e-9)))
        assert made is not None
        assert made.flops_per_s == {"a": 312e12, "b": fastest()}


async def test_bound_pods_speak_for_their_claims() -> None:
    async with planning_over(node("a"), node("b"), node("c"), node("d"), job("one"), job("two")) as world:
        world.planner.request("lab/one")
        await world.answer("one")
        plan = world.commit("one").full.plan
        for worker, pod in enumerate(pods(world.job("one"), plan, range(2))):
            bound = {**pod["spec"], "nodeName": plan.workers[worker].machine}
            world.cluster._store(PODS, {**pod, "spec": bound, "status": {"phase": "Running"}})
        world.planner.request("lab/two")
        assert not set(machines(await world.answer("two"))) & {slot.machine for slot in plan.workers}
