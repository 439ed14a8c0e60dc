"""Hulk's decisions beside exact ones and beside the relaxation's bound, on small cases."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from depth import num_examples
from fleet_cases import decide, fleets, job, machines
from hulk_placement.fleet.problem import Problem, ask
from hulk_placement.fleet.types import Job, Settings
from hulk_placement.fleet.utility import Utility, UtilityKind
from hulk_placement.fleet.worth import all_worths, mapping_gain
from hulk_placement.topology import Topology
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.fleet_simulator.policies.paper import decompose, overruns
from bench.fleet_simulator.step_times import PaperStepTimes

TIMES = PaperStepTimes()
ALIKE = Settings(lookahead_slots=1000, slot_s=10.0)


def one_priority(jobs: list[Job]) -> list[Job]:
    return [replace(one, priority=0) for one in jobs]


@settings(max_examples=num_examples(60), deadline=None)
@given(fleet=fleets())
def test_no_decision_gains_more_than_the_exact_one_nor_that_more_than_the_bound(
    fleet: tuple[Topology, list[Job]],
) -> None:
    topology, jobs = fleet[0], one_priority(fleet[1])
    best = decide(0.0, jobs, topology, {}, TIMES, replace(ALIKE, policy="exact"))
    ours = decide(0.0, jobs, topology, {}, TIMES, ALIKE)
    slack = 1e-6 * abs(best.bound) + 1e-12
    assert ours.achieved <= best.achieved + slack
    assert best.achieved <= best.bound + slack
    assert ours.bound == pytest.approx(best.bound)


@settings(max_examples=num_examples(60), deadline=None)
@given(fleet=fleets(), num_held=st.integers(1, 6))
def test_where_jobs_run_no_decision_gains_more_than_the_exact_one_either(
    fleet: tuple[Topology, list[Job]], num_held: int
) -> None:
    topology, jobs = fleet[0], one_priority(fleet[1])
    held = decide(0.0, jobs[:num_held], topology, {}, TIMES, ALIKE).workers
    best = decide(0.0, jobs, topology, held, TIMES, replace(ALIKE, policy="exact"))
    ours = decide(0.0, jobs, topology, held, TIMES, ALIKE)
    assert ours.achieved <= best.achieved + 1e-6 * abs(best.bound) + 1e-12


@pytest.mark.parametrize("held", [{"m0": 2}, {"m1": 2}, {"m0": 1, "m1": 1}])
def test_by_the_exact_decision_a_job_stays_where_a_restart_gains_nothing(held: dict[str, int]) -> None:
    one = job("a", min_workers=2, max_workers=2, restart_s=300.0)
    exact = replace(ALIKE, policy="exact")
    assert decide(0.0, [one], machines(2, 2), {"a": held}, TIMES, exact).workers == {"a": held}


def test_the_exact_decision_is_that_of_trying_all_numbers_of_workers() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        weights = rng.uniform(1, 9, size=3)
        jobs = [
            job(f"j{n}", 500.0, utility=Utility(UtilityKind.SQRT, weight=float(w)), min_workers=2, max_workers=4)
            for n, w in enumerate(weights)
        ]
        problem = ask(0.0, jobs, machines(7), {}, TIMES, ALIKE)
        assert decided(problem, "exact") == pytest.approx(tried(problem, 7))


def tried(problem: Problem, num: int) -> float:
    """The most that any numbers of workers gain on one machine."""
    worths = all_worths(problem)
    options = [0, 2, 3, 4]
    return max(
        sum(gain(problem, worths, one.key, count) for one, count in zip(problem.jobs, counts, strict=True))
        for counts in itertools.product(options, repeat=len(problem.jobs))
        if sum(counts) <= num
    )


def gain(problem: Problem, worths: dict, key: str, count: int) -> float:  # type: ignore[type-arg]
    return float(np.exp(worths[key].log_scale) * mapping_gain(problem, worths[key], {"m0": count})) if count else 0.0


def decided(problem: Problem, policy: str) -> float:
    config = replace(problem.settings, policy=policy)
    return decide(problem.now_s, problem.jobs, problem.topology, {}, TIMES, config).achieved


def test_local_decisions_are_close_to_exact_ones_in_the_mean() -> None:
    rng, ratios = np.random.default_rng(11), []
    for _ in range(40):
        jobs = [
            job(
                f"j{n}",
                float(rng.uniform(100, 3000)),
                utility=Utility(UtilityKind.SQRT, weight=float(rng.uniform(1, 9))),
                min_workers=int(least := rng.integers(1, 4)),
                max_workers=int(least + rng.integers(0, 5)),
                accelerators_per_worker=int(rng.integers(1, 3)),
            )
            for n in range(6)
        ]
        problem = ask(0.0, jobs, machines(4, 3, 8), {}, TIMES, ALIKE)
        ratios.append(decided(problem, "gadget") / decided(problem, "exact"))
    assert np.mean(ratios) > 0.97
    assert min(ratios) > 0.85


def test_the_exact_decision_refuses_what_is_too_large() -> None:
    jobs = [job(f"j{n}") for n in range(100)]
    with pytest.raises(ValueError, match=r"100 jobs x 50 machines are 5000, more than 4000"):
        decide(0.0, jobs, machines(*[1] * 50), {}, TIMES, Settings(policy="exact"))


@given(parts=st.lists(st.floats(0, 3), min_size=1, max_size=6), size=st.integers(1, 4))
def test_parts_of_workers_are_written_as_whole_mappings(parts: list[float], size: int) -> None:
    most = np.ceil(np.array(parts)).astype(np.int64)
    share = np.array(parts) * min(1.0, size / max(sum(parts), 1e-9))
    found = decompose(share, size, most)
    assert sum(weight for weight, _ in found) <= 1 + 1e-6
    spent = np.zeros(len(parts))
    for weight, mapping in found:
        assert sum(mapping.values()) == size
        for machine, count in mapping.items():
            assert 1 <= count <= most[machine]
            spent[machine] += weight * count
    assert np.all(spent <= share + 1e-5)


def test_the_published_policy_tells_what_it_exceeds_and_the_repaired_one_exceeds_nothing() -> None:
    jobs = [job(f"j{n}", min_workers=2, max_workers=2, utility=Utility(weight=1 + n / 10)) for n in range(5)]
    found, over = 0, 0
    for seed in range(40):
        config = Settings(policy="gadget-paper", seed=seed)
        asked = (0.0, jobs, machines(3, 3, 3), {}, TIMES, config)
        decision = decide(*asked)
        held = dict.fromkeys(("m0", "m1", "m2"), 0)
        for mapping in decision.workers.values():
            for machine, count in mapping.items():
                held[machine] += count
        wide = {machine for machine, count in held.items() if count > 3}
        assert {text.split(":")[0] for text in overruns(ask(*asked), decision.workers)} == wide
        over += bool(wide)
        found += len(decision.workers)
        repaired = decide(*asked[:-1], replace(config, policy="gadget-repaired"))
        assert len(repaired.workers) == 4
        assert not overruns(ask(*asked), repaired.workers)
    assert over > 0
    assert found > 40 * 3
