"""Each policy's known optimum on a case that one can check by hand, by the same simulator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleet_cases import SECOND, decide, job, machines, sigmoid
from hulk_placement.fleet.types import Job, Ring, Settings
from hulk_placement.fleet.utility import Utility, UtilityKind
from hulk_placement.topology import Topology

from bench.fleet_simulator import Outcome, Scenario, simulate
from bench.fleet_simulator.scenario import Speeds
from bench.fleet_simulator.speeds import Alone, Contended
from bench.fleet_simulator.step_times import PaperStepTimes

TIMES = PaperStepTimes()


def run(policy: str, topology: Topology, jobs: list[Job], speeds: Speeds | None = None, **settings: float) -> Outcome:
    config = Settings(policy=policy, slot_s=settings.pop("slot_s", 10.0), **settings)  # type: ignore[arg-type]
    times = speeds if isinstance(speeds, Contended) else TIMES
    return simulate(Scenario(topology, jobs, config, times, speeds or Alone(TIMES, topology)))


def test_fifo_serves_in_the_order_of_arrival() -> None:
    jobs = [job(f"j{n}", 10.0 * (3 - n), arrived_s=float(n)) for n in range(3)]
    found = run("fifo", machines(1), jobs)
    assert found.completions_s == pytest.approx({"j0": 30.0, "j1": 49.0, "j2": 58.0})
    assert found.makespan_s == pytest.approx(60.0)


def test_fifo_asks_for_a_fixed_number_of_workers_and_nobody_overtakes() -> None:
    jobs = [job("a", 40.0, max_workers=4), job("b", 40.0, max_workers=4, arrived_s=1), job("c", 1.0, arrived_s=2)]
    config = Settings(policy="fifo", fixed_workers={"a": 3, "b": 3})
    found = decide(2.0, jobs, machines(4), {}, TIMES, config)
    assert found.workers == {"a": {"m0": 3}}


def test_shortest_remaining_time_has_the_least_mean_completion() -> None:
    jobs = [job("long", 60.0), job("middle", 30.0), job("short", 10.0)]
    found = run("srpt", machines(1), jobs)
    assert found.completions_s == pytest.approx({"short": 10.0, "middle": 40.0, "long": 100.0})  # mean 50: the least
    arriving = [job("long", 60.0), job("short", 5.0, arrived_s=20.0)]
    assert run("srpt", machines(1), arriving).completions_s == pytest.approx({"short": 5.0, "long": 65.0})


def test_dominant_resource_fairness_is_max_min() -> None:
    jobs = [job("a", max_workers=2), job("b", max_workers=10), job("c", max_workers=10)]
    found = decide(0.0, jobs, machines(12), {}, TIMES, Settings(policy="drf")).workers
    assert {key: sum(mapping.values()) for key, mapping in found.items()} == {"a": 2, "b": 5, "c": 5}
    teams = [replace(one, namespace=one.key) for one in jobs]
    weighed = decide(0.0, teams, machines(12), {}, TIMES, Settings(policy="drf", shares={"b": 4.0})).workers
    assert {key: sum(mapping.values()) for key, mapping in weighed.items()} == {"a": 2, "b": 8, "c": 2}


def test_fairness_counts_accelerators_not_workers() -> None:
    jobs = [job("wide", max_workers=9, accelerators_per_worker=2), job("narrow", max_workers=9)]
    found = decide(0.0, jobs, machines(8), {}, TIMES, Settings(policy="drf")).workers
    assert {key: sum(mapping.values()) for key, mapping in found.items()} == {"wide": 2, "narrow": 4}


def test_least_attained_service_lets_a_new_job_past_one_that_has_had_much() -> None:
    jobs = [job("old", 500.0), job("new", 20.0, arrived_s=100.0)]
    found = run("las", machines(1), jobs)  # its first queue is for less than 8 slots of 10 s
    assert found.completions_s == pytest.approx({"new": 20.0, "old": 520.0})


def test_sjf_bco_gives_each_ring_a_machine_of_its_own_and_ends_as_early_as_can_be() -> None:
    ring = Ring(gradient_bytes=100.0, forward_s=0.0, samples=1, backward_s=1.0)
    jobs = [job(f"j{n}", 40.0, min_workers=4, max_workers=4, ring=ring) for n in range(4)]
    contended = Contended(link_bytes_per_s=10.0, inside_bytes_per_s=1e9)
    found = run("sjf-bco", machines(4, 4), jobs, contended)
    assert found.makespan_s == pytest.approx(20.0, rel=1e-5)  # two waves of 10 steps, none over a link


def test_sjf_bco_serves_the_smallest_first_and_never_interrupts() -> None:
    jobs = [job("large", 100.0, min_workers=2, max_workers=2), job("small", 100.0)]
    found = run("sjf-bco", machines(2), jobs)
    assert found.completions_s == pytest.approx({"small": 100.0, "large": 150.0})
    assert found.moves["preempt"] == 0


@pytest.mark.parametrize("policy", ["gadget", "exact", "gadget-repaired"])
def test_the_best_of_jobs_of_which_not_all_can_reach_their_midpoint(policy: str) -> None:
    # 100 worker-seconds: a and b need 60 each, c needs 40; the best pair is a and c
    jobs = [
        job("a", 60.0, utility=sigmoid(50.0, 10.0), max_workers=4),
        job("b", 60.0, utility=sigmoid(50.0, 7.0), max_workers=4),
        job("c", 40.0, utility=sigmoid(30.0, 6.0), max_workers=4),
    ]
    topology = machines(1)
    config = Settings(policy=policy, slot_s=10.0, lookahead_slots=100)
    found = simulate(Scenario(topology, jobs, config, TIMES, Alone(TIMES, topology), until_s=100.0))
    assert found.utility == pytest.approx(16.0, rel=1e-3)


def test_a_backlog_utility_ends_a_batch_as_early_as_can_be() -> None:
    # 3 accelerators, jobs of one worker of 60, 40, 40 and 40 s: 180 worker-seconds, so 60 s at best
    lengths = {"a": 60.0, "b": 40.0, "c": 40.0, "d": 40.0}
    jobs = [job(key, s, utility=Utility(UtilityKind.BACKLOG, weight=s), ring=SECOND) for key, s in lengths.items()]
    found = run("gadget", machines(3), jobs, slot_s=1.0, hysteresis=0.0)
    assert found.makespan_s == pytest.approx(60.0, abs=1.5)
    assert run("fifo", machines(3), jobs).makespan_s == pytest.approx(80.0)
