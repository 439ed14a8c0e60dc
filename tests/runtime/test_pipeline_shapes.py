"""Ranks that carry out a schedule have the loss and the gradients of one process, whatever the shape and the order."""

from functools import cache, partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from hulk_placement.schedule.links import DeviceLink, with_links
from hulk_placement.schedule.placement import Placement
from hulk_placement.schedule.repetend import repetend
from hulk_placement.schedule.shapes import SHAPES, split_weights
from hulk_placement.schedule.unrolled import periodic
from hulk_placement.schedule.wire import document as written_document
from hulk_runtime.pipeline.event_log import parts
from hulk_runtime.plan import pipeline_schedule
from pipeline_cases import found_by_ranks
from pipeline_model import OneProcess, batch
from pipeline_schedules import all_forward, any_of, backward_first, written

pytestmark = pytest.mark.whole  # in short: shapes of the GPT in test_pipeline_gpt, orders in test_pipeline_actions

SCRIPT = str(Path(__file__).with_name("pipeline_ranks.py"))
NUM_RANKS = 4
FUZZED = 14
TOLERANCE = 1e-13
"""Of float64; gradients and parameters here are below 3."""
EVEN, UNEVEN = [[2, 2, 2, 2]], [[3, 2, 4, 2, 3]]


def placement(shape: str, num_devices: int = NUM_RANKS) -> Placement:
    return SHAPES[shape](num_devices, 1.0, 3.0)


def cases() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for shape in SHAPES:
        one = placement(shape)
        found[shape] = {"schedule": written(one, 5, backward_first), "shares": UNEVEN}
        found[f"{shape} all forward"] = {"schedule": written(one, 4, all_forward), "shares": EVEN}
        found[f"{shape} split"] = {"schedule": written(split_weights(one), 5, backward_first), "shares": UNEVEN}
        found[f"{shape} inference"] = {"schedule": written(one.forward_only(), 5, backward_first), "shares": UNEVEN}
    for shape in ("v", "x"):
        found[f"{shape} searched"] = {"schedule": partial(searched, shape), "shares": UNEVEN}
    for shape in ("v", "x", "m", "k"):
        shares = [[3, 2, 2], [2, 4, 3]]
        found[f"{shape} 2 replicas"] = {"schedule": written(placement(shape, 2), 3, backward_first), "shares": shares}
    found["x 2 replicas"]["rings"] = [[1, 0], [0, 1]]
    for shape in ("v", "x", "k"):
        found[f"{shape} lines apart"] = {**found[shape], "lines_apart": True}
    for seed in range(FUZZED):
        shape = list(SHAPES)[seed % len(SHAPES)]
        one = split_weights(placement(shape)) if seed % 2 else placement(shape)
        found[f"any {seed} {shape}"] = {"schedule": written(one, 5, any_of(seed)), "shares": UNEVEN}
    return found


@cache
def searched(shape: str) -> dict[str, Any]:
    """The schedule that planning finds where links take time."""
    links = {(a, b): DeviceLink(a, b, busy=0.5, latency=0.5) for a, b in permutations(range(NUM_RANKS), 2)}
    joined = with_links(placement(shape), links)
    return written_document(joined, periodic(repetend(joined, max_micro_batches=4), 5))


def schedule_of(case: str) -> dict[str, Any]:
    """Searches take seconds, so that they wait until they are asked for."""
    given = CASES[case]["schedule"]
    return given() if isinstance(given, partial) else given


CASES = cases()


@pytest.fixture(scope="module")
def found(module_job, make_plan) -> list[dict[str, Any]]:
    """What each rank found, of all cases."""
    whole = {name: {**case, "schedule": schedule_of(name)} for name, case in CASES.items()}
    return found_by_ranks(module_job, make_plan((1,) * NUM_RANKS), SCRIPT, whole, NUM_RANKS)


@pytest.mark.parametrize("case", [name for name in CASES if "inference" not in name])
def test_training_equals_one_process(found, case):
    schedule = pipeline_schedule.read(schedule_of(case))
    num_samples = sum(map(sum, CASES[case]["shares"]))
    losses, gradients, parameters = OneProcess(schedule).train(num_samples)
    for rank, own in enumerate(each[case] for each in found):
        assert own["losses"] == pytest.approx(losses, rel=1e-13)
        for kind, expected in (("gradients", gradients), ("parameters", parameters)):
            assert own[kind]
            for name, values in own[kind].items():
                whole = cut(expected[name], schedule, name, rank % schedule.num_devices)
                assert off(values, whole) < TOLERANCE, name


def off(values: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference; torch.testing would import the compiler, which takes seconds."""
    assert values.shape == expected.shape
    return float((values - expected).abs().max())


def cut(whole: torch.Tensor, schedule: pipeline_schedule.Schedule, name: str, device: int) -> torch.Tensor:
    """What a device has of a parameter: shards have equal parts of the one dimension that is cut."""
    stage, _, parameter = name.partition("/")
    block = next(b for b in schedule.blocks if b.stage == stage and device in b.devices)
    shard, num_shards = block.devices.index(device), len(block.devices)
    dimension = 1 if parameter == "narrow" else 0
    edges = [whole.shape[dimension] * n // num_shards for n in range(num_shards + 1)]
    return whole.narrow(dimension, edges[shard], edges[shard + 1] - edges[shard]) if num_shards > 1 else whole


@pytest.mark.parametrize("case", [name for name in CASES if "inference" not in name])
def test_blocks_run_in_the_planned_order_and_all_time_is_accounted_for(found, case):
    orders = pipeline_schedule.read(schedule_of(case)).orders
    for rank, own in enumerate(each[case] for each in found):
        logs = own["logs"]
        assert [log.turns for log in logs] == [list(order.turns) for order in orders]
        part = parts(logs)[rank % len(orders)]
        assert min(part.compute_s, part.sum_s, part.step_s) > 0 <= part.transfer_s
        assert part.compute_s + part.transfer_s + part.bubble_s + part.sum_s == pytest.approx(part.step_s)


@pytest.mark.parametrize("case", [name for name in CASES if "inference" in name])
def test_inference_equals_one_process(found, case):
    schedule = pipeline_schedule.read(schedule_of(case))
    of = batch(0, sum(map(sum, CASES[case]["shares"])))
    with torch.no_grad():
        expected = OneProcess(schedule).forward(of)
    given = [result for each in found for result in each[case]["results"]]
    assert {n for samples, _ in given for n in samples} == set(range(len(of.data)))
    for samples, values in given:
        assert off(values, expected[samples.start : samples.stop]) < TOLERANCE
