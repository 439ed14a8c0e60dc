"""Re-planning: what changed, what a move costs, and when it pays."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace

import pytest
from depth import num_examples
from hulk_placement.basis import Basis, bases_of, basis_of
from hulk_placement.cost.foresee import foresee
from hulk_placement.files.basis import pack_basis, unpack_basis
from hulk_placement.model import Layer, LayerTimes, Model, TimesRow
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.replan.answer import Situation
from hulk_placement.replan.changes import Changes, LinkDrifted, MachineAdded, changes
from hulk_placement.replan.decide import Policy, Verdict, Weighed, decide
from hulk_placement.replan.moving import move_cost
from hulk_placement.replan.replan import replan
from hulk_placement.restart import Moving, Restart
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.topology import Link, LinkKind, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import jobs, plan_of, workload, worlds

QUICK = Budget(iterations=2_000)
LINK = Link(0.02, 1e7)
UNKNOWN = Link(2.0, 125_000.0, kind=LinkKind.UNKNOWN)
BOTH_TENFOLD = [("a", "b", 10.0), ("b", "a", 10.0)]
WAN = (Link(0.02, 1e7), Link(0.02, 0.8e7), Link(0.02, 0.5e7))


def two_regions(link: Link = LINK, **speed: float) -> Topology:
    """Machines a0 and a1 in a, b0 in b, and one by each further keyword; one accelerator each."""
    names = {"a0": 1e12, "a1": 1e12, "b0": 1e12} | speed
    machines = tuple(Machine(name, name[0], flops_per_s=flops) for name, flops in names.items())
    inside = {(region, region): Link(0.0002, 1e9) for region in "ab"}
    return Topology(machines, region_links={("a", "b"): link, ("b", "a"): link, **inside})


def without(topology: Topology, *names: str) -> Topology:
    return replace(topology, machines=tuple(m for m in topology.machines if m.name not in names))


def without_links(topology: Topology) -> Topology:
    """Nothing is known of the links between regions."""
    return replace(topology, region_links={pair: topology.region_links[pair] for pair in (("a", "a"), ("b", "b"))})


def on(topology: Topology, *names: str, **asked: object) -> tuple[Workload, Plan]:
    """A workload on all machines, and its plan on those of the names, in rank order."""
    job = workload(topology, **asked)
    return job, plan_of(job, topology, names, 1)


def may_use(job: Workload, topology: Topology) -> Workload:
    return replace(job, candidates={machine.name: 64 for machine in topology.machines})


@pytest.mark.parametrize(
    ("name", "now", "lost", "added", "drifted"),
    [
        ("nothing", two_regions(), [], [], []),
        ("a machine of the plan is gone", without(two_regions(), "b0"), ["b0"], [], []),
        ("one that it does not use is gone", without(two_regions(), "a1"), [], [], []),
        ("a new machine", two_regions(b1=1e12), [], [("b1", 0, 1)], []),
        ("half the bandwidth", two_regions(WAN[2]), [], [], [("a", "b", 2.0), ("b", "a", 2.0)]),
        ("a third more latency", two_regions(Link(0.03, 1e7)), [], [], [("a", "b", 1.5), ("b", "a", 1.5)]),
        ("nothing is known", two_regions(UNKNOWN), [], [], [("a", "b", 100.0), ("b", "a", 100.0)]),
        ("the link is gone", without_links(two_regions()), [], [], [("a", "b", 100.0), ("b", "a", 100.0)]),
        ("less for one flow", two_regions(replace(LINK, flow_bytes_per_s=1e6)), [], [], BOTH_TENFOLD),
        ("a narrow uplink", replace(two_regions(), uplinks={"a": 1e6}), [], [], BOTH_TENFOLD),
        ("a region left", without(two_regions(), "b0"), ["b0"], [], []),
    ],
)
def test_what_changed_is_told_with_numbers(
    name: str, now: Topology, lost: list[str], added: list[object], drifted: list[object]
) -> None:
    before = two_regions()
    job, plan = on(before, "a0", "b0")
    found = changes(plan, basis_of(plan, job, before), may_use(job, now), now)
    assert [machine.name for machine in found.lost] == lost, name
    assert [(machine.name, machine.num_before, machine.num_now) for machine in found.added] == added
    assert [(*drift.pair, pytest.approx(drift.factor)) for drift in found.drifted] == drifted
    for change in (*found.lost, *found.added, *found.drifted):
        assert any(character.isdigit() for character in str(change))


def test_a_link_that_two_machines_have_of_their_own_drifts_alone() -> None:
    own = {("a0", "b0"): Link(0.02, 3e7), ("a1", "b0"): Link(0.02, 3e7)}
    before = replace(two_regions(), node_links=own)
    job, plan = on(before, "b0", "a0")  # a0 sends to b0
    now = replace(before, node_links={pair: Link(0.02, 1e7) for pair in own})
    found = changes(plan, basis_of(plan, job, before), job, now)
    assert [(drift.pair, drift.factor) for drift in found.drifted] == [(("a0", "b0"), pytest.approx(3.0))]


def test_an_uplink_and_a_speed_that_are_stated_otherwise_have_drifted() -> None:
    """The uplink is wider than each link, but not than what a region's links carry together."""
    before = replace(two_regions(), uplinks={"a": 5e7, "b": 5e7})
    job, plan = on(before, "a0", "b0")
    basis = unpack_basis(pack_basis(basis_of(plan, job, before)))
    assert changes(plan, basis, job, before) == Changes()
    now = replace(two_regions(b0=1e11), uplinks={"a": 1e7, "b": 5e7})
    found = changes(plan, basis, job, now)
    assert (found.drifted, [(drift.key, drift.factor) for drift in found.beyond(2.0)]) == (
        (), [(("speed", "b0"), pytest.approx(10.0)), (("uplink", "a"), pytest.approx(5.0))],
    )  # fmt: skip
    assert str(found.figures[0]) == "the uplink of a went from 400 to 80 Mbit/s (by a factor of 5.00)"
    assert str(found.figures[1]) == "the speed of b0 went from 1 to 0.1 TFLOP/s (by a factor of 10.00)"


def test_what_was_kept_without_uplinks_and_speeds_is_read_and_nothing_of_them_has_drifted() -> None:
    before = replace(two_regions(), uplinks={"a": 5e7})
    job, plan = on(before, "a0", "b0")
    older = replace(basis_of(plan, job, before), uplinks={}, speeds={})
    now = replace(two_regions(b0=1e11), uplinks={"a": 2e7})
    assert changes(plan, unpack_basis(pack_basis(older)), job, now).figures == ()


@pytest.mark.parametrize("is_allowed", [False, True])
def test_a_plan_over_a_link_of_which_nothing_is_known_any_more_moves(is_allowed: bool) -> None:
    """It cannot go on where no unknown link is allowed; else it would take far longer than by c0."""
    machines = tuple(Machine(name, name[0], flops_per_s=1e12) for name in ("a0", "b0", "c0"))
    links = {(a, b): Link(0.02, 1e7) for a in "abc" for b in "abc" if a != b}
    inside = {(region, region): Link(0.0002, 1e9) for region in "abc"}
    before = Topology(machines, region_links=links | inside)
    job, plan = on(before, "a0", "b0", min_workers=2, max_workers=2, allow_unknown_links=is_allowed)
    basis = basis_of(plan, job, before)
    left = {pair: link for pair, link in before.region_links.items() if set(pair) != {"a", "b"}}
    found = replan(plan, basis, job, replace(before, region_links=left), Situation(10**6, 0.0), budget=QUICK)
    assert found.verdict is Verdict.MOVE
    assert found.new is not None
    assert "c0" in found.new.accelerators()
    assert (found.current is not None) == is_allowed
    if not is_allowed:
        assert "links of which nothing is known, and the workload does not allow it: a0 -> b0, b0 -> a0" in found.reason


def test_a_machine_with_fewer_accelerators_than_the_plan_holds_is_lost_in_part() -> None:
    machines = (Machine("a0", "a", num_accelerators=4, flops_per_s=1e12), Machine("a1", "a", flops_per_s=1e12))
    before = Topology(machines, region_links={("a", "a"): Link(0.0002, 1e9)})
    job, plan = on(before, "a0", "a0", "a0", max_workers=5)
    now = replace(before, machines=(replace(machines[0], num_accelerators=2), machines[1]))
    (lost,) = changes(plan, basis_of(plan, job, before), job, now).lost
    assert (lost.name, lost.num_held, lost.num_left) == ("a0", 3, 2)


def test_without_a_basis_only_what_the_plan_lost_is_known() -> None:
    job, plan = on(two_regions(), "a0", "b0")
    now = without(two_regions(WAN[2], b1=1e12), "a0")
    found = changes(plan, None, may_use(job, now), now)
    assert ([machine.name for machine in found.lost], found.added, found.drifted, found.is_whole) == (
        ["a0"], (), (), False,
    )  # fmt: skip


def test_the_cost_of_a_move_by_hand() -> None:
    """1,000 parameters with two values of the optimizer each: 12,000 bytes, to a1 inside the region and to b0 and b1.

    Both in b share 10 kB/s: 2.4 s, and 0.01 s until the first byte. It is read from b: 1.2 s and 0.01 s.
    """
    topology = two_regions(Link(0.02, 10_000), b1=1e12)
    job, old = on(topology, "a0", "a1", model=Model.of_totals(1_000, 1e10, 0))
    new = plan_of(job, topology, ("a0", "a1", "b0", "b1"), 1)
    restart = Restart(stop_s=1, image_s=20, start_s=3, rendezvous_s=4, first_step_s=5)
    cost = move_cost(old, new, job, topology, Moving(restart, store_region="b", repeated_steps=2))
    assert dict(cost.parts()) == pytest.approx(
        {
            "stop and save": 1,
            "image on new machines": 20,
            "start of pods and processes": 3,
            "rendezvous": 4,
            "checkpoint read": 1.21,
            "checkpoint handed on": 2.41,
            "first step": 5,
            "steps made again": 2 * new.prediction.step_s,
        }
    )
    assert cost.sent_bytes == 3 * 12_000
    assert cost.seconds == pytest.approx(36.62 + 2 * new.prediction.step_s)
    capped = replace(topology, uplinks={"a": 1_000.0})
    assert move_cost(old, new, job, capped, Moving(restart)).hand_on_s == pytest.approx(24.01)
    own = replace(topology, node_links={("a0", "b0"): Link(0.02, 1_000_000), ("a0", "b1"): Link(0.02, 1_000_000)})
    assert move_cost(old, new, job, own, Moving(restart)).hand_on_s == pytest.approx(0.024 + 0.01)
    assert move_cost(new, old, job, topology, Moving(restart)).image_s == 0
    assert move_cost(new, old, job, without(topology, "b1"), Moving(restart)).stop_s == 0  # nobody there to stop


def test_a_machine_that_has_nothing_yet_fetches_the_whole_checkpoint() -> None:
    """2 GB of parameters, nothing of SGD's, over 4 Mbit/s: 4,000 s, and 5 ms of latency; 2,160 s are gained."""
    machines = (Machine("old", "a", flops_per_s=1e12), Machine("fast", "b", flops_per_s=1e13))
    slow = Link(0.01, 500_000)
    topology = Topology(machines, region_links={("a", "b"): slow, ("b", "a"): slow})
    model = Model.of_totals(500_000_000, 7.5e10, 0)
    job, old = on(topology, "old", model=model, optimizer="sgd", global_batch=40, max_workers=1)
    new = plan_of(job, topology, ("fast",), 1)
    cost = move_cost(old, new, job, topology, Moving())
    assert (cost.sent_bytes, cost.read_s) == (2_000_000_000, 0)
    assert cost.hand_on_s == pytest.approx(4_000.005)
    assert 800 * (old.prediction.step_s - new.prediction.step_s) == pytest.approx(2_160)
    found = replan(old, None, job, topology, Situation(800), budget=QUICK)
    assert found.verdict is Verdict.STAY
    assert "2.16e+03 s would be gained" in found.reason
    assert "the move costs 4.09e+03 s" in found.reason
    assert replan(old, None, job, topology, Situation(8_000), budget=QUICK).verdict is Verdict.MOVE


def test_machines_fetch_the_layers_that_they_lack_from_the_quickest_that_had_them() -> None:
    """Layers of 4,000, 8,000 and 12,000 bytes with SGD; the old plan has 0 and 1 on a0, 2 on b0.

    All on a0: layer 2 from b0, 12,000 bytes at 10 kB/s. Both stages anew on a1 and b1: 0 and 1 from a0 inside a, 2 from
    b0 inside b. The cut before 1: a0 lacks nothing, b0 gets 1 from a0, as b1 in a second replica does, on one link.
    """
    topology = two_regions(Link(0.02, 10_000), b1=1e12)
    layers = [Layer(f"layers.{n}", (n + 1) * 1_000, 1e9, 2e9, 8, 8) for n in range(3)]
    job = workload(topology, model=Model(tuple(layers)), optimizer="sgd", pipeline=None)

    def staged(names: str, first: tuple[int, ...]) -> Plan:
        slots = tuple(WorkerSlot(name, name[0], 1) for name in names.split())
        data = len(slots) // len(first)
        return Plan(
            job.key, 1, slots, (64 // data,) * data, 1, 1, NOT_PREDICTED, Layout(data, len(first)), stages=first
        )

    old = staged("a0 b0", (0, 2))
    for new, sent_bytes, seconds in (
        (staged("a0", (0,)), 12_000, 1.2 + 0.01),
        (staged("a1 b1", (0, 2)), 24_000, 12e-6 + 0.0001),
        (staged("a0 b0 a1 b1", (0, 1)), 8_000 + 4_000 + 20_000, 1.6 + 0.01),
        (old, 0, 0.0),
    ):
        cost = move_cost(old, new, job, topology, Moving())
        assert (cost.sent_bytes, cost.read_s) == (sent_bytes, 0)
        assert cost.hand_on_s == pytest.approx(seconds)
    lost = move_cost(old, staged("a0", (0,)), job, without(topology, "b0"), Moving())
    assert (lost.sent_bytes, lost.hand_on_s) == (0, 0)  # what b0 alone had is saved, nobody knows where
    assert (lost.num_lost_layers, cost.num_lost_layers) == (1, 0)
    capped = replace(topology, uplinks={"b": 2_000.0})
    assert move_cost(old, staged("a0", (0,)), job, capped, Moving()).hand_on_s == pytest.approx(6.01)


def test_a_checkpoint_that_is_stored_nobody_knows_where_is_only_handed_on() -> None:
    topology = two_regions(Link(0.02, 10_000))
    job, old = on(topology, "a0", model=Model.of_totals(1_000, 1e10, 0))
    new = plan_of(job, topology, ("b0", "a1"), 1)
    cost = move_cost(old, new, job, topology, Moving(is_stored=True))
    assert (cost.sent_bytes, cost.read_s, cost.hand_on_s) == (12_000, 0, pytest.approx(1.21))


def test_a_plan_whose_machines_are_all_gone_says_where_its_checkpoint_is_taken_to_be() -> None:
    topology = two_regions(Link(0.02, 10_000))
    job, plan = on(topology, "a0", model=Model.of_totals(1_000, 1e10, 0))
    gone = without(topology, "a0"), Situation(steps_left=100)
    found = replan(plan, None, job, *gone, budget=QUICK)
    assert isinstance(found.new, Plan)
    assert found.reason.endswith(
        f" No machine that is left had 1 of 1 layers: a checkpoint of them is taken to be on {found.new.machine(0, 0)} "
        "already, which costs nothing; name the region of its store where it is elsewhere."
    )
    for known in (Moving(store_region="b"), Moving(is_stored=True)):
        assert "No machine" not in replan(plan, None, job, *gone, known, budget=QUICK).reason


ADDED = Changes(added=(MachineAdded("b1", "b", 0, 1),))
DRIFTED = Changes(drifted=(LinkDrifted(("a", "b"), Link(0.02, 1e7), Link(0.02, 0.7e7)),))
SUDDEN = Changes(drifted=(LinkDrifted(("a", "b"), Link(0.02, 1e7), Link(0.02, 0.4e7)),))
NOISE = Changes(drifted=(LinkDrifted(("a", "b"), Link(0.02, 1e7), Link(0.02, 0.9e7)),))
GOOD = Weighed(step=1.0, new_step=0.8, steps_left=1_000, cost=100)  # gains 200 s


@pytest.mark.parametrize(
    ("name", "weighed", "changed", "held_s", "expected", "words"),
    [
        ("it pays", GOOD, ADDED, math.inf, "move", "200 s is gained over 1,000 steps (1 s a step -> 0.8 s) for"),
        ("nothing changed", GOOD, Changes(), math.inf, "stay", "no link drifted by a factor of 1.25"),
        ("noise", GOOD, NOISE, math.inf, "stay", "the most changed link by a factor of 1.11"),
        ("a drift that is young", GOOD, DRIFTED, 60, "stay", "60 s ago: only a change that lasts 120 s moves a job"),
        ("a drift that lasts", GOOD, DRIFTED, 120, "move", "which 500 steps pay back"),
        ("paid within a step", replace(GOOD, cost=0.05), ADDED, 900, "move", "which 1 step pays back"),
        ("paid within the third", replace(GOOD, cost=0.41), ADDED, 900, "move", "which 3 steps pay back"),
        ("a sudden drift", GOOD, SUDDEN, 0, "move", "100 s of moving"),
        ("a machine that is young", GOOD, ADDED, 10, "stay", "10 s ago"),
        ("nobody knows what changed", GOOD, Changes(is_whole=False), 0, "move", "200 s is gained"),
        ("a gain below the cost", replace(GOOD, steps_left=400), ADDED, 900, "stay", "80 s would be gained"),
        ("below the margin", replace(GOOD, steps_left=700), ADDED, 900, "stay", "150 s (the cost and 50% more)"),
        ("at the margin", replace(GOOD, cost=200 / 1.5), ADDED, 900, "stay", "must be exceeded"),
        ("hardly faster", replace(GOOD, new_step=0.96, steps_left=10**6), ADDED, 900, "stay", "4.0% of each: 5%"),
        ("slower", replace(GOOD, new_step=1.1), ADDED, 900, "stay", "No other plan is better"),
        ("no steps left", replace(GOOD, steps_left=0), ADDED, 900, "stay", "No step is left to be made"),
    ],
)
def test_gain_against_cost(
    name: str, weighed: Weighed, changed: Changes, held_s: float, expected: str, words: str
) -> None:
    verdict, reason = decide(weighed, changed, held_s, Policy())
    assert verdict == expected, (name, reason)
    assert words in reason
    assert reason.endswith(".")


@given(
    st.builds(
        Weighed,
        step=st.floats(1e-3, 1e3),
        new_step=st.floats(1e-3, 1e3),
        steps_left=st.integers(0, 10**6),
        cost=st.floats(0, 1e6),
    ),
    st.sampled_from([ADDED, DRIFTED, SUDDEN, NOISE, Changes(), Changes(is_whole=False)]),
    st.floats(0, 1e4),
    st.floats(0, 2),
)
def test_a_gain_that_the_cost_eats_never_moves(
    weighed: Weighed, changed: Changes, held_s: float, margin: float
) -> None:
    verdict, _ = decide(weighed, changed, held_s, Policy(margin=margin))
    if verdict is Verdict.MOVE:
        assert weighed.gain > weighed.cost * (1 + margin)
        assert weighed.faster >= Policy().least_faster
        assert not changed.is_whole or changed.added or changed.beyond(Policy().drift_factor)


@pytest.mark.parametrize(
    "wrong",
    [{"margin": -0.1}, {"least_faster": 1.0}, {"hold_s": math.inf}, {"drift_factor": 0.9}, {"sudden_factor": 1.1}],
)
def test_a_policy_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    (value,) = wrong.values()
    with pytest.raises(ValueError, match=str(value)):
        Policy(**wrong)


@st.composite
def running(draw: st.DrawFn) -> tuple[Topology, Workload, Plan]:
    """A world, a job, and its plan there."""
    topology = draw(worlds(max_machines=5, own_links=True))
    job = draw(jobs(topology))
    solution = solve((job,), (), topology, QUICK)
    return topology, job, solution.plans.get(job.key) or draw(st.nothing())


@settings(max_examples=num_examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(running(), st.integers(0, 10**6), st.data())
def test_never_moves_without_a_change_and_always_from_what_cannot_go_on(
    world: tuple[Topology, Workload, Plan], steps_left: int, data: st.DataObject
) -> None:
    topology, job, plan = world
    basis = basis_of(plan, job, topology)
    same = replan(plan, basis, job, topology, Situation(steps_left), budget=QUICK)
    assert (same.verdict, same.changes) == (Verdict.STAY, Changes())
    assert same.current is not None
    assert same.current.prediction == foresee(plan, job, topology)

    lost = data.draw(st.sampled_from(sorted(plan.accelerators())))
    left = without(topology, lost)
    found = replan(plan, basis, job, left, Situation(steps_left, held_s=0.0), budget=QUICK)
    assert found.current is None
    assert lost in found.reason
    if found.new is None:
        assert found.unplaced is not None
        assert not solve((job,), (), left, QUICK).plans
    else:
        assert found.verdict is Verdict.MOVE
        assert lost not in found.new.accelerators()
        assert found.cost is not None
        assert f"{steps_left:,} steps are left" in found.reason


@settings(max_examples=num_examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(running(), st.integers(1, 10**6), st.sampled_from([0.3, 0.8, 1.2, 4.0]), st.floats(0, 300))
def test_a_move_for_a_drift_pays_by_its_own_figures(
    world: tuple[Topology, Workload, Plan], steps_left: int, factor: float, held_s: float
) -> None:
    topology, job, plan = world
    basis = basis_of(plan, job, topology)
    links = {
        pair: replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)
        for pair, link in topology.region_links.items()
    }
    now = replace(topology, region_links=links)
    policy = Policy(hold_s=100)
    found = replan(plan, basis, job, now, Situation(steps_left, held_s), policy=policy, budget=QUICK)
    if found.verdict is Verdict.MOVE:
        assert found.weighed is not None
        assert found.cost is not None
        assert found.weighed.gain > 1.5 * found.cost.seconds
        assert held_s >= policy.hold_s or found.changes.beyond(policy.sudden_factor)
    if 1 / policy.drift_factor < factor < policy.drift_factor:
        assert found.verdict is Verdict.STAY


@settings(max_examples=num_examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(running())
def test_what_a_plan_was_made_of_comes_back_as_it_was_packed(world: tuple[Topology, Workload, Plan]) -> None:
    topology, job, plan = world
    basis = basis_of(plan, job, topology)
    packed = pack_basis(basis)
    assert not changes(plan, unpack_basis(packed), job, topology).beyond(1.000001)
    assert unpack_basis(packed).accelerators == basis.accelerators
    assert pack_basis(unpack_basis(packed)) == packed


def test_plans_of_a_pass_were_made_of_what_the_others_left_and_of_what_their_jobs_had() -> None:
    """a0 goes to the first job, b0 to the second, whose worker there waited already; a1 to nobody."""
    world = replace(two_regions(), machines=tuple(replace(m, num_accelerators=2) for m in two_regions().machines))
    free = replace(
        world, machines=tuple(replace(m, num_accelerators=1) if m.name == "b0" else m for m in world.machines)
    )
    (job, first), (_, second) = on(free, "a0"), on(free, "b0")
    other = replace(job, key="team/other", kept={"b0": 1})
    plans = {job.key: first, other.key: replace(second, key=other.key)}
    found = bases_of(plans, {job.key: job, other.key: other}, free)
    assert {key: dict(basis.accelerators) for key, basis in found.items()} == {
        job.key: {"a0": 2, "a1": 2, "b0": 0},
        other.key: {"a0": 1, "a1": 2, "b0": 2},
    }
    assert found[job.key] == replace(basis_of(first, job, free), accelerators=found[job.key].accelerators)
    assert found[job.key].regions is found[other.key].regions


def test_what_a_plan_was_made_of_stays_small_with_thousands_of_machines() -> None:
    machines = [f"gpu-{number:05d}" for number in range(5_000)]
    regions = {name: f"region-{number % 20}" for number, name in enumerate(machines)}
    links = {(a, b): Link(0.02, 1e8) for a in set(regions.values()) for b in set(regions.values())}
    packed = pack_basis(Basis(dict.fromkeys(machines, 8), regions, links, {}))
    assert len(packed) < 20_000
    assert unpack_basis(packed).regions == regions


@pytest.mark.parametrize(
    "packed", [b"", b"{}", gzip.compress(b"{", mtime=0), gzip.compress(b'{"machines": 3}', mtime=0)]
)
def test_what_was_not_packed_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_basis(packed)


def test_a_lost_machine_costs_the_steps_since_the_last_checkpoint_and_a_drift_none() -> None:
    topology = two_regions(b1=1e12)
    job, plan = on(topology, "a0", "b0", min_workers=2, max_workers=2)
    basis = basis_of(plan, job, topology)
    moving = Moving(repeated_steps=25)
    lost = replan(plan, basis, job, without(topology, "b0"), Situation(1_000), moving)
    assert lost.new is not None
    assert lost.cost is not None
    assert lost.cost.repeat_s == pytest.approx(25 * lost.new.prediction.step_s)
    drifted = replan(plan, basis, job, replace(topology, region_links={}), Situation(1_000), moving)
    assert drifted.cost is None or drifted.cost.repeat_s == 0


def test_with_few_steps_left_a_lost_machine_is_not_replaced_by_one_that_needs_the_image() -> None:
    """Two machines train on at half the speed; with many steps left the third is worth its start."""
    topology = Topology(
        tuple(Machine(name, "a", flops_per_s=1e12) for name in ("a0", "a1", "a2", "new")),
        region_links={("a", "a"): Link(0.0002, 1e9)},
    )
    job, plan = on(topology, "a0", "a1", "a2", max_workers=3)
    left = without(topology, "a2")
    basis = basis_of(plan, job, topology)
    used = {
        steps: replan(plan, basis, job, left, Situation(steps), Moving(Restart(image_s=60))).new for steps in (5, 5_000)
    }
    assert {steps: set(new.accelerators()) for steps, new in used.items() if new} == {
        5: {"a0", "a1"},
        5_000: {"a0", "a1", "new"},
    }


def test_speeds_that_nobody_knows_move_nobody() -> None:
    """A new machine may be as fast as the others; without any speed the step is all guess but for communication."""
    machines = tuple(Machine(name, "a") for name in ("a0", "a1", "new"))
    topology = Topology(machines, region_links={("a", "a"): Link(0.0002, 1e9)})
    job, before = workload(topology), without(topology, "new")
    plan = solve((job,), (), before).plans[job.key]
    basis = basis_of(plan, job, before)
    found = replan(plan, basis, job, topology, Situation(10**9))
    assert [machine.name for machine in found.changes.added] == ["new"]
    assert found.verdict is Verdict.STAY
    known = replace(job, flops_per_s={"a0": 1e12, "a1": 1e12})
    assert replan(plan, basis, known, topology, Situation(10**9)).verdict is Verdict.MOVE


def test_a_model_known_by_measured_seconds_alone_is_replanned() -> None:
    """3 s a sequence, 64 of them on two machines: 96 s; with the new machine 22 sequences, 66 s, are the most."""
    machines = tuple(Machine(name, "a", product="x") for name in ("a0", "a1", "new"))
    topology = Topology(machines, region_links={("a", "a"): Link(0.0002, 1e9)})
    times = LayerTimes((TimesRow("x", 1, 1, (1.0,), (2.0,)),))
    job = workload(topology, model=Model((Layer("l", 1_000, 0.0, 0.0, 1_000, 1_000),), times=times))
    before = without(topology, "new")
    plan = solve((may_use(job, before),), (), before).plans[job.key]
    found = replan(plan, basis_of(plan, job, before), job, topology, Situation(10**6))
    assert plan.prediction.compute_s == pytest.approx(96.0)
    assert found.verdict is Verdict.MOVE
    assert found.new is not None
    assert found.new.prediction.compute_s == pytest.approx(66.0)


def test_a_plan_whose_steps_have_no_end_cannot_go_on() -> None:
    job, plan = on(two_regions(), "a0", "b0", min_workers=2, max_workers=2)
    found = replan(plan, None, job, two_regions(Link(0.02, 1e-12)), Situation(100), budget=QUICK)
    assert found.verdict is Verdict.MOVE
    assert found.reason.startswith("The plan cannot go on: a step would take 1.05e+18 s, ")
    assert found.new is not None
    assert set(found.new.accelerators()) == {"a0", "a1"}


def test_for_money_a_move_must_save_money() -> None:
    """The new machine is faster and ten times as expensive."""
    machines = (
        Machine("a0", "a", flops_per_s=1e12, price_per_hour=1.0),
        Machine("new", "a", flops_per_s=2e12, price_per_hour=10.0),
    )
    topology = Topology(machines, region_links={("a", "a"): Link(0.0002, 1e9)})
    job, plan = on(topology, "a0", max_workers=1)
    basis = basis_of(plan, job, without(topology, "new"))
    assert replan(plan, basis, job, topology, Situation(10**6)).verdict is Verdict.MOVE
    cheap = replace(job, objective="throughput-per-money")
    assert replan(plan, basis, cheap, topology, Situation(10**6), budget=QUICK).verdict is Verdict.STAY
