"""The simulator: events, restarts, contention, what is added up; and bounds that nothing exceeds."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from depth import num_examples
from fleet_cases import SECOND, fleets, job, machines, sigmoid
from hulk_placement.fleet.types import Job, Ring, Settings
from hulk_placement.fleet.utility import Utility, UtilityKind
from hulk_placement.topology import Link, Machine, Topology
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.fleet_simulator import Outcome, Scenario, simulate
from bench.fleet_simulator.draws import Bursts, read_trace
from bench.fleet_simulator.jobs_file import read_jobs
from bench.fleet_simulator.links import LinkTimes
from bench.fleet_simulator.offline import bound, makespan_bound
from bench.fleet_simulator.picture import svg
from bench.fleet_simulator.presets import BATCH, NUM_SLOTS, SLOT_S, Switches, gadget, mobihoc
from bench.fleet_simulator.speeds import Alone, Contended
from bench.fleet_simulator.step_times import PaperStepTimes

TIMES = PaperStepTimes()


def scenario(jobs: list[Job], topology: Topology, policy: str = "gadget", until_s: float = math.inf) -> Scenario:
    config = Settings(policy=policy, slot_s=10.0, lookahead_slots=1000)
    return Scenario(topology, jobs, config, TIMES, Alone(TIMES, topology), until_s)


def outcome(jobs: list[Job], topology: Topology, policy: str = "gadget", until_s: float = math.inf) -> Outcome:
    return simulate(scenario(jobs, topology, policy, until_s))


def test_work_goes_on_when_the_restart_is_over_and_everything_is_added_up() -> None:
    jobs = [job("a", 10.0, restart_s=5.0, watts_per_worker=100.0), job("b", 10.0, arrived_s=15.0)]
    found = outcome(jobs, machines(2))
    assert found.completions_s == pytest.approx({"a": 15.0, "b": 10.0})
    assert found.makespan_s == pytest.approx(25.0)
    assert found.utilisation == pytest.approx(25 / 50)
    assert found.joules == pytest.approx(1500.0)
    assert found.utility == pytest.approx(20.0)
    assert [(span.job, span.start_s, span.end_s) for span in found.spans] == [
        ("a", 0.0, pytest.approx(15.0)),
        ("b", 15.0, pytest.approx(25.0)),
    ]


def test_at_the_end_what_is_done_counts_and_no_more() -> None:
    found = outcome([job("a", 100.0), job("late", 10.0, arrived_s=70.0)], machines(1), until_s=60.0)
    assert found.utility == pytest.approx(60.0)
    assert found.completions_s == {}
    assert found.makespan_s == pytest.approx(60.0)


def test_a_deadline_is_worth_its_weight_only_in_time() -> None:
    utility = Utility(UtilityKind.DEADLINE, weight=10.0, deadline_s=30.0)
    jobs = [job("in-time", 25.0, utility=utility), job("late", 40.0, utility=utility)]
    found = outcome(jobs, machines(2))
    assert found.utilities == pytest.approx({"in-time": 10.0, "late": 1.0})


def test_power_is_paid_for() -> None:
    utility = Utility(UtilityKind.ENERGY, power_price=1e-3)
    found = outcome([job("a", 10.0, utility=utility, watts_per_worker=10.0)], machines(1))
    assert found.utility == pytest.approx(10.0 - 10 * 0.1)


def test_a_job_that_never_fits_does_not_keep_the_simulation_going() -> None:
    found = outcome([job("big", min_workers=5, max_workers=5), job("a", 10.0)], machines(2))
    assert set(found.completions_s) == {"a"}


@pytest.mark.parametrize(
    "policy", ["gadget", "gadget-paper", "gadget-repaired", "drf", "las", "srpt", "fifo", "sjf-bco"]
)
@settings(max_examples=num_examples(25), deadline=None)
@given(case=fleets(most_jobs=5))
def test_nothing_exceeds_the_bound(policy: str, case: tuple[Topology, list[Job]]) -> None:
    topology, jobs = case
    made = scenario([replace(one, arrived_s=20.0 * n) for n, one in enumerate(jobs)], topology, policy, 200.0)
    assert simulate(made).utility <= bound(made) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("policy", ["gadget", "drf", "sjf-bco"])
def test_nothing_exceeds_the_bound_where_some_links_are_quicker(policy: str) -> None:
    """The first job gets the slow region, as workers are placed by number alone, and the next ones the quick ones."""
    topology = replace(
        machines(1, 1, 1, 1, 1, 1, regions=3),
        region_links={(f"r{a}", f"r{b}"): Link(1e-4, 10.0 ** (7 + (a + b) // 2)) for a in range(3) for b in range(3)},
    )
    ring = replace(SECOND, gradient_bytes=1e9)
    jobs = [job(f"j{n}", 100.0, ring=ring, min_workers=2, max_workers=3, allow_unknown_links=False) for n in range(3)]
    times = LinkTimes(topology)
    made = Scenario(topology, jobs, Settings(policy=policy, slot_s=10.0), times, times, 120.0)
    found = simulate(made)
    assert found.utility <= bound(made) * (1 + 1e-9)
    later = simulate(replace(made, until_s=math.inf))
    assert later.makespan_s >= makespan_bound(made) * (1 - 1e-9)


@settings(max_examples=num_examples(60), deadline=None)
@given(data=st.data(), num_regions=st.integers(1, 4), sizes=st.lists(st.integers(0, 3), min_size=2, max_size=5))
def test_the_shortest_step_is_that_of_trying_all_mappings(
    data: st.DataObject, num_regions: int, sizes: list[int]
) -> None:
    pairs = [(f"r{a}", f"r{b}") for a in range(num_regions) for b in range(num_regions)]
    links = {pair: Link(1e-4, data.draw(st.sampled_from([1e7, 1e8, 1e9]))) for pair in pairs}
    times = LinkTimes(replace(machines(*sizes, regions=num_regions), region_links=links))
    one, count = job("a", ring=replace(SECOND, gradient_bytes=1e9)), data.draw(st.integers(1, 4))
    admits = {f"m{n}": size for n, size in enumerate(sizes) if size}
    ways = [way for way in itertools.product(*(range(most + 1) for most in admits.values())) if sum(way) == count]
    mappings = [{name: n for name, n in zip(admits, way, strict=True) if n} for way in ways]
    tried = min((times.step_s(one, mapping) for mapping in mappings), default=math.inf)
    assert times.least_step_s(one, admits, count) == pytest.approx(tried)


def best_by_trying(jobs: list[Job], num: int, slots: int) -> float:
    """The most utility of all ways of giving whole workers to jobs slot by slot; a worker does a sample a second."""
    options = [[0, *range(one.min_workers, one.max_workers + 1)] for one in jobs]
    ways = [way for way in itertools.product(*options) if sum(way) <= num]
    reached = {tuple(0.0 for _ in jobs)}
    for slot in range(slots):
        allowed = [
            way for way in ways if all(not w or one.arrived_s <= 10 * slot for w, one in zip(way, jobs, strict=True))
        ]
        reached = {
            tuple(min(one.total_work, done + 10 * w) for done, w, one in zip(state, way, jobs, strict=True))
            for state in reached
            for way in allowed
        }
    return max(
        sum(one.utility.value(done, one.total_work) for done, one in zip(state, jobs, strict=True)) for state in reached
    )


def test_the_bound_is_above_the_optimum_and_ours_is_close_to_it() -> None:
    rng, ratios = np.random.default_rng(2), []
    for _ in range(15):
        jobs = [
            job(
                f"j{n}",
                100.0,
                utility=sigmoid(float(rng.uniform(20, 80)), float(rng.uniform(1, 9)), 0.5),
                min_workers=int(least := rng.integers(1, 3)),
                max_workers=int(least + rng.integers(0, 2)),
                arrived_s=10.0 * int(rng.integers(0, 2)),
            )
            for n in range(3)
        ]
        made = scenario(jobs, machines(3), until_s=50.0)
        optimum = best_by_trying(jobs, 3, 5)
        assert optimum <= bound(made) * (1 + 1e-9)
        ratios.append(simulate(made).utility / optimum)
    assert np.mean(ratios) > 0.93


def test_the_bound_of_makespans_is_the_work_shared_out_or_the_longest_job() -> None:
    assert makespan_bound(scenario([job("a", 10.0), job("b", 20.0)], machines(1))) == pytest.approx(30.0)
    assert makespan_bound(scenario([job("a", 10.0), job("b", 20.0)], machines(4))) == pytest.approx(20.0)


def test_rings_that_contend_slow_each_other_as_the_formula_says() -> None:
    ring = Ring(gradient_bytes=100.0, forward_s=0.0, samples=1, backward_s=1.0)
    jobs = {key: job(key, ring=ring, max_workers=2) for key in ("a", "b", "c")}
    speeds = Contended(link_bytes_per_s=100.0, inside_bytes_per_s=1000.0, degradation=0.5, overhead_s=0.25)
    across = {"m0": 1, "m1": 1}
    alone_s = 50 * 2 / 100 + 0.5 + 1
    assert speeds.step_s(jobs["a"], across) == pytest.approx(alone_s)
    found = speeds.steps_s(jobs, {"a": across, "b": across, "c": {"m0": 2}})
    assert found["a"] == found["b"] == pytest.approx(50 * 2 * 2.5 / 100 + 0.5 + 1)
    assert found["c"] == pytest.approx(50 * 2 / 1000 + 0.25 + 1)


def test_accelerators_given_out_twice_share_their_time() -> None:
    topology = machines(2)
    jobs = {key: job(key, max_workers=2) for key in ("a", "b")}
    found = Alone(TIMES, topology).steps_s(jobs, {"a": {"m0": 2}, "b": {"m0": 2}})
    assert found == pytest.approx({"a": 2.0, "b": 2.0})


def test_a_ring_on_links_is_as_quick_as_its_narrowest_and_shares_those_between_regions() -> None:
    topology = Topology(
        tuple(Machine(name, name[0], num_accelerators=4) for name in ("a0", "a1", "b0")),
        region_links={
            ("a", "a"): Link(0.0, 1000.0),
            ("b", "b"): Link(0.0, 1000.0),
            ("a", "b"): Link(0.2, 100.0),
            ("b", "a"): Link(0.2, 50.0),
        },
    )
    ring = Ring(gradient_bytes=100.0, forward_s=0.0, samples=1, backward_s=1.0)
    jobs = {key: job(key, ring=ring) for key in ("x", "y")}
    times = LinkTimes(topology)
    assert times.step_s(jobs["x"], {"a0": 1, "a1": 1}) == pytest.approx(1 + 50 * 2 / 1000)
    assert times.step_s(jobs["x"], {"a0": 1, "b0": 1}) == pytest.approx(1 + 50 * 2 / 50 + 0.2)
    both = times.steps_s(jobs, {"x": {"a0": 1, "b0": 1}, "y": {"a1": 1, "b0": 1}})
    assert both["x"] == pytest.approx(1 + 50 * 2 / 25 + 0.2)


def test_the_published_setting_is_drawn_within_its_ranges_and_by_the_seed_alone() -> None:
    made = gadget(60, 7)
    assert made == gadget(60, 7)
    assert made.jobs != gadget(60, 8).jobs
    assert len(made.topology.machines) == 50
    assert {machine.num_accelerators for machine in made.topology.machines} <= {1, 2, 4, 8}
    assert 2 <= len({machine.region for machine in made.topology.machines}) <= 5
    assert all(200e9 / 8 <= link.bandwidth_bytes_per_s <= 3200e9 / 8 for link in made.topology.region_links.values())
    assert all(10e9 / 8 <= rate <= 100e9 / 8 for rate in made.settings.machine_bytes_per_s.values())
    assert made.until_s == NUM_SLOTS * SLOT_S
    for one in made.jobs:
        assert 1 <= one.max_workers <= 5
        assert 1000 <= one.total_work <= 6000
        assert one.ring is not None
        assert 50 <= SLOT_S / one.ring.backward_s <= 500
        assert 0.1e9 / 8 <= one.ring.bandwidth_bytes_per_s <= 5e9 / 8
        assert 300 <= (one.utility.midpoint or 0) <= 3000
        assert 1 <= one.utility.weight <= 100
        assert 1 <= made.settings.fixed_workers[one.key] <= one.max_workers


def test_a_load_grows_midpoints_until_it_is_offered() -> None:
    plain, loaded = gadget(60, 7), gadget(60, 7, Switches(load=2.0))
    assert loaded.drawn["offered_load"] == pytest.approx(2.0)
    factor = loaded.drawn["midpoint_factor"]
    for one, other in zip(plain.jobs, loaded.jobs, strict=True):
        assert other.utility.midpoint == pytest.approx((one.utility.midpoint or 0) * factor)  # type: ignore[operator]
    with pytest.raises(ValueError, match="load -1"):
        gadget(5, 1, Switches(load=-1.0))


def test_a_trace_says_when_jobs_arrive() -> None:
    slots = read_trace(["slot,job", "# comment", "3,first", "10,second"])
    assert slots == {"first": 3, "second": 10}
    assert {one.key: one.arrived_s for one in gadget(2, 1, None, slots).jobs} == {
        "first": 3 * SLOT_S,
        "second": 10 * SLOT_S,
    }
    with pytest.raises(ValueError, match="trace line 2: '5' must be slot,job"):
        read_trace(["3,a", "5"])


def test_bursts_bring_many_jobs_in_few_slots() -> None:
    even, bursty = Bursts(factor=1.0), Bursts(factor=50.0)
    rng = np.random.default_rng
    spread = [len(set(one.slots(200, 200, rng(4)))) for one in (even, bursty)]
    assert spread[1] < 0.8 * spread[0]


@pytest.mark.whole  # in short: fleets of a few jobs
def test_the_batch_is_of_the_published_sizes_and_ours_is_through_with_it_before_sjf_bco() -> None:
    made = mobihoc(1)
    sizes = [one.max_workers for one in made.jobs]
    assert {size: sizes.count(size) for size in set(sizes)} == BATCH
    assert {machine.num_accelerators for machine in made.topology.machines} <= {4, 8, 16, 32}
    assert len(made.topology.machines) == 20
    ends = {
        name: simulate(replace(made, settings=replace(made.settings, policy=name))) for name in ("gadget", "sjf-bco")
    }
    assert all(len(found.completions_s) == 160 for found in ends.values())
    assert makespan_bound(made) <= ends["gadget"].makespan_s < ends["sjf-bco"].makespan_s


def test_jobs_are_read_from_a_table() -> None:
    rows = [
        "job,samples,arrives_s,utility,steepness,midpoint,max_workers,namespace,priority,watts",
        "a,100,5,sigmoid,0.5,40,4,team,2,250",
        "b,50,,,,,,,,",
    ]
    first, second = read_jobs(rows)
    assert (first.utility.kind, first.utility.midpoint, first.max_workers) == (UtilityKind.SIGMOID, 40.0, 4)
    assert (first.namespace, first.priority, first.arrived_s, first.watts_per_worker) == ("team", 2, 5.0, 250.0)
    assert (second.total_work, second.utility.kind) == (50.0, UtilityKind.THROUGHPUT)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["job,work", "a,1"], r"unknown columns \['work'\], missing columns \['samples'\]"),
        (["job,samples", "a,many"], "jobs line 2: samples 'many' must be a number"),
        (["job,samples", "a,"], "jobs line 2: samples is empty"),
        (["job,samples,utility", "a,1,best"], "jobs line 2: utility 'best' must be one of"),
        (["job,samples,utility", "a,1,sigmoid"], "jobs line 2: utility sigmoid: needs steepness and midpoint"),
        (["job,samples"], "a heading and no row"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_its_line(rows: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_jobs(rows)


def test_the_picture_has_a_bar_for_every_stretch() -> None:
    made = scenario([job("a<b", 10.0), job("c", 10.0, arrived_s=5.0)], machines(1))
    found = simulate(made)
    drawn = svg(made, [found])
    assert drawn.count("<title>") == len(found.spans) > 1
    assert "a&lt;b" in drawn
    assert "a<b" not in drawn
