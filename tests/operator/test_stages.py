"""Jobs with pipeline stages: what reaches the planner, what is refused, and when stages may be planned unasked."""

from typing import Any

import pytest
from api_vectors import job
from hulk_operator.api import HulkJob
from hulk_operator.inputs.placement_constraints import Nodes, UnusableJobError
from hulk_operator.inputs.workloads import Situation, to_model, to_workload
from hulk_placement.layer_pins import LayerPin
from hulk_placement.sync import Sync
from hulk_placement.workload import Workload

REGIONS = {"a": "eu", "b": "eu", "c": "us", "d": "ap"}
TWO = {"parallelism": {"pipeline": 2}}
GPT = {"template.spec.containers.0.command": ["/opt/hulk/bin/hulk-launch", "-m", "hulk_runtime.examples.gpt"]}
APART = {"placement": {"pins": [{"layers": "0-1", "regions": ["eu"]}, {"layers": "2-3", "nodes": ["c"]}]}}


def workload(changes: dict[str, Any]) -> Workload:
    """Of a job of two to four workers and a model of four layers, on four nodes in three regions."""
    found = HulkJob.model_validate(job(changes))
    return to_workload(found, to_model(found.spec), Situation(1, dict.fromkeys(REGIONS, 2), nodes=Nodes(REGIONS)))


def refusal(changes: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(UnusableJobError) as caught:
        workload(changes)
    return caught.value.reason, caught.value.message


@pytest.mark.parametrize(
    ("changes", "workers", "degrees"),
    [
        (TWO, (2, 4), (None, 2, 1)),
        ({"parallelism": {"pipeline": 3}}, (3, 3), (None, 3, 1)),
        ({"parallelism": {"pipeline": 2, "data": 2}}, (4, 4), (2, 2, 1)),
        ({"parallelism": {"pipeline": 4, "data": 1, "tensor": 1}}, (4, 4), (1, 4, 1)),
        ({"parallelism": {"pipeline": 1, "data": 3}}, (3, 3), (None, 1, 1)),
        ({}, (2, 4), (None, 1, 1)),
        ({"parallelism": {"pipeline": 2, "tensor": 2}}, (4, 4), (None, 2, 2)),
        ({"parallelism": {"tensor": 2, "data": 2}}, (4, 4), (2, 1, 2)),
    ],
)
def test_workers_are_replicas_of_stages(
    changes: dict[str, Any], workers: tuple[int, int], degrees: tuple[int | None, int, int]
) -> None:
    found = workload(changes)
    assert (found.min_workers, found.max_workers) == workers
    assert (found.data, found.pipeline, found.tensor) == degrees


def test_stages_are_planned_as_the_runtime_carries_them_out() -> None:
    found = workload({**TWO, "sync": {"mode": "auto", "fixedShares": True}})
    assert (found.sync, found.recompute) == (Sync("ring"), False)
    assert workload({}).sync == Sync()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sync": {"mode": "wan"}}, "pipeline 2 and sync.mode wan, which exclude each other: the replicas of a stage"),
        ({"sync": {"mode": "local"}}, "sync.mode local, which exclude each other"),
        ({"sync": {"compression": "int8"}}, "sync.compression int8, which exclude each other"),
        ({"sync": {"onRegionLoss": "continue"}}, "sync.onRegionLoss continue, which exclude each other"),
        ({"workers.acceleratorsPerWorker": 2}, "a stage of a replica is one worker or several, and has 1 accelerator"),
        ({"placement": {"workerNodes": ["a", "b"]}}, "placement.workerNodes, which exclude each other"),
        ({"parallelism": {"pipeline": 5}}, "The job asks for pipeline 5, and its model has 4 layers."),
        ({"workers": {"min": 3, "max": 3}}, "no number of workers from workers.min 3 to workers.max 3 is a multiple"),
        ({"parallelism": {"pipeline": 2, "data": 3}}, "data 3 and pipeline 2, which is 6 / 1 workers"),
        (
            {"parallelism": {"pipeline": 2, "shard": 3}, "workers": {"max": 9, "acceleratorsPerWorker": 2}},
            "one worker or several, and has 3 accelerators",
        ),
        ({"parallelism": {"tensor": 3}}, "The job asks for tensor 3: tensor degree 3 does not divide the model's"),
    ],
)
def test_what_stages_exclude_is_named(changes: dict[str, Any], words: str) -> None:
    reason, message = refusal({**TWO, **changes})
    assert reason == "UnsupportedLayout"
    assert words in message


def test_pins_of_layers_go_to_the_planner_with_all_nodes() -> None:
    found = workload({**TWO, **APART})
    assert found.layer_pins == (LayerPin((0, 1), regions=("eu",)), LayerPin((2, 3), machines=("c",)))
    assert "".join(found.candidates) == "abcd"
    assert workload({"placement": {"pins": [{"layers": "0-1", "regions": ["eu"]}]}}).layer_pins == ()


@pytest.mark.parametrize(
    ("pins", "reason", "words"),
    [
        ([{"layers": "0", "regions": ["mars"]}], "NoCandidates", "No node is where placement.pins[0]"),
        (
            [{"layers": "0-2", "regions": ["eu"]}, {"layers": "2-3", "regions": ["us"]}],
            "ContradictoryPlacement",
            "both bind layer 2.",
        ),
    ],
)
def test_pins_that_no_stages_can_meet_are_refused(pins: list[dict[str, Any]], reason: str, words: str) -> None:
    found = refusal({**TWO, "placement": {"pins": pins}})
    assert found[0] == reason
    assert words in found[1]


@pytest.mark.parametrize(
    ("name", "changes", "if_needed"),
    [
        ("Hulk's own example", GPT, True),
        ("another program", {}, False),
        ("another one of Hulk's", {"template.spec.containers.0.command": ["-m", "hulk_runtime.examples.gpts"]}, False),
        ("one stage asked for", {**GPT, "parallelism": {"pipeline": 1}}, False),
        ("replicas asked for", {**GPT, "parallelism": {"data": 2}}, False),
        ("local SGD asked for", {**GPT, "sync": {"mode": "local"}}, False),
    ],
)
def test_stages_are_an_alternative_only_for_programs_that_train_by_them(
    name: str, changes: dict[str, Any], if_needed: bool
) -> None:
    found = workload(changes)
    assert (found.pipeline, found.stages_if_needed) == (1, if_needed), name


def test_pins_in_different_places_make_stages_of_a_program_that_trains_by_them() -> None:
    found = workload({**GPT, **APART})
    assert (found.pipeline, len(found.layer_pins), found.sync) == (None, 2, Sync("ring"))
    reason, message = refusal(APART)
    assert reason == "UnsupportedLayout"
    assert "need pipeline stages (parallelism.pipeline)" in message
    assert refusal({**GPT, **APART, "parallelism": {"pipeline": 1}})[0] == "UnsupportedLayout"
