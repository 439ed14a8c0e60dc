"""Shards and tensor ranks: what a job asks for, what its plan says of them, and what its pods are told."""

from __future__ import annotations

from typing import Any

import pytest
from api_vectors import job
from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.inputs.placement_constraints import UnusableJobError
from hulk_operator.inputs.workloads import Situation, to_model, to_workload
from hulk_operator.pods.environment import mesh_env
from hulk_operator.reconcile.plan_summary import plan_summary
from hulk_operator.reconcile.steps.planning import _details
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload

NODES = {"a": 8, "b": 8}
EXAMPLE = {"template.spec.containers.0.command": ["hulk-launch", "-m", "hulk_runtime.examples.gpt"]}


def workload(parallelism: dict[str, Any], workers: dict[str, Any] | None = None, **changes: Any) -> Workload:
    """Of a script of one's own."""
    found = HulkJob.model_validate(
        job({"parallelism": parallelism, "workers": workers or {"min": 2, "max": 8}, **changes})
    )
    return to_workload(found, to_model(found.spec), Situation(1, NODES))


def plan(layout: Layout, each: int = 1) -> Plan:
    slots = tuple(WorkerSlot("ab"[n % 2], "eu", each) for n in range(layout.num_ranks // each))
    return Plan("a/b", 1, slots, (4,) * layout.data, 1, 1, NOT_PREDICTED, layout, stages=tuple(range(layout.pipeline)))


@pytest.mark.parametrize(
    ("parallelism", "workers", "expected"),
    [
        ({"shard": 4}, {"min": 2, "max": 11}, (4, 8)),
        ({"shard": 4, "data": 2}, {"max": 8}, (8, 8)),
        ({"shard": 4, "tensor": 2}, {"min": 1, "max": 5, "acceleratorsPerWorker": 4}, (2, 4)),
        ({"shard": 2, "pipeline": 2, "data": 2}, {"max": 4, "acceleratorsPerWorker": 2}, (4, 4)),
    ],
)
def test_workers_are_those_of_whole_replicas(
    parallelism: dict[str, Any], workers: dict[str, Any], expected: tuple[int, int]
) -> None:
    found = workload(parallelism, workers)
    assert (found.min_workers, found.max_workers) == expected
    assert (found.data, found.shard, found.tensor) == (
        parallelism.get("data"),
        parallelism["shard"],
        parallelism.get("tensor", 1),
    )
    assert (found.recompute, found.shards_if_needed) == (False, False)


def test_workers_that_make_no_whole_replicas_are_refused_with_the_numbers() -> None:
    with pytest.raises(UnusableJobError) as caught:
        workload({"shard": 4}, {"min": 5, "max": 7})
    assert "asks for shard 4: no number of workers from workers.min 5 to workers.max 7" in caught.value.message
    with pytest.raises(UnusableJobError) as caught:
        workload({"shard": 4, "data": 3}, {"max": 13, "acceleratorsPerWorker": 5})
    assert "data 3 and shard 4, which is 12 / 5 workers" in caught.value.message


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("a script", {}, True),
        ("replicas stated", {"parallelism": {"data": 4}}, False),
        ("no shards", {"parallelism": {"shard": 1}}, False),
        ("apart for steps", {"sync": {"mode": "local"}}, False),
        ("Hulk's own example", EXAMPLE, True),
        ("Hulk's own example, without a lost region", {**EXAMPLE, "sync": {"onRegionLoss": "continue"}}, False),
    ],
)
def test_shards_may_be_chosen_where_nobody_says_otherwise(name: str, changes: dict[str, Any], expected: bool) -> None:
    found = HulkJob.model_validate(job({"parallelism": {}, **changes}))
    assert to_workload(found, to_model(found.spec), Situation(1, NODES)).shards_if_needed is expected


def test_a_script_may_have_stores_by_region() -> None:
    storage = {"url": "s3://all", "regional": [{"region": "eu", "url": "s3://eu"}]}
    assert workload({"shard": 4}, checkpoint={"storage": storage}).shard == 4


@pytest.mark.parametrize(
    "parallelism",
    [
        {"shard": 4, "tensor": 2},
        {"shard": 2, "data": 2},
        {"tensor": 4},
        {"pipeline": 2, "tensor": 2},
        {"pipeline": 2, "shard": 2, "tensor": 2},
    ],
)
def test_hulks_own_example_runs_them_as_asked(parallelism: dict[str, int]) -> None:
    found = workload(parallelism, **EXAMPLE)
    asked = [parallelism.get(name, 1) for name in ("pipeline", "shard", "tensor")]
    assert [found.pipeline, found.shard, found.tensor] == asked
    assert (found.stages_if_needed, found.shards_if_needed) == (False, False)


@pytest.mark.parametrize(
    ("layout", "accelerate"),
    [
        (Layout(4), None),
        (Layout(2, shard=4), ("2", "4", "1")),
        (Layout(1, tensor=2, shard=4), ("1", "4", "2")),
        (Layout(1, tensor=8), ("1", "1", "8")),
        (Layout(2, tensor=4), None),
        (Layout(2, 2, 1, 2), None),
    ],
)
def test_pods_are_told_the_mesh_and_accelerate_where_it_knows_such_a_one(
    layout: Layout, accelerate: tuple[str, str, str] | None
) -> None:
    found = mesh_env(plan(layout))
    degrees = [found[name] for name in (names.ENV_DP_REPLICATE, names.ENV_DP_SHARD, names.ENV_TP, names.ENV_PP)]
    assert degrees == [str(degree) for degree in (layout.data, layout.shard, layout.tensor, layout.pipeline)]
    keys = (names.ENV_ACCELERATE_DP_REPLICATE, names.ENV_ACCELERATE_DP_SHARD, names.ENV_ACCELERATE_TP)
    assert (names.ENV_ACCELERATE_MESH in found) == (accelerate is not None)
    assert tuple(found.get(key) for key in keys) == (accelerate or (None, None, None))


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(2, shard=4), "; 2 replicas, each of 4 shards"),
        (Layout(1, tensor=2, shard=4), "; 1 replica, each of 4 shards x 2 tensor-parallel ranks"),
        (Layout(2, 2, 2), "; 2 replicas of 2 stages by 1f1b; a stage of 2 tensor-parallel ranks"),
        (Layout(1, 2, 2, 2), "; 1 replica of 2 stages by 1f1b; a stage of 2 shards x 2 tensor-parallel ranks"),
        (Layout(8), ""),
    ],
)
def test_the_status_says_how_a_replica_is_divided(layout: Layout, words: str) -> None:
    topology = Topology((Machine("a", "eu"), Machine("b", "eu")))
    found = HulkJob.model_validate(job({}))
    summary = plan_summary(found, plan(layout), "digest", topology, to_model(found.spec))
    shown = summary.layout
    assert (shown.data, shown.pipeline, shown.tensor, shown.shard) == (
        layout.data,
        layout.pipeline,
        layout.tensor,
        layout.shard,
    )
    assert _details(summary) == words
    assert [row.num_accelerators for row in summary.stages] == [layout.data * layout.width] * (
        layout.pipeline if layout.pipeline > 1 else 0
    )
