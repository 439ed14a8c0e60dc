"""Why a workload has no plan: one reason and one sentence with the numbers for each cause, and bad input refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hulk_placement.model import Model
from hulk_placement.model.hugging_face import from_config
from hulk_placement.solution import Unplaced
from hulk_placement.solve import solve
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from worlds import profile, workload

WORLD = profile("A")
SMALL = replace(WORLD, machines=tuple(replace(m, memory_bytes=8 << 30, product="small") for m in WORLD.machines))
BUSY = replace(WORLD, machines=tuple(replace(m, num_accelerators=1 if m.name == "O0" else 0) for m in WORLD.machines))
APART = replace(WORLD, region_links={(a, a): Link(0.0002, 1e9) for a in "POT"})
ONE_WAY = replace(WORLD, region_links={pair: link for pair, link in WORLD.region_links.items() if pair[0] <= pair[1]})
STRANGERS = Topology(WORLD.machines)


def refusal(topology: Topology, **changes: object) -> Unplaced:
    return solve([workload(topology, **changes)], [], topology).unplaced["team/job"]


@pytest.mark.parametrize(
    ("name", "topology", "changes", "reason", "numbers"),
    [
        ("layout", WORLD, {"pipeline": 2, "tensor": 4}, "NotEnoughAccelerators", ["at least 8 accelerators"]),
        ("room", WORLD, {"pipeline": 2, "data": 4}, "NotEnoughAccelerators", ["at least 8 accelerators; 6 are free."]),
        (
            "batch",
            WORLD,
            {"global_batch": 3, "min_workers": 4},
            "BatchTooSmall",
            ["4 workers", "4 ranks", "3 sequences"],
        ),
        ("nowhere", WORLD, {"candidates": {}}, "NoCandidates", ["6 machines", "6 may not run the job's pods"]),
        ("region", WORLD, {"regions": ("X",)}, "NoCandidates", ["6 outside the regions X (P0, P1, O0, ...)"]),
        (
            "memory",
            SMALL,
            {"model": Model.of_totals(1_000_000_000, 1e12, 0)},
            "NoMemory",
            ["18.63 GiB", "1,000,000,000 parameters", "6 machines", "8.00 GiB (P0, small)"],
        ),
        (
            "busy",
            BUSY,
            {"min_workers": 2},
            "NotEnoughAccelerators",
            ["2 workers of 1 accelerator;", "room for 1", "6 machines have 1 accelerator free, the largest has 1."],
        ),
        ("apart", APART, {"min_workers": 3}, "OnlyUnknownLinks", ["3 workers", "6 of 6 region links", "P to O", "P 2"]),
        ("one way", ONE_WAY, {"min_workers": 3}, "OnlyUnknownLinks", ["3 of 6 region links", "P to O"]),
        ("strangers", STRANGERS, {"min_workers": 2}, "OnlyUnknownLinks", ["2 workers", "P 1, O 1, T 1"]),
        (
            "strangers with much room",
            replace(STRANGERS, machines=tuple(replace(m, num_accelerators=4) for m in WORLD.machines)),
            {"min_workers": 20, "max_workers": 20},
            "OnlyUnknownLinks",
            ["20 workers", "room for 24", "at most 12", "1 in P, whose inner links are unknown"],
        ),
        ("pinned elsewhere", WORLD, {"pins": ("P0", "X9")}, "PinsNotPossible", ["X9", "1 worker", "room for 0"]),
        ("pinned twice", WORLD, {"pins": ("P0", "P0")}, "PinsNotPossible", ["P0", "2 workers", "room for 1"]),
        (
            "too few pins",
            WORLD,
            {"pins": ("P0",), "min_workers": 2},
            "PinsNotPossible",
            ["1 machines", "2 to 6 workers"],
        ),
        (
            "too many pins for the job, whatever the batch",
            WORLD,
            {"pins": ("P0", "P1", "O0", "O1"), "max_workers": 3, "global_batch": 2},
            "PinsNotPossible",
            ["4 machines", "1 to 3 workers"],
        ),
        (
            "more pins than sequences",
            WORLD,
            {"pins": ("P0", "P1", "O0", "O1"), "max_workers": 6, "global_batch": 3},
            "PinsNotPossible",
            ["4 machines", "4 ranks", "3 sequences"],
        ),
        (
            "pins of whole models in stages",
            WORLD,
            {"pins": ("P0", "O0"), "pipeline": 2, "data": 3},
            "PinsNotPossible",
            ["2 workers are given", "2 ranks", "2 pipeline stages, 3 replicas exclude each other"],
        ),
        ("pins apart", APART, {"pins": ("P0", "O0")}, "OnlyUnknownLinks", ["pinned order", "P0 to O0"]),
    ],
)
def test_reason(name: str, topology: Topology, changes: dict[str, object], reason: str, numbers: list[str]) -> None:
    found = refusal(topology, **changes)
    assert found.reason == reason
    assert [part for part in numbers if part not in found.message] == []


@pytest.mark.parametrize("topology", [APART, STRANGERS])
def test_a_job_may_allow_unknown_links_and_pays_for_them(topology: Topology) -> None:
    job = workload(topology, min_workers=6, allow_unknown_links=True)
    plan = solve([job], [], topology).plans[job.key]
    assert len(plan.workers) == 6
    assert plan.prediction.communication_s > 10


def unknown_speeds(topology: Topology, *but: str) -> Topology:
    """The topology with the speeds of these machines only."""
    machines = (m if m.name in but else replace(m, flops_per_s=None) for m in topology.machines)
    return replace(topology, machines=tuple(machines))


def test_unknown_speed_is_assumed_and_said() -> None:
    unknown = unknown_speeds(WORLD)
    plan = solve([workload(unknown)], [], unknown).plans["team/job"]
    assert not plan.prediction.calibrated
    assert any("Compute is an assumed figure: no machine's speed" in sentence for sentence in plan.why)
    assert plan.prediction.compute_s < 1  # assumed for the search as slow as nothing is, for the prediction not


def test_no_machine_is_left_out_because_of_a_guess() -> None:
    job = workload(WORLD, global_batch=6)
    assert len(solve([job], [], WORLD).plans[job.key].workers) < 6  # so fast that the links are not worth it
    unknown = unknown_speeds(WORLD)
    assert len(solve([job], [], unknown).plans[job.key].workers) == 6
    three = replace(job, global_batch=3)  # the others would have nothing to do
    assert len(solve([three], [], unknown).plans[job.key].workers) == 3


def test_what_lengthens_the_step_at_any_speed_is_left_out_without_a_guess() -> None:
    links = dict(WORLD.region_links)
    links |= {pair: Link(1.0, 100.0) for pair in links if "T" in pair and pair != ("T", "T")}
    job = workload(WORLD, global_batch=6)
    plan = solve([job], [], unknown_speeds(replace(WORLD, region_links=links))).plans[job.key]
    assert {slot.region for slot in plan.workers} == {"P", "O"}


def test_a_machine_of_unknown_speed_is_as_fast_as_the_others() -> None:
    job = workload(WORLD)
    known, partly = (solve([job], [], topology).plans[job.key] for topology in (WORLD, unknown_speeds(WORLD, "P0")))
    assert partly.workers == known.workers
    assert partly.prediction == replace(known.prediction, calibrated=False)
    assert any("partly an assumed figure" in sentence for sentence in partly.why)


def test_speed_measured_with_this_workload_stands_first() -> None:
    job = workload(WORLD, min_workers=6, flops_per_s={machine.name: 5e11 for machine in WORLD.machines})
    plan = solve([job], [], WORLD).plans[job.key]
    assert plan.prediction.calibrated
    assert plan.prediction.compute_s == pytest.approx(11 * 1e10 / 5e11)


def test_unknown_speed_follows_the_product() -> None:
    machines = (
        Machine("a", "r", product="x", flops_per_s=4e12),
        Machine("b", "r", product="x"),
        Machine("c", "r", product="y", flops_per_s=1e12),
        Machine("d", "r", product="z"),
    )
    topology = Topology(machines, region_links={("r", "r"): Link(0.001, 1e9)})
    job = workload(topology, min_workers=4, global_batch=4)
    plan = solve([job], [], topology).plans[job.key]
    by_machine = dict(zip(plan.rank_machines, plan.prediction.rank_compute_s, strict=True))
    median = (4e12 + 1e12) / 2
    assert by_machine == {"a": 1e10 / 4e12, "b": 1e10 / 4e12, "c": 1e10 / 1e12, "d": 1e10 / median}


def a_workload(**changes: object) -> Workload:
    return workload(WORLD, **changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Machine("", "r"), "both names"),
        (lambda: Machine("m", "r", num_accelerators=-1), "-1 accelerators"),
        (lambda: Machine("m", "r", flops_per_s=0.0), "speed 0.0 FLOP/s must be > 0"),
        (lambda: Machine("m", "r", flops_per_s=float("nan")), "speed nan"),
        (lambda: Link(-0.1, 1.0), "round trip -0.1 s"),
        (lambda: Link(float("inf"), 1.0), "round trip inf s"),
        (lambda: Link(0.1, 0.0), "bandwidth 0.0 B/s"),
        (lambda: Link(0.1, 1.0, num_streams=0), "0 streams"),
        (lambda: Topology((Machine("m", "r"), Machine("m", "s"))), "2 machines have only 1 different names"),
        (lambda: Topology((), uplinks={"r": -3.0}), "region r: uplink -3.0 B/s"),
        (lambda: a_workload(min_workers=3, max_workers=2), "min 3 and max 2"),
        (lambda: a_workload(global_batch=0), "global batch 0"),
        (lambda: a_workload(micro_batch=0), "micro-batch 0"),
        (lambda: a_workload(optimizer="lion"), "optimizer 'lion' is not known"),
        (lambda: Model.of_totals(0, 1.0, 0), "0 parameters"),
    ],
)
def test_bad_input_is_refused_with_its_numbers(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("flops", [math.nan, math.inf, 0.0, -1.0])
def test_figures_that_no_step_can_be_counted_from_are_refused(flops: float) -> None:
    with pytest.raises(ValueError, match="must be > 0"):
        Model.of_totals(1000, flops, 0)
    with pytest.raises(ValueError, match=r"team/job: speed .* on P0 must be > 0 and finite"):
        workload(WORLD, flops_per_s={"P0": flops})


ONE_BILLION = {
    "model_type": "llama",
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
    "max_position_embeddings": 32768,
}


@pytest.mark.parametrize(
    ("memory_gib", "micro_batch", "asked", "words"),
    [
        (48, None, {}, "It fits at 8,192 tokens (model.sequenceLength)."),
        (48, 4, {}, "It fits at 8,192 tokens (model.sequenceLength) and micro-batch 1."),
        (48, 4, {"sequence_length": 8192}, "It fits with micro-batch 1."),
        (20, None, {}, "(P0, small)."),  # parameters and optimizer state alone take more
    ],
)
def test_what_lacks_memory_is_said_with_its_length_and_what_would_fit(
    memory_gib: int, micro_batch: int | None, asked: dict[str, int], words: str
) -> None:
    """Trained in bf16: 22 bytes of a parameter, two of them the copy that autocast keeps of the weights."""
    found = lacking(memory_gib, asked, micro_batch=micro_batch)
    length = f" of {asked.get('sequence_length', 32768):,} tokens"
    assert f"micro-batch {micro_batch or 1}{length}; 25.32 GiB without activations" in found.message
    assert found.message.endswith(words)


def test_the_layout_that_lacks_least_is_said_with_what_would_fit() -> None:
    """Layouts may recompute activations, so that longer sequences fit them than plain replicas."""
    found = lacking(30, {}, micro_batch=1, pipeline=None, data=1)
    assert "activations of micro-batches of 1 of 32,768 tokens and buffers included. It fits at " in found.message
    assert "tokens (model.sequenceLength)." in found.message


def lacking(memory_gib: int, asked: dict[str, int], **changes: object) -> Unplaced:
    """Why one model of 1.2 billion parameters has no plan on machines of so much memory."""
    machines = tuple(replace(m, memory_bytes=memory_gib << 30, product="small") for m in WORLD.machines[:2])
    model = Model.of(from_config(ONE_BILLION | asked), "bf16")
    found = refusal(replace(WORLD, machines=machines), model=model, precision="bf16", global_batch=8, **changes)
    assert found.reason == "NoMemory"
    return found
