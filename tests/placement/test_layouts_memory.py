"""What would do where memory is what lacks: the fewest machines, by the figures that plans are judged by."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from depth import num_examples
from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.cost.memory import cell_memory
from hulk_placement.layouts.fewest import Fit, Lack, fewest_machines
from hulk_placement.layouts.place import place
from hulk_placement.layouts.space import space_of
from hulk_placement.model import Layer, Model
from hulk_placement.model.times import LayerTimes, TimesRow
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.training_memory import NO_OVERHEAD, TrainingMemory
from hulk_placement.workload import Workload
from hypothesis import given, settings
from hypothesis import strategies as st

MIB = 1 << 20
MEMORY_BYTES = 100_000 * MIB
QUICK = Budget(iterations=3_000)


SHARED = {"tensor_bytes": 1_000, "num_tensor_allreduces": 2}
"""What ranks that share a layer send each other: known, so that a tensor degree may be chosen."""


def cluster(num_machines: int, num_accelerators: int) -> Topology:
    machines = tuple(
        Machine(f"a{n}", "a", num_accelerators=num_accelerators, memory_bytes=MEMORY_BYTES, flops_per_s=1e12)
        for n in range(num_machines)
    )
    return Topology(machines, region_links={("a", "a"): Link(1e-4, 1e9)})


def training(trained: Model, topology: Topology, **asked: object) -> Workload:
    room = {machine.name: machine.num_accelerators for machine in topology.machines}
    most = sum(room.values())
    job = Workload("team/job", trained, 3, room, max_workers=most, pipeline=None, tensor=None)
    return replace(job, **asked)  # type: ignore[arg-type]


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Up to four layers, of which an accelerator's memory holds few; the last may use the first one's parameters."""
    num = draw(st.integers(2, 4))
    layers = [
        Layer(
            f"l{n}",
            draw(st.integers(100, 4_500)) * MIB,
            1e9,
            2e9,
            output_bytes=draw(st.integers(0, 5_000)) * MIB,
            activation_bytes=draw(st.integers(0, 40_000)) * MIB,
            **SHARED,
        )
        for n in range(num)
    ]
    if draw(st.booleans()):
        layers[-1] = replace(layers[-1], tied_to=0, tied_parameters=layers[0].num_parameters)
    return Model(tuple(layers))


def fitting_plans(job: Workload, num_machines: int, num_accelerators: int) -> Iterator[Plan]:
    """Every plan with equal shares that so many machines have the accelerators and the memory for."""
    num_layers = job.model.num_layers
    for tensor in (1, 2)[:num_accelerators]:
        cells = num_machines * (num_accelerators // tensor)
        for stages in range(1, min(cells, num_layers) + 1):
            for data in range(1, min(cells // stages, job.global_batch) + 1):
                for cuts in itertools.combinations(range(1, num_layers), stages - 1):
                    for recompute in (False, True):
                        plan = Plan(
                            job.key,
                            1,
                            tuple(WorkerSlot("a0", "a", tensor) for _ in range(data * stages)),
                            tuple(job.global_batch // data + (r < job.global_batch % data) for r in range(data)),
                            1,
                            1,
                            NOT_PREDICTED,
                            Layout(data, stages, tensor),
                            stages=(0, *cuts),
                            recompute=recompute,
                        )
                        held = [cell_memory(plan, job, r, s).total for r in range(data) for s in range(stages)]
                        if max(held) <= MEMORY_BYTES:
                            yield plan


@settings(max_examples=num_examples(60), deadline=None)
@given(models(), st.sampled_from([1, 2]))
def test_fewer_machines_than_are_said_hold_no_layout_and_so_many_do(trained: Model, num_accelerators: int) -> None:
    one = cluster(1, num_accelerators)
    job = training(trained, one)
    ground = Ground.of(job, one, one.machines)
    found = fewest_machines(ground, space_of(ground), one.machines[0])
    most = trained.num_layers * job.global_batch
    num = found.num_machines if isinstance(found, Fit) else most + 1
    assert not any(fitting_plans(job, num - 1, num_accelerators))
    if not isinstance(found, Fit):
        return
    there = cluster(num, num_accelerators)
    plan = place(training(trained, there), there, QUICK)
    assert isinstance(plan, Plan), plan
    assert plan.prediction.memory_bytes <= MEMORY_BYTES


def equal_layers(parameters: int, num: int = 4) -> Model:
    """Layers of so many Mi parameters, of 20 bytes each with AdamW, that send 1,000 MiB and keep 2,000 MiB."""
    return Model(
        tuple(Layer(f"l{n}", parameters * MIB, 1e9, 2e9, 1_000 * MIB, 2_000 * MIB, **SHARED) for n in range(num))
    )


@pytest.mark.parametrize(
    ("parameters", "num_layers", "num_accelerators", "said"),
    [
        # 80,000 MiB a layer: one on each accelerator, although 320,000 MiB are less than four times 100,000
        (4_000, 4, 1, "At least 4 accelerators of 97.66 GiB (unknown) would do."),
        # 120,000 MiB a layer: split in two, one on each machine
        (6_000, 3, 2, "At least 3 machines of 2 accelerators of 97.66 GiB (unknown) would do."),
        (6_000, 3, 1, "would do: layer 0 (l0) alone needs 119.14 GiB of one."),
    ],
)
def test_what_would_do_is_said(parameters: int, num_layers: int, num_accelerators: int, said: str) -> None:
    there = cluster(2, num_accelerators)
    found = place(training(equal_layers(parameters, num_layers), there), there, QUICK)
    assert isinstance(found, Unplaced)
    assert found.reason == "NoMemory"
    assert said in found.message


@pytest.mark.parametrize(
    ("tensor", "framework_mib", "said"),
    [
        (None, 0, "layer 0 (l0) alone needs 108.40 GiB of one, split among 2."),  # (220,000 + 2,000) / 2 MiB
        (1, 0, "layer 0 (l0) alone needs 216.80 GiB of one."),
        (1, 1_024, "layer 0 (l0) alone needs 217.80 GiB of one, 1.00 GiB of them the framework's and its allocator's."),
        (1, 102_400, "the framework alone takes 100.00 GiB of one, before any tensor."),
    ],
)
def test_what_no_accelerator_holds_is_said_with_its_degree_and_its_framework(
    tensor: int | None, framework_mib: int, said: str
) -> None:
    there = cluster(2, 2)
    memory = TrainingMemory(framework_bytes=framework_mib * MIB)
    found = place(training(equal_layers(11_000), there, tensor=tensor, memory=memory), there, QUICK)
    assert isinstance(found, Unplaced)
    assert f"would do: {said}" in found.message


def of_workers(num_workers: int, topology: Topology, each: int = 4, **asked: object) -> Workload:
    """As `training`, of so many workers at most."""
    room = {machine.name: 10 for machine in topology.machines}  # pods; accelerators are counted by the planner
    asked = {"accelerators_per_worker": each, "max_workers": num_workers, **asked}
    return training(equal_layers(4_000, 9), topology, candidates=room, **asked)


def test_machines_that_would_do_are_of_whole_workers_and_the_limit_is_said_in_both() -> None:
    """Nine layers of 80,000 MiB: nine accelerators would do, but are no whole workers of four; twelve are."""
    there = cluster(1, 6)  # room for one worker of four
    for num_workers, over in (
        (2, " The workload may have 8 accelerators (2 workers of 4), and this takes 12."),
        (3, ""),
    ):
        found = place(of_workers(num_workers, there), there, QUICK)
        assert isinstance(found, Unplaced)
        assert found.reason == "NoMemory"
        assert "all accelerators for workers of 4 together have 390.62 GiB." in found.message
        assert found.message.endswith(f"At least 3 machines of 4 accelerators of 97.66 GiB (unknown) would do.{over}")


def test_a_limit_is_said_where_more_machines_would_not_help() -> None:
    """Eight accelerators are more than there are, and less than the nine layers take."""
    there = cluster(1, 4)
    found = place(of_workers(8, there, each=1), there, QUICK)
    assert isinstance(found, Unplaced)
    assert found.message.endswith("would do. The workload may have 8 accelerators, and this takes 9.")


def test_accelerators_that_make_no_whole_worker_are_not_free_for_one() -> None:
    there = Topology((*cluster(2, 3).machines, replace(cluster(1, 6).machines[0], name="b")))
    found = place(of_workers(2, there, min_workers=2), there, QUICK)
    assert found == Unplaced(
        "NotEnoughAccelerators",
        "Needs at least 8 accelerators; 4 are free for workers of 4: 2 without 4 free accelerators (a0, a1); "
        "the largest machine has 6.",
    )


def test_machines_whose_cpu_or_memory_holds_no_pod_are_told_as_such() -> None:
    there = cluster(2, 4)
    asked = replace(of_workers(2, there, each=1, min_workers=2), candidates={"a0": 0, "a1": 1})
    found = place(asked, there, QUICK)
    assert found == Unplaced(
        "NotEnoughAccelerators",
        "Needs at least 2 accelerators; 1 is free: 1 whose free CPU, memory or other resources hold no worker's pod "
        "(a0).",
    )


def test_memory_is_named_where_it_would_hold_the_state_and_no_layer_more() -> None:
    """Four layers of 60,000 MiB: three accelerators have 300,000, but one of them needs two layers' 120,000.

    The last stage with the inputs of one micro-batch to both layers, 2,000 MiB, and one layer's activations, 2,000 MiB.
    """
    there = cluster(3, 1)
    found = place(training(equal_layers(3_000), there), there, QUICK)
    assert isinstance(found, Unplaced)
    assert found.reason == "NoMemory"
    assert re.search(r"None of \d+ layouts evaluated fits: the one that lacks least, 1 x 3 x 1 ", found.message)
    assert "needs 121.09 GiB of an accelerator of a" in found.message
    assert "At least 4 accelerators" in found.message


def test_no_number_of_machines_helps_where_one_stage_is_asked_for() -> None:
    there = cluster(4, 1)
    found = place(training(equal_layers(4_000), there, pipeline=1), there, QUICK)
    assert isinstance(found, Unplaced)
    assert found.reason == "NoMemory"
    assert found.message.endswith("No number of accelerators of 97.66 GiB (unknown) would do with pipeline 1.")


def test_the_layer_that_lacks_most_is_named() -> None:
    there = cluster(1, 1)
    layers = (*equal_layers(1_000).layers, Layer("head", 7_000 * MIB, 1e9, 2e9, 0, 5_000 * MIB))
    ground = Ground.of(training(Model(layers), there), there, there.machines)
    assert fewest_machines(ground, space_of(ground), there.machines[0]) == Lack(
        4, 1, (7_000 * 20 + 5_000) * MIB, NO_OVERHEAD
    )


def test_no_tensor_degree_is_chosen_of_which_nothing_is_known() -> None:
    """120,000 MiB a layer fit on two accelerators only; nobody knows what these send each other.

    It is enough that the degree is asked for, or that its seconds were measured.
    """
    there = cluster(3, 2)
    unknown = Model(tuple(replace(layer, tensor_bytes=0) for layer in equal_layers(6_000, 3).layers))
    row = TimesRow("any", 1, 2, (1.0,) * 3, (2.0,) * 3)
    measured = replace(unknown, times=LayerTimes((row, replace(row, tensor=1))))
    found = place(training(unknown, there), there, QUICK)
    assert isinstance(found, Unplaced)
    assert found.reason == "NoMemory"
    for known in (training(unknown, there, tensor=2), training(measured, there)):
        plan = place(known, there, QUICK)
        assert isinstance(plan, Plan)
        assert plan.layout.tensor == 2


def test_a_number_of_stages_that_is_no_power_of_two_is_found_where_only_it_fits() -> None:
    """Seven layers of 120,000 MiB, each split in two inside a machine: seven stages of seven machines."""
    there = cluster(7, 2)
    plan = place(training(equal_layers(6_000, 7), there), there, QUICK)
    assert isinstance(plan, Plan)
    assert (plan.layout.data, plan.layout.pipeline, plan.layout.tensor) == (1, 7, 2)
    assert math.isfinite(plan.prediction.step_s)
