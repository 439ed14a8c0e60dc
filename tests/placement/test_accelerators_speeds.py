"""Seconds of layers by the best that is known of each machine, and what the searches over whole models make of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hulk_placement.accelerators import look_up
from hulk_placement.cost.compute import is_any_known, is_calibrated, layer_seconds, speeds, work
from hulk_placement.cost.efficiency import layer_seconds as by_curve
from hulk_placement.cost.known import ASSUMED_FLOPS_PER_S, Source, kinds_of
from hulk_placement.model import Layer, LayerTimes, Model, TimesRow
from hulk_placement.solve import solve
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given
from hypothesis import strategies as st
from worlds import workload

H100, A100, T4 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB", "Tesla-T4"
LAYERS = (
    Layer("embedding", 10**7, 0.0, 0.0, 10**6, 10**6),
    *(Layer(f"block.{number}", 10**8, 4e11, 8e11, 10**6, 10**8) for number in range(3)),
    Layer("head", 10**5, 1e11, 2e11, 0, 10**8, tied_to=0, tied_parameters=10**7),
)
TIMES = LayerTimes((TimesRow(T4, 2, 1, (0.1, 0.2, 0.2, 0.2, 0.1), (0.1, 0.4, 0.4, 0.4, 0.3)),))


def model(times: LayerTimes | None = None) -> Model:
    return Model(LAYERS, times=times)


def world(**products: str) -> Topology:
    """Machines by name and product in one region."""
    machines = tuple(Machine(name, "r", product=product) for name, product in products.items())
    return Topology(machines, region_links={("r", "r"): Link(0.0002, 1e9)})


def with_speed(topology: Topology, **flops_per_s: float) -> Topology:
    machines = (replace(m, flops_per_s=flops_per_s.get(m.name, m.flops_per_s)) for m in topology.machines)
    return replace(topology, machines=tuple(machines))


def job(topology: Topology, **changes: object) -> Workload:
    return workload(topology, **{"model": model(), "precision": "bf16", "micro_batch": 2, **changes})


def estimate(product: str, micro_batch: float = 2, tensor: int = 1) -> float:
    """FLOP/s of one accelerator by the curve."""
    accelerator = look_up(product)
    assert accelerator is not None
    passes = by_curve(accelerator, "bf16", LAYERS, micro_batch, tensor)
    return micro_batch * model().flops_per_sequence / float(sum(side.sum() for side in passes))


PAIR = world(a=A100, b=A100, t=T4, x="cpu", y="cpu")


@pytest.mark.parametrize(
    ("name", "topology", "changes", "expected"),
    [
        ("nothing", world(x="cpu", y="gpu"), {}, {"x": (Source.ASSUMED, 1e12), "y": (Source.ASSUMED, 1e12)}),
        ("data sheets", PAIR, {}, {"a": (Source.DATA_SHEET, estimate(A100)), "t": (Source.DATA_SHEET, estimate(T4))}),
        (
            "an unknown product among known ones",
            world(a=A100, b=A100, t=T4, x="cpu"),
            {},
            {"x": (Source.OTHERS, estimate(A100))},
        ),
        ("declared", with_speed(PAIR, a=1e13), {}, {"a": (Source.DECLARED, 1e13), "b": (Source.PRODUCT, 1e13)}),
        (
            "measured before declared, there and elsewhere",
            with_speed(PAIR, a=1e13, b=2e13),
            {"flops_per_s": {"a": 3e13}},
            {"a": (Source.MEASURED, 3e13), "b": (Source.DECLARED, 2e13)},
        ),
        (
            "what was measured of the product before what was declared of it",
            with_speed(world(a=A100, b=A100, c=A100), a=1e13),
            {"flops_per_s": {"b": 3e13}},
            {"c": (Source.PRODUCT, 3e13)},
        ),
        (
            "other models there before others of its product, after what is declared",
            with_speed(world(a=A100, b=A100, c=A100, d=A100, t=T4), c=1e13),
            {"flops_per_s": {"a": 3e13}, "likely_flops_per_s": {"a": 1e9, "b": 2e13, "c": 1e9}},
            {
                "a": (Source.MEASURED, 3e13),
                "b": (Source.LIKELY, 2e13),
                "c": (Source.DECLARED, 1e13),
                "d": (Source.PRODUCT, 3e13),
            },
        ),
        (
            "other models alone: products compare by what they reached",
            PAIR,
            {"likely_flops_per_s": {"a": estimate(A100) / 4}},
            {"b": (Source.PRODUCT, estimate(A100) / 4), "t": (Source.DATA_SHEET, estimate(T4) / 4)},
        ),
        (
            "another product reaches half of its curve: so does this one",
            PAIR,
            {"flops_per_s": {"a": estimate(A100) / 2}},
            {"t": (Source.DATA_SHEET, estimate(T4) / 2), "x": (Source.OTHERS, estimate(A100) / 2)},
        ),
        (
            "a profile before everything",
            with_speed(PAIR, t=1e9),
            {"model": model(TIMES), "flops_per_s": {"t": 2e9, "x": 3e9}},
            {"t": (Source.PROFILE, model().flops_per_sequence), "y": (Source.PRODUCT, 3e9)},  # 1.2 s a sequence
        ),
    ],
)
def test_the_best_that_is_known(
    name: str, topology: Topology, changes: dict[str, object], expected: dict[str, tuple[Source, float]]
) -> None:
    one = job(topology, **changes)
    names = [machine.name for machine in topology.machines]
    found = kinds_of(one, topology, names)
    kinds = {machine: found.kinds[number] for machine, number in zip(names, found.kind_of, strict=True)}
    for machine, (source, flops_per_s) in expected.items():
        assert kinds[machine].source is source, name
        rate = flops_per_s / 1.2 if source is Source.PROFILE else flops_per_s
        assert kinds[machine].flops_per_s == pytest.approx(rate), name
        assert speeds(one, topology, [machine]) == {machine: kinds[machine].flops_per_s}


def test_seconds_by_source() -> None:
    """(machines, layers): profiled, as measured in proportion to the curve, by the curve, in proportion to FLOPs."""
    topology = world(t=T4, a=A100, h=H100, x="cpu")
    one = job(topology, model=model(TIMES), flops_per_s={"a": 1e13, "x": 1e12})
    found = layer_seconds(one, topology, ["x", "t", "a", "h", "t"], micro_batch=4)
    assert found.forward_s.shape == found.backward_s.shape == (5, len(LAYERS))
    assert found.kinds_forward_s.shape == (4, len(LAYERS))
    assert found.forward_s[1] == pytest.approx(2 * np.array(TIMES.rows[0].forward_s))
    assert np.array_equal(found.backward_s[1], found.backward_s[4])
    total = (found.forward_s + found.backward_s).sum(axis=1)
    assert total[2] == pytest.approx(4 * one.model.flops_per_sequence / 1e13)
    assert total[0] == pytest.approx(4 * one.model.flops_per_sequence / 1e12)
    assert found.forward_s[0, 1] / found.forward_s[0, 4] == pytest.approx(2)  # as profiled on a T4
    accelerator = look_up(H100)
    assert accelerator is not None
    curve = by_curve(accelerator, "bf16", LAYERS, 4)
    ratio = found.forward_s[3] / curve[0]
    assert ratio == pytest.approx(ratio[0])  # less than the curve by what the others reach of theirs
    assert found.backward_s[3] / curve[1] == pytest.approx(ratio[0])


def test_other_micro_batches_follow_the_curve_from_the_one_that_was_measured() -> None:
    topology = world(a=A100, b=A100, t=T4)
    one = job(topology, micro_batch=None, flops_per_s={"a": 1e13}, measured_micro_batch={"a": 8})
    assert {kind.micro_batch for kind in kinds_of(one, topology, "ab").kinds} == {8}
    for size, slower in ((8, 1.0), (1, estimate(A100, 8) / estimate(A100, 1))):
        found = layer_seconds(one, topology, "ab", size)
        total = (found.forward_s + found.backward_s).sum(axis=1)
        assert total == pytest.approx([slower * size * one.model.flops_per_sequence / 1e13] * 2)
    assert speeds(one, topology, "t")["t"] == pytest.approx(estimate(T4, 1) * 1e13 / estimate(A100, 8))
    nowhere = replace(one, measured_micro_batch={})
    found = layer_seconds(nowhere, topology, "ab", 1)  # holds at every size, as far as is known
    assert (found.forward_s + found.backward_s).sum() == pytest.approx(2 * one.model.flops_per_sequence / 1e13)


def test_a_tensor_degree_follows_the_curve_or_divides_flops() -> None:
    topology = world(a=A100, x="cpu")
    one = job(topology, flops_per_s={"a": 1e13, "x": 1e12})
    alone, four = (layer_seconds(one, topology, "ax", 2, tensor) for tensor in (1, 4))
    share = (four.forward_s + four.backward_s).sum(axis=1) / (alone.forward_s + alone.backward_s).sum(axis=1)
    assert share[1] == pytest.approx(1 / 4)
    assert share[0] == pytest.approx(estimate(A100) / estimate(A100, tensor=4))
    assert 1 / 4 < share[0] < 1


PRODUCTS = st.sampled_from([H100, A100, T4, "cpu", "gpu"])
SPEEDS = st.sampled_from([None, 1e12, 2e13])


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    products = draw(st.lists(st.tuples(PRODUCTS, SPEEDS), min_size=1, max_size=6))
    return Topology(
        tuple(Machine(f"m{n}", "r", product=product, flops_per_s=speed) for n, (product, speed) in enumerate(products))
    )


@given(machines(), st.sampled_from([1, 2, 16]), st.sampled_from([1, 2]), st.sampled_from([{}, {"m0": 3e12}]))
def test_layers_sum_up_to_what_speeds_say_and_smaller_is_never_faster(
    topology: Topology, micro_batch: int, tensor: int, measured: dict[str, float]
) -> None:
    one = job(topology, micro_batch=micro_batch, flops_per_s=measured)
    names = [machine.name for machine in topology.machines]
    speed = speeds(one, topology, names)
    found = layer_seconds(one, topology, names, micro_batch, 1)
    total = (found.forward_s + found.backward_s).sum(axis=1)
    assert total == pytest.approx(np.array([micro_batch * work(one) / speed[name] for name in names]))
    split, larger = layer_seconds(one, topology, names, micro_batch, 2), layer_seconds(one, topology, names, 32, tensor)
    assert np.all(split.forward_s <= found.forward_s * (1 + 1e-9))
    assert np.all(2 * split.forward_s >= found.forward_s * (1 - 1e-9))
    smaller = layer_seconds(one, topology, names, 16, tensor)
    assert np.all(larger.backward_s <= 2 * smaller.backward_s * (1 + 1e-9))
    assert np.all(larger.backward_s >= smaller.backward_s)


@given(machines(), st.randoms(use_true_random=False))
def test_names_and_order_of_machines_decide_nothing(topology: Topology, random: object) -> None:
    names = [machine.name for machine in topology.machines]
    other = {name: f"other-{len(names) - number}" for number, name in enumerate(names)}
    renamed = [replace(machine, name=other[machine.name]) for machine in topology.machines]
    random.shuffle(renamed)  # type: ignore[attr-defined]
    again = replace(topology, machines=tuple(renamed))
    found = layer_seconds(job(topology), topology, names, 2)
    same = layer_seconds(job(again), again, [other[name] for name in names], 2)
    assert np.array_equal(found.forward_s, same.forward_s)


@pytest.mark.parametrize(
    ("name", "topology", "measured", "any_known", "calibrated"),
    [
        ("unknown products", world(x="cpu", y="gpu"), {}, False, False),
        ("one known product: no ratio", world(a=A100, b=A100), {}, False, False),
        ("one known product and an unknown one", world(a=A100, x="cpu"), {}, False, False),
        ("two known products", world(a=A100, t=T4), {}, True, False),
        ("one of two measured", world(a=A100, b=A100), {"a": 1e13}, True, False),
        ("both measured", world(a=A100, b=A100), {"a": 1e13, "b": 1e13}, True, True),
    ],
)
def test_what_is_known_and_what_is_calibrated(
    name: str, topology: Topology, measured: dict[str, float], any_known: bool, calibrated: bool
) -> None:
    one = job(topology, flops_per_s=measured)
    names = [machine.name for machine in topology.machines]
    assert is_any_known(one, topology) is any_known, name
    assert is_calibrated(one, topology, names) is calibrated, name
    if not any_known:
        assert len(set(speeds(one, topology, names).values())) == 1, name


def test_a_profile_counts_as_measured() -> None:
    one = job(PAIR, model=model(TIMES))
    assert is_calibrated(one, PAIR, ["t"])
    assert not is_calibrated(one, PAIR, ["t", "a"])


def test_a_profile_of_one_tensor_degree_counts_for_stages_of_that_degree() -> None:
    one = job(PAIR, model=model(LayerTimes(tuple(replace(row, tensor=2) for row in TIMES.rows))))
    assert is_calibrated(one, PAIR, ["t"], tensor=2)
    assert not is_calibrated(one, PAIR, ["t"])
    assert not is_calibrated(one, PAIR, ["t", "a"], tensor=2)


def test_a_machine_that_is_much_slower_by_its_data_sheet_is_left_out() -> None:
    topology = world(a=A100, b=A100, t=T4)
    one = job(topology, global_batch=1200, max_workers=3)
    plan = solve([one], [], topology).plans[one.key]
    assert set(plan.accelerators()) == {"a", "b"}
    assert not plan.prediction.calibrated
    assert plan.prediction.compute_s == pytest.approx(600 * one.model.flops_per_sequence / estimate(A100))


def test_one_known_product_leaves_nobody_out_and_predicts_by_its_data_sheet() -> None:
    topology = replace(world(a=A100, b=A100, c=A100), region_links={("r", "r"): Link(0.2, 1e6)})
    one = job(topology, global_batch=6, max_workers=3)
    plan = solve([one], [], topology).plans[one.key]
    assert len(plan.workers) == 3
    assert plan.prediction.compute_s == pytest.approx(2 * one.model.flops_per_sequence / estimate(A100))


def test_a_declared_memory_bandwidth_stands_before_the_data_sheets() -> None:
    topology = world(a=A100, b=A100)
    slow = replace(topology.machines[1], memory_bandwidth_bytes_per_s=1e11)
    topology = replace(topology, machines=(topology.machines[0], slow))
    found = speeds(job(topology), topology, "ab")
    assert found["a"] > 2 * found["b"] > 0


def test_a_model_known_by_seconds_alone_has_speeds_that_give_them_back() -> None:
    silent = tuple(replace(layer, forward_flops=0.0, backward_flops=0.0) for layer in LAYERS)
    topology = world(t=T4, a=A100, x="cpu")
    one = job(topology, model=Model(silent, times=TIMES))
    names = ["t", "a", "x"]
    found_speeds = speeds(one, topology, names)
    assert [2 * work(one) / found_speeds[name] for name in names] == pytest.approx([2.4] * 3)
    found = layer_seconds(one, topology, names, 2)
    assert (found.forward_s + found.backward_s).sum(axis=1) == pytest.approx([2.4] * 3)


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="speed on a measured with micro-batch 0 must be >= 1"):
        job(PAIR, measured_micro_batch={"a": 0})
    with pytest.raises(ValueError, match="micro-batch 0 must be > 0 and tensor degree 1 >= 1"):
        layer_seconds(job(PAIR), PAIR, ["a"], 0)


def test_nothing_known_is_one_teraflop_for_all() -> None:
    topology = world(x="cpu", y="gpu")
    assert set(speeds(job(topology), topology, "xy").values()) == {ASSUMED_FLOPS_PER_S}
