"""What holds of every policy's decisions, on random fleets; and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from depth import num_examples
from fleet_cases import SECOND, decide, fleets, job, machines, sigmoid
from hulk_placement.fleet.place import place
from hulk_placement.fleet.problem import ask
from hulk_placement.fleet.room import Room
from hulk_placement.fleet.types import Job, MoveKind, Settings
from hulk_placement.fleet.utility import Utility, UtilityKind
from hulk_placement.topology import Link, Machine, Topology
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.fleet_simulator.policies.paper import overruns
from bench.fleet_simulator.step_times import PaperStepTimes

TIMES = PaperStepTimes()
SAFE = ("gadget", "gadget-repaired", "fifo", "drf", "las", "srpt", "sjf-bco", "exact")
"""All but the one that exceeds machines and says so."""

Workers = dict[str, dict[str, int]]


def chosen(now_s: float, jobs: list[Job], topology: Topology, running: Workers, config: Settings) -> Workers:
    return {key: dict(m) for key, m in decide(now_s, jobs, topology, running, TIMES, config).workers.items()}


def check(jobs: list[Job], topology: Topology, found: Workers, config: Settings) -> None:
    """No machine and no quota is exceeded, and every gang is between its least and its most."""
    by_key = {one.key: one for one in jobs}
    held = {machine.name: 0 for machine in topology.machines}
    spaces: dict[str, int] = {}
    for key, mapping in found.items():
        one = by_key[key]
        assert one.min_workers <= sum(mapping.values()) <= one.max_workers
        assert min(mapping.values()) > 0
        for machine, count in mapping.items():
            held[machine] += count * one.accelerators_per_worker
            spaces[one.namespace] = spaces.get(one.namespace, 0) + count * one.accelerators_per_worker
    assert all(held[machine.name] <= machine.num_accelerators for machine in topology.machines)
    assert all(spaces.get(namespace, 0) <= quota for namespace, quota in config.quotas.items())


@pytest.mark.parametrize("policy", SAFE)
@settings(max_examples=num_examples(40), deadline=None)
@given(fleet=fleets(), quota=st.integers(0, 12), later_s=st.floats(-1e6, 1e6))
def test_no_accelerator_and_no_quota_is_exceeded(
    policy: str, fleet: tuple[Topology, list[Job]], quota: int, later_s: float
) -> None:
    topology, jobs = fleet
    config = Settings(policy=policy, quotas={"a": quota})
    first = chosen(0.0, jobs, topology, {}, config)
    check(jobs, topology, first, config)
    moved = [replace(one, work_done=one.total_work / 3, moved_s=0.0) for one in jobs]
    lost = replace(topology, machines=topology.machines[1:]) if len(topology.machines) > 1 else topology
    second = chosen(later_s, moved, lost, first, config)
    check(moved, lost, second, config)


@pytest.mark.parametrize("policy", [*SAFE, "gadget-paper"])
@settings(max_examples=20, deadline=None)
@given(fleet=fleets())
def test_decisions_repeat_and_names_of_machines_decide_nothing(policy: str, fleet: tuple[Topology, list[Job]]) -> None:
    topology, jobs = fleet
    config = Settings(policy=policy, seed=3)
    found = chosen(0.0, jobs, topology, {}, config)
    assert found == chosen(0.0, jobs, topology, {}, config)
    names = {machine.name: f"z{number}" for number, machine in enumerate(reversed(topology.machines))}
    other = replace(topology, machines=tuple(replace(m, name=names[m.name]) for m in topology.machines))
    renamed = {key: {names[machine]: count for machine, count in mapping.items()} for key, mapping in found.items()}
    assert chosen(0.0, jobs, other, {}, config) == renamed


@pytest.mark.parametrize("policy", ["gadget", "drf", "srpt"])
@settings(max_examples=num_examples(60), deadline=None)
@given(fleet=fleets())
def test_a_job_never_waits_for_one_of_lower_priority(policy: str, fleet: tuple[Topology, list[Job]]) -> None:
    topology, jobs = fleet
    jobs = [replace(one, utility=Utility()) for one in jobs]
    low = [one for one in jobs if one.priority == 0]
    before = chosen(0.0, low, topology, {}, Settings(policy=policy))
    found = chosen(1.0, jobs, topology, before, Settings(policy=policy))
    room = Room(topology, Settings())
    for one in jobs:
        if one.priority == 1:
            room.take(one, found.get(one.key, {}))
    for one in jobs:
        if one.priority == 1 and one.key not in found:
            assert place(room, one, one.min_workers) is None


@pytest.mark.parametrize("policy", SAFE)
def test_a_job_too_large_for_the_cluster_waits_with_the_reason_and_blocks_nobody(policy: str) -> None:
    jobs = [job("big", min_workers=9, max_workers=9), job("small", arrived_s=1.0)]
    decision = decide(2.0, jobs, machines(4, 4), {}, TIMES, Settings(policy=policy))
    assert set(decision.workers) == {"small"}
    assert decision.reasons["big"] == (
        "waits: its least is 9 workers of 1 accelerator, and the cluster's machines could hold 8 of them were they "
        "empty"
    )
    assert decision.position == {"big": 1}
    assert "big" not in decision.expected_start_s


def test_only_strict_fifo_lets_a_job_that_can_never_start_block_the_others() -> None:
    jobs = [job("big", min_workers=9, max_workers=9), job("small", arrived_s=1.0)]
    strict = Settings(policy="fifo", strict_fifo=True)
    assert not decide(2.0, jobs, machines(4, 4), {}, TIMES, strict).workers


def test_what_waits_is_told_its_place_what_it_lacks_and_when_it_may_start() -> None:
    jobs = [job("first", 100.0, min_workers=3, max_workers=3), job("second", min_workers=2, max_workers=2, arrived_s=1)]
    decision = decide(10.0, jobs, machines(4), {"first": {"m0": 3}}, TIMES, Settings(policy="fifo"))
    assert decision.reasons == {
        "second": "waits at position 1: its least is 2 workers of 1 accelerator, and 1 fit on what others leave free"
    }
    assert decision.position == {"second": 1}
    assert decision.expected_start_s == {"second": pytest.approx(10 + 100 / 3)}


@pytest.mark.parametrize("policy", SAFE)
def test_a_job_whose_machines_nothing_joins_waits_with_the_reason_and_blocks_nobody(policy: str) -> None:
    """Two regions of which nothing is known: three workers fit on neither."""
    topology = Topology(tuple(Machine(f"m{n}", region, num_accelerators=2) for n, region in enumerate("ab")))
    apart = job("apart", min_workers=3, max_workers=3, allow_unknown_links=False)
    found = decide(0.0, [apart, job("alone", arrived_s=1.0)], topology, {}, TIMES, Settings(policy=policy))
    assert "apart" not in found.workers
    assert "alone" in found.workers
    assert found.reasons["apart"].startswith(
        "waits: its least is 3 workers of 1 accelerator, and no links that are known"
    )
    known = replace(topology, region_links={pair: Link(0.1, 1e8) for pair in (("a", "b"), ("b", "a"))})
    assert "apart" in decide(0.0, [apart], known, {}, TIMES, Settings(policy=policy)).workers


def test_a_quota_that_can_never_hold_the_gang_is_the_reason() -> None:
    settings_ = Settings(quotas={"team": 3})
    jobs = [job("j", min_workers=4, max_workers=4, namespace="team")]
    decision = decide(0.0, jobs, machines(8), {}, TIMES, settings_)
    assert decision.reasons["j"].endswith("the quota of namespace team, 3 accelerators, admits 3 of them")


def test_moves_say_what_happens_to_whom() -> None:
    topology = machines(4)
    grown = decide(0.0, [job("j", max_workers=4)], topology, {"j": {"m0": 1}}, TIMES)
    assert [(m.kind, m.after) for m in grown.moves] == [(MoveKind.GROW, {"m0": 4})]
    jobs = [job("j", max_workers=4, min_workers=2), job("k", utility=Utility(weight=9.0), max_workers=4, priority=1)]
    taken = decide(0.0, jobs, topology, {"j": {"m0": 4}}, TIMES)
    assert {m.job: m.kind for m in taken.moves} == {"k": MoveKind.START, "j": MoveKind.PREEMPT}
    assert "stopped" in taken.reasons["j"]
    assert "waits at position 1" in taken.reasons["j"]


def test_a_job_that_may_not_be_interrupted_keeps_its_machines() -> None:
    jobs = [job("j", preemptible=False, max_workers=4), job("k", priority=1, max_workers=4)]
    found = decide(0.0, jobs, machines(4), {"j": {"m0": 2}}, TIMES).workers
    assert found == {"j": {"m0": 2}, "k": {"m0": 2}}


def test_a_restart_that_costs_more_than_it_gains_does_not_happen() -> None:
    topology, running = machines(4), {"j": {"m0": 2}}
    soon = job("j", total_work=100.0, max_workers=4, restart_s=40.0)
    assert not decide(0.0, [soon], topology, running, TIMES).moves
    late = replace(soon, total_work=100_000.0)
    assert decide(0.0, [late], topology, running, TIMES).moves[0].kind is MoveKind.GROW


def test_who_moved_just_now_stays_but_not_after_the_clock_was_set_back() -> None:
    config = Settings(settle_s=60.0)
    one = job("j", max_workers=4, total_work=1e6, moved_s=100.0)
    assert not decide(130.0, [one], machines(4), {"j": {"m0": 2}}, TIMES, config).moves
    assert decide(-1e9, [one], machines(4), {"j": {"m0": 2}}, TIMES, config).moves
    assert decide(161.0, [one], machines(4), {"j": {"m0": 2}}, TIMES, config).moves


def test_a_worker_on_a_machine_that_is_gone_is_placed_anew() -> None:
    decision = decide(0.0, [job("j", min_workers=2, max_workers=2)], machines(2), {"j": {"gone": 1, "m0": 1}}, TIMES)
    assert decision.workers == {"j": {"m0": 2}}


def test_a_sigmoid_far_below_its_midpoint_is_not_starved_by_what_underflows() -> None:
    config = Settings(slot_s=10.0, lookahead_slots=1000)
    jobs = [job("far", 6000.0, utility=sigmoid(3000.0, 100.0)), job("near", utility=Utility(weight=0.001))]
    assert set(decide(0.0, jobs, machines(1), {}, TIMES, config).workers) == {"far"}
    two = [job("low", 6000.0, utility=sigmoid(5000.0, 1.0)), job("high", 6000.0, utility=sigmoid(4000.0, 1.0))]
    myopic = replace(config, lookahead_slots=1)
    assert set(decide(0.0, two, machines(1), {}, TIMES, myopic).workers) == {"high"}


def test_reserved_bandwidth_is_never_exceeded() -> None:
    two = Topology(
        (Machine("a", "r0", num_accelerators=2), Machine("b", "r1", num_accelerators=2)),
        region_links={("r0", "r1"): Link(0.01, 100.0), ("r1", "r0"): Link(0.01, 100.0)},
        uplinks={"r0": 50.0},
    )
    ring = replace(job("x").ring, bandwidth_bytes_per_s=60.0)  # type: ignore[type-var]
    wide = job("wide", min_workers=3, max_workers=4, ring=ring)
    assert not decide(0.0, [wide], two, {}, TIMES).workers
    narrow = replace(wide, ring=replace(ring, bandwidth_bytes_per_s=50.0))  # type: ignore[type-var]
    assert sum(decide(0.0, [narrow], two, {}, TIMES).workers["wide"].values()) == 4
    card = Settings(machine_bytes_per_s={"a": 40.0})
    assert not decide(0.0, [narrow], two, {}, TIMES, card).workers


@pytest.mark.parametrize("policy", ["gadget-paper", "exact"])
def test_what_is_reserved_of_an_uplink_beyond_its_rate_is_told(policy: str) -> None:
    topology = replace(
        machines(2, 2, regions=2),
        region_links={(f"r{a}", f"r{b}"): Link(1e-3, 1e10) for a in range(2) for b in range(2)},
        uplinks={"r0": 1.5e9},
    )
    ring = replace(SECOND, bandwidth_bytes_per_s=1e9)
    one = job("a", min_workers=2, max_workers=2, accelerators_per_worker=1, ring=ring, candidates={"m0": 1, "m1": 1})
    jobs = [one, replace(one, key="b")]
    asked = (0.0, jobs, topology, {}, TIMES, Settings(policy=policy))
    told = overruns(ask(*asked), decide(*asked).workers)
    assert list(told) == [f"uplink of r0, {way}: 2e+09 B/s reserved of 1.5e+09" for way in ("out", "in")]
    assert len(decide(0.0, jobs, topology, {}, TIMES, Settings()).workers) == 1


@pytest.mark.parametrize("first", [True, False])
def test_a_job_that_may_use_unknown_links_gets_them_beside_one_that_may_not(first: bool) -> None:
    jobs = [job(key, min_workers=2, max_workers=2, allow_unknown_links=(key == "a") is first) for key in "ab"]
    found = decide(0.0, jobs, machines(1, 1, regions=2), {}, TIMES, Settings())
    assert found.workers == {"a" if first else "b": {"m0": 1, "m1": 1}}


def test_candidates_and_memory_limit_where_workers_go() -> None:
    topology = Topology(
        (
            Machine("small", "r", num_accelerators=4, memory_bytes=8),
            Machine("large", "r", num_accelerators=4, memory_bytes=16),
        )
    )
    assert decide(0.0, [job("j", memory_bytes_per_worker=12)], topology, {}, TIMES).workers == {"j": {"large": 1}}
    limited = job("k", max_workers=8, candidates={"small": 1, "gone": 5})
    assert decide(0.0, [limited], topology, {}, TIMES).workers == {"k": {"small": 1}}


def test_an_energy_utility_stops_growing_where_power_costs_more() -> None:
    utility = Utility(UtilityKind.ENERGY, weight=1.0, power_price=1e-5)
    one = job("j", 1e6, utility=utility, max_workers=8, watts_per_worker=100.0)
    # a worker more gains 1 a second and costs 0.1 (2w + 1): worth it up to w = 4 -> 5 (0.9), not 5 -> 6 (1.1)
    assert sum(decide(0.0, [one], machines(8), {}, TIMES).workers["j"].values()) == 5


@pytest.mark.parametrize(
    ("settings_", "words"),
    [({"policy": "best"}, "policy 'best'"), ({"slot_s": 0.0}, "slot 0.0 s"), ({"quotas": {"n": -1}}, "quota -1")],
)
def test_settings_that_mean_nothing_are_refused(settings_: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decide(0.0, [], machines(1), {}, TIMES, Settings(**settings_))  # type: ignore[arg-type]


def test_two_jobs_of_one_key_are_refused() -> None:
    with pytest.raises(ValueError, match="only 1 different keys"):
        decide(0.0, [job("j"), job("j")], machines(1), {}, TIMES)


@pytest.mark.parametrize("policy", SAFE)
def test_a_quota_takes_nothing_from_a_job_that_cannot_be_interrupted(policy: str) -> None:
    """It keeps what it has beyond the quota, and counts for the others; who can be interrupted gives way."""
    stays = job("stays", namespace="a", max_workers=4, min_workers=4, preemptible=False)
    jobs = [stays, job("goes", namespace="a", priority=9), job("waits", namespace="a", arrived_s=1.0), job("other")]
    running = {"stays": {"m0": 4}, "goes": {"m1": 1}}
    found = decide(0.0, jobs, machines(4, 4), running, TIMES, Settings(policy=policy, quotas={"a": 3}))
    others = {} if policy in ("fifo", "sjf-bco") else {"other": {"m1": 1}}  # there nobody overtakes one that waits
    assert {key: dict(mapping) for key, mapping in found.workers.items()} == {"stays": {"m0": 4}, **others}
    assert "of the quota of namespace a 0 accelerators are left" in found.reasons["waits"]
    assert found.achieved <= found.bound * (1 + 1e-9)


@pytest.mark.parametrize("policy", SAFE)
def test_what_others_hold_of_a_quota_is_not_given_out_again(policy: str) -> None:
    config = Settings(policy=policy, quotas={"a": 3}, taken={"a": 2})
    jobs = [job("one", namespace="a"), job("two", namespace="a", min_workers=2, max_workers=2)]
    found = decide(0.0, jobs, machines(4, 4), {}, TIMES, config)
    assert {key: sum(mapping.values()) for key, mapping in found.workers.items()} == {"one": 1}
    assert "of the quota of namespace a 0 accelerators are left" in found.reasons["two"]
