"""The orders that the ring benchmark times, and what it concludes from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hulk_lab.wan.relay import Lateness

from bench.conditions import Conditions
from bench.orders import cycles, one_of_each_pattern, random_orders, rotated
from bench.predict import summary, usable
from bench.ring_order import Ring, Timed, verdicts
from bench.training import Training

NODES = ("o0", "o1", "p0", "p1", "t0", "t1")
REGION = {node: node[0] for node in NODES}
GOOD = Conditions(Lateness(num_packets=1000, num_late=9, num_lost=1), stolen_share=0.05)
LATE = Conditions(Lateness(num_packets=1000, num_late=9, num_lost=2), stolen_share=0.0)
TRAINING = Training(
    order=NODES,
    predicted_s=1.1,
    predicted_compute_s=0.1,
    predicted_communication_s=1.0,
    source="preflight",
    in_time=True,
    step_s=(9.0, 9.0, 9.0, 1.0, 1.0, 1.0),
    compute_s=(0.2, 0.2, 0.2, 0.2, 0.2, 0.2),
    losses=(5.0, 4.0, 3.0, 3.0, 3.0, 3.0),
    conditions=GOOD,
)


def test_every_cycle_once() -> None:
    found = cycles(NODES)
    assert len({rotated(order) for order in found}) == len(found) == 120


def test_patterns_cover_all_cycles() -> None:
    kept = one_of_each_pattern(cycles(NODES), REGION)
    patterns = {rotated([REGION[node] for node in order]) for order in cycles(NODES)}
    assert len(kept) == len(patterns) == 16


def test_random_orders_repeat_by_seed() -> None:
    assert random_orders(NODES, 3, seed=1) == random_orders(NODES, 3, seed=1)
    assert random_orders(NODES, 3, seed=1) != random_orders(NODES, 3, seed=2)


def test_a_ring_stands_for_its_pattern() -> None:
    timed = Timed((Ring(("o0", "o1", "p0", "p1", "t0", "t1"), 4, (1.0, 3.0, 2.0)),), GOOD)
    alike = timed.of_pattern(("p1", "p0", "t1", "t0", "o0", "o1"), REGION)
    assert alike is not None
    assert alike.median_s == 2.0
    assert timed.of_pattern(("p0", "o0", "p1", "o1", "t0", "t1"), REGION) is None


def test_warm_up_is_no_part_of_the_median() -> None:
    assert TRAINING.observed_s == 1.0
    assert TRAINING.relative_error == pytest.approx(0.1)


SLOW = replace(TRAINING, step_s=(9.0, 9.0, 9.0, 2.0, 2.0, 2.0))
LABELS = ("best timed", "name order", "region order", "kube-scheduler", "random 1 (seed 1)")
TRAININGS = {"planned": TRAINING, **dict.fromkeys(LABELS, SLOW)}


def test_ratios_name_the_fastest() -> None:
    assert verdicts(TRAININGS, rings_valid=True) == [
        "planned / best trained (planned): 1, aim at most 1.05: met",
        "planned / best timed ring, trained: 0.5, aim at most 1.05: met",
        "name order / planned: 2, aim at least 1: met",
        "region order / planned: 2, aim at least 1.4: met",
        "kube-scheduler / planned: 2",
        "random 1 (seed 1) / planned: 2",
    ]


@pytest.mark.parametrize(
    ("label", "rings_valid", "num_silent"),
    [
        pytest.param("planned", True, 6, id="the planned run: nothing can be said"),
        pytest.param("name order", True, 1, id="another run: nothing can be said of it"),
        pytest.param("", False, 1, id="the rings: nobody knows which is best"),
    ],
)
def test_an_invalid_run_gives_no_verdict(label: str, rings_valid: bool, num_silent: int) -> None:
    trainings = {name: replace(run, conditions=LATE if name == label else GOOD) for name, run in TRAININGS.items()}
    *sentences, last = verdicts(trainings, rings_valid)
    assert sum("no verdict" in sentence for sentence in sentences) == num_silent
    assert last.endswith(f"INVALID: {label or 'the rings' + chr(39) + ' timing'}")


def test_an_invalid_run_that_seems_fastest_leaves_open_whether_the_plan_is() -> None:
    fast = replace(TRAINING, step_s=(9.0, 9.0, 9.0, 0.5, 0.5, 0.5), conditions=LATE)
    assert verdicts({**TRAININGS, "name order": fast}, rings_valid=True)[0] == (
        "planned / best trained (name order): no verdict, aim at most 1.05"
    )


@pytest.mark.parametrize(
    ("name", "row", "counts"),
    [
        ("good", TRAINING, True),
        ("late packets", replace(TRAINING, conditions=LATE), False),
        ("others took the processors", replace(TRAINING, conditions=replace(GOOD, stolen_share=0.06)), False),
        ("predicted too late", replace(TRAINING, in_time=False), False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_that_count(name: str, row: Training, counts: bool) -> None:
    assert usable(row) is counts
    assert summary([row], 2)[0].startswith("1 of 2 rows valid" if counts else "no valid row of 2")
