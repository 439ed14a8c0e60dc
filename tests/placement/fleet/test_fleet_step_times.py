"""Step times: the paper's formula, the one evaluator, and what observations do to its predictions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from fleet_cases import job
from hulk_placement.cost.predict import predict
from hulk_placement.fleet.decide import decide
from hulk_placement.fleet.predicted import PredictedStepTimes, plan_on
from hulk_placement.fleet.types import Job, Observed, Ring, Settings
from hulk_placement.model import Model
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

from bench.fleet_simulator.step_times import PaperStepTimes

TWO = Topology(
    tuple(Machine(name, name[0], num_accelerators=4, flops_per_s=1e12) for name in ("a0", "a1", "b0", "b1")),
    region_links={
        ("a", "a"): Link(0.0002, 1e9),
        ("b", "b"): Link(0.0002, 1e9),
        ("a", "b"): Link(0.1, 5e6),
        ("b", "a"): Link(0.1, 5e6),
    },
)


def live(key: str, **changes: object) -> Job:
    """A job with a workload of 64 sequences a step."""
    workload = Workload(
        key=key,
        model=Model.of_totals(num_parameters=262_144, flops_per_sequence=1e11, activation_bytes_per_sequence=1000),
        global_batch=64,
        candidates={machine.name: 64 for machine in TWO.machines},
        max_workers=8,
        sync=Sync("ring"),
    )
    changed = {
        "workload": workload,
        "work_per_step": 64.0,
        "max_workers": 8,
        "ring": None,
        "allow_unknown_links": False,
    } | changes
    return job(key, 64e4, **changed)


def test_the_papers_step_time() -> None:
    ring = Ring(600.0, 0.1, 5, 0.25, latency_s=0.05, bandwidth_bytes_per_s=100.0, reduce_bytes_per_s=1000.0)
    one = job("j", ring=ring)
    times = PaperStepTimes()
    assert times.step_s(one, {"m": 1}) == pytest.approx(0.8)
    assert times.step_s(one, {"m": 2, "n": 1}) == pytest.approx(0.8 + 400 * (2 / 100 + 1 / 1000))
    with pytest.raises(ValueError, match="job k: the paper's step time needs its ring"):
        times.step_s(job("k", ring=None), {"m": 1})


def test_predicted_steps_are_those_of_the_one_evaluator() -> None:
    one, mapping = live("j"), {"b0": 1, "a1": 2}
    assert one.workload is not None
    plan = plan_on(one.workload, TWO, mapping)
    assert plan is not None
    assert plan.rank_machines == ("a1", "a1", "b0")
    assert PredictedStepTimes(TWO).step_s(one, mapping) == predict(plan, one.workload, TWO).step_s


def test_a_number_of_workers_that_no_layout_has_takes_for_ever() -> None:
    one = live("j")
    assert one.workload is not None
    times = PredictedStepTimes(TWO)
    assert math.isinf(times.step_s(replace(one, workload=replace(one.workload, global_batch=2)), {"a0": 4}))
    staged = replace(one.workload, key="s", pipeline=2)
    assert math.isinf(times.step_s(replace(one, key="s", workload=staged), {"a0": 3}))
    with pytest.raises(ValueError, match="job k: a step is predicted of its workload"):
        times.step_s(job("k"), {"a0": 1})


def test_what_was_observed_replaces_the_prediction_and_corrects_the_others() -> None:
    one, here, there = live("j"), {"a0": 2}, {"a0": 4}
    plain = PredictedStepTimes(TWO)
    seen = plain.with_observed({"j": Observed(here, 3 * plain.step_s(one, here))})
    assert seen.step_s(one, here) == pytest.approx(3 * plain.step_s(one, here))
    assert seen.step_s(one, there) == pytest.approx(3 * plain.step_s(one, there))
    assert seen.step_s(live("k"), here) == plain.step_s(live("k"), here)
    gone = plain.with_observed({"j": Observed({"lost": 2}, 9.0)})
    assert gone.step_s(one, here) == plain.step_s(one, here)
    with pytest.raises(ValueError, match=r"observed step of 0.0 s"):
        Observed(here, 0.0)


def test_a_live_decision_keeps_rings_off_the_slow_link() -> None:
    jobs = [live("j"), live("k")]
    found = decide(0.0, jobs, TWO, {}, PredictedStepTimes(TWO), Settings())
    for mapping in found.workers.values():
        assert len({machine[0] for machine in mapping}) == 1
    assert sorted(sum(mapping.values()) for mapping in found.workers.values()) == [8, 8]
    assert found.achieved == pytest.approx(found.bound)


def test_an_observation_changes_who_gets_the_machines() -> None:
    one = Topology(TWO.machines[:1], region_links=TWO.region_links)
    jobs, plain = (
        [live("j", max_workers=4, min_workers=4), live("k", max_workers=4, min_workers=4)],
        PredictedStepTimes(one),
    )
    assert set(decide(0.0, jobs, one, {}, plain).workers) == {"j"}
    slow = plain.with_observed({"j": Observed({"a0": 4}, 10 * plain.step_s(jobs[0], {"a0": 4}))})
    assert set(decide(0.0, jobs, one, {"j": {"a0": 4}}, slow).workers) == {"k"}
