"""Plans that use Hulk's own all-reduce: which transport and machines, what is proven, what is on the wire."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import worlds
from hulk_placement import wire
from hulk_placement.collective.network import build_network
from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from hulk_placement.layouts.reducing import ways
from hulk_placement.model import Layer, Model, Transformer
from hulk_placement.plan import Plan
from hulk_placement.search.making import make_plan
from hulk_placement.search.problem import Problem, build
from hulk_placement.search.region_sets import MOST_LISTED_REGIONS, RegionSets
from hulk_placement.search.ring.region_graph import Work
from hulk_placement.search.transport import _collective
from hulk_placement.search.why_wan import crossover
from hulk_placement.solve import solve
from hulk_placement.sync import Rounds, Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given, settings
from hypothesis import strategies as st
from test_planner_wire import SCHEMA, meta_of

GOLDEN = Path(__file__).parent / "golden" / "plan-wan-v1.json"
BIG = Model.of_totals(4_000_000, 1e11, 1000)
GPT = Model.of(Transformer(layers=12, hidden=768, heads=12, sequence_length=1024, vocabulary=50257))


def job(topology: Topology, mode: str = "auto", **changes: object) -> Workload:
    sync = changes.pop("sync", Sync(mode))
    return worlds.workload(topology, **{"sync": sync, "model": BIG, **changes})


def planned(asked: Workload, topology: Topology) -> Plan:
    return solve([asked], [], topology).plans[asked.key]


@pytest.mark.parametrize("name", ["A", "B"])
def test_auto_takes_the_faster_one(name: str) -> None:
    topology = worlds.profile(name)
    ring, wan, auto = (planned(job(topology, mode), topology) for mode in ("ring", "wan", "auto"))
    assert (ring.algorithm, wan.algorithm) == ("ring", "wan")
    assert wan.prediction.step_s < ring.prediction.step_s
    assert auto.algorithm == "wan"
    assert auto.prediction.step_s == wan.prediction.step_s
    assert any(f"gloo's ring would take {ring.prediction.step_s:.3f} s" in sentence for sentence in auto.why)
    assert any(sentence.startswith("Physics: no all-reduce") for sentence in auto.why)


def test_one_region_stays_with_the_ring_whatever_is_asked() -> None:
    inside = {("eu", "eu"): Link(0.001, 1e9)}
    topology = Topology(tuple(Machine(f"m{n}", "eu", flops_per_s=1e12) for n in range(3)), region_links=inside)
    for mode in ("auto", "wan"):
        assert planned(job(topology, mode), topology).algorithm == "ring"


def test_a_region_that_may_be_lost_needs_hulks_own() -> None:
    topology = worlds.profile("B")
    plan = planned(job(topology, sync=Sync(on_region_loss="continue")), topology)
    assert plan.collective is not None
    assert [cut.region for cut in plan.collective.without] == list(range(len(plan.collective.network.regions)))
    assert plan.collective.on_region_loss == "continue"


def test_compression_makes_the_all_reduce_faster() -> None:
    topology = worlds.profile("A")
    plain = planned(job(topology, min_workers=6), topology)
    small = planned(job(topology, min_workers=6, sync=Sync(compression="int8")), topology)
    assert small.collective is not None
    assert small.collective.compression == "int8"
    assert small.prediction.communication_s < plain.prediction.communication_s / 2


def test_a_price_limit_that_binds_nothing_costs_nothing() -> None:
    """The shortest step stands where it is affordable."""
    topology = worlds.profile("A")
    topology = replace(topology, machines=tuple(replace(m, price_per_hour=1.0) for m in topology.machines))
    free, limited = (planned(job(topology, "wan", max_price_per_hour=most), topology) for most in (None, 1e6))
    assert (free.algorithm, free.num_buckets) == (limited.algorithm, limited.num_buckets) == ("wan", 4)
    assert limited.prediction.step_s <= free.prediction.step_s * 1.001


@pytest.mark.parametrize(
    ("mode", "is_best", "found"), [("auto", True, {1, 2}), ("auto", False, set()), ("wan", False, {1, 2})]
)
def test_without_time_flows_are_planned_for_the_best_layout_or_where_nothing_else_would_do(
    mode: str, is_best: bool, found: set[int]
) -> None:
    topology = worlds.profile("A")
    asked = job(topology, mode)
    plan = planned(asked, topology)
    assert plan.collective is not None
    plain = replace(plan, collective=None, algorithm="ring")
    made = list(ways(plain, asked, topology, lambda: 0.0, is_best=is_best))
    assert {way.num_buckets for way in made if way.algorithm == "wan"} == found
    assert made
    assert {way.num_buckets for way in ways(plain, asked, topology, lambda: math.inf) if way.algorithm == "wan"} == {
        1,
        2,
        4,
    }


def test_the_order_of_ranks_that_compute_as_long_does_not_matter() -> None:
    """Three quick passes end with one slow one; the gradients are there when the last one's are."""
    topology = worlds.profile("A")
    quick, slow = "P0", "O0"
    machines = tuple(replace(m, flops_per_s=3e12 if m.name == quick else 1e12) for m in topology.machines)
    topology = replace(topology, machines=machines)
    steps = []
    for pins in ((quick, slow), (slow, quick)):
        asked = job(topology, "wan", pins=pins, global_batch=4, micro_batch=1, shares="planned")
        plan = planned(asked, topology)
        assert sorted(plan.shares) == [1, 3]
        steps.append(plan.prediction.step_s)
        assert simulate(plan, asked, topology).step_s == pytest.approx(steps[-1], rel=0.03)
    assert steps[0] == pytest.approx(steps[1], rel=1e-9)


def test_local_sgd_bears_its_part_of_an_outer_step() -> None:
    topology = worlds.profile("B")
    often, rarely = (planned(job(topology, sync=Sync("local", steps), min_workers=6), topology) for steps in (10, 100))
    assert (often.inner_steps, rarely.inner_steps) == (10, 100)
    assert rarely.prediction.communication_s == pytest.approx(often.prediction.communication_s / 10)
    assert often.num_buckets == 1


def test_local_sgd_has_the_workers_that_pay_when_steps_share_an_all_reduce() -> None:
    """20 MB over 10 Mbit/s take longer than a step: 4 workers pay only with an all-reduce every 50 steps."""
    model = Model((Layer("all", 5_000_000, 1e12, 2e12, 0, 1000),))
    machines = tuple(Machine(f"a{number}", "a", flops_per_s=1e12) for number in range(4))
    world = Topology(machines, region_links={("a", "a"): Link(0.02, 1.25e6)})
    asked = Workload("a/b", model, 4, {machine.name: 1 for machine in machines}, max_workers=4, sync=Sync("ring"))
    assert len(planned(asked, world).workers) == 1
    plan = planned(replace(asked, sync=Sync("local", 50)), world)
    assert (len(plan.workers), plan.inner_steps, plan.optimality_gap) == (4, 50, 0.0)
    assert plan.prediction.step_s == pytest.approx(3.48, rel=0.01)


@pytest.mark.parametrize("mode", ["wan", "local"])
def test_a_plan_names_the_seconds_a_step_of_local_sgd_and_of_a_synchronous_one(mode: str) -> None:
    """The same as a plan of the other mode predicts, on the same workers."""
    topology = worlds.profile("B")
    here, local, wan = (
        planned(job(topology, sync=Sync(way, 20), min_workers=6), topology) for way in (mode, "local", "wan")
    )
    (sentence,) = [sentence for sentence in here.why if sentence.startswith("Local SGD with 20 inner steps")]
    told = [float(word) for word in re.findall(r"([0-9.]+) s(?: a step|\b \()", sentence)]
    assert told[0] == pytest.approx(local.prediction.step_s, rel=0.02)
    assert told[1] == pytest.approx(wan.prediction.step_s, rel=0.02 if mode == "wan" else 0.5)  # in other buckets
    mine = told[0] if mode == "local" else told[1]
    assert mine == pytest.approx(here.prediction.step_s, abs=6e-4)


def test_crossover_is_where_a_tenth_of_the_computation_is_waited() -> None:
    topology = worlds.profile("B")
    asked = job(topology, "wan", min_workers=6, model=Model.of_totals(16_000_000, 4e11, 1000))
    plan = planned(asked, topology)
    problem = build(asked, topology)
    assert isinstance(problem, Problem)
    network = build_network(topology, plan.rank_machines)
    factor = crossover(problem, plan, network)
    assert factor is not None
    faster = replace(
        topology,
        region_links={
            (a, b): replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * (factor if a != b else 1))
            for (a, b), link in topology.region_links.items()
        },
    )
    there = planned(replace(asked, sync=Sync("wan")), faster).prediction
    assert there.communication_s == pytest.approx(0.1 * there.compute_s, rel=0.1)


def test_longer_backward_passes_of_as_much_computation_hide_more_of_the_sums() -> None:
    topology, factors = worlds.profile("B"), []
    for backward in (0.5, 0.99):
        model = Model((Layer("all", 16_000_000, (1 - backward) * 4e11, backward * 4e11, 0, 1000),))
        asked = job(topology, "wan", min_workers=6, model=model, micro_batch=2)
        plan, problem = planned(asked, topology), build(asked, topology)
        assert isinstance(problem, Problem)
        factors.append(crossover(problem, plan, build_network(topology, plan.rank_machines)))
    assert factors[0] is not None
    assert factors[1] is not None
    assert factors[1] < 0.9 * factors[0]


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_the_stated_gap_is_true(data: st.DataObject) -> None:
    """No plan of Hulk's own over any machines, as fully planned, is faster than the gap allows."""
    topology = data.draw(worlds.worlds(max_machines=5))
    asked = replace(data.draw(worlds.jobs(topology)), sync=Sync("wan"))
    solution = solve([asked], [], topology)
    problem = build(asked, topology)
    if asked.key not in solution.plans or not isinstance(problem, Problem):
        return
    found = solution.plans[asked.key]
    if found.algorithm != "wan":
        return
    least_s = found.prediction.step_s * (1 - found.optimality_gap) * (1 - 1e-9)
    for size in range(max(2, asked.min_workers), asked.max_workers + 1):
        for order in itertools.combinations(range(len(problem.names)), size):
            if len({problem.region_of[m] for m in order}) > 1:
                other = full_plan(problem, order)
                assert other is None or other.prediction.step_s >= least_s


def full_plan(problem: Problem, order: tuple[int, ...]) -> Plan | None:
    try:
        collective = _collective(problem, order, (1, 4), Work(1_000_000), whole=False)
    except ValueError:  # regions that do not reach each other
        return None
    return min((make_plan(problem, order, k, collective) for k in (1, 4)), key=lambda plan: plan.prediction.step_s)


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_every_plan_is_what_the_evaluator_says_and_fits_the_schema(data: st.DataObject) -> None:
    topology = data.draw(worlds.worlds(slots=True))
    mode = data.draw(st.sampled_from(["auto", "wan", "local"]))
    asked = replace(data.draw(worlds.jobs(topology)), sync=Sync(mode, rounds=Rounds(0.5, 0.8, 4, 3, 9)))
    for plan in solve([asked], [], topology).plans.values():
        assert plan.prediction == predict(plan, asked, topology)
        assert asked.min_workers <= len(plan.workers) <= asked.max_workers
        assert all(count <= topology.machine(name).num_accelerators for name, count in plan.accelerators().items())
        document = json.loads(json.dumps(wire.document(plan, meta_of(asked))))
        jsonschema.validate(document, SCHEMA)
        decoded, meta = wire.decode(wire.encode(plan, meta_of(asked)))
        assert json.loads(json.dumps(wire.document(decoded, meta))) == document
        rounds = {"outerLearningRate": 0.5, "outerMomentum": 0.8, "fragments": 4, "delaySteps": 3, "warmupSteps": 9}
        is_local = document.get("sync", {}).get("mode") == "local"
        assert rounds.items() <= document.get("sync", {}).items() or not is_local
        assert is_local == (mode == "local")


def test_a_plan_says_what_a_region_shares() -> None:
    """The runtime paces by it, and a plan that is read again is predicted as it was."""
    topology = replace(worlds.profile("B"), uplinks={"O": 3e6})
    asked = job(topology, "wan", min_workers=6)
    plan = planned(asked, topology)
    document = json.loads(json.dumps(wire.document(plan, meta_of(asked))))
    jsonschema.validate(document, SCHEMA)
    number = document["collective"]["regions"].index("O")
    assert document["collective"]["uplinks"] == [[number, 3_000_000, 3_000_000]]
    decoded, _ = wire.decode(wire.encode(plan, meta_of(asked)))
    assert decoded.collective is not None
    assert plan.collective is not None
    network = decoded.collective.network
    assert (network.egress, network.ingress) == (plan.collective.network.egress, plan.collective.network.ingress)


def pairs(uplinks: dict[str, float]) -> tuple[Workload, Topology]:
    """Two machines in each of two regions; nearly all of a pass is backward, and gradients are 4 MB."""
    machines = tuple(Machine(f"{region}{n}", region, flops_per_s=1e12) for region in "ab" for n in "01")
    links = {(a, b): Link(1e-4, 1e9) if a == b else Link(0.02, 2e7) for a in "ab" for b in "ab"}
    topology = Topology(machines, region_links=links, uplinks=uplinks)
    model = Model((Layer("all", 1_000_000, 1e10, 1.99e12, 0, 1000),))
    return job(topology, "wan", model=model, global_batch=4, micro_batch=1, min_workers=4, max_workers=4), topology


def test_buckets_follow_each_other_no_quicker_than_an_uplink_lets_them() -> None:
    """4 MB through 1 MB/s, of which a bucket less than all overlaps with the backward pass of 2 s."""
    asked, topology = pairs(uplinks={"a": 1e6})
    plan = planned(asked, topology)
    assert plan.num_buckets == 4
    least_s = 4.0 - 0.75 * 1.99
    assert least_s < plan.prediction.communication_s < 1.1 * least_s
    assert simulate(plan, asked, topology).step_s == pytest.approx(plan.prediction.step_s, rel=0.05)


@pytest.mark.parametrize("num_buckets", [1, 2, 4, 16])
def test_buckets_follow_each_other_no_quicker_than_a_regions_inside_lets_them(num_buckets: int) -> None:
    """Three machines a region: two thirds of 16 MB go through each one's 2 MB/s inside, in one pass."""
    machines = tuple(Machine(f"{region}{n}", region, flops_per_s=1e15) for region in "ab" for n in range(3))
    links = {(a, b): Link(0.001, 2e6 if a == b else 1e8) for a in "ab" for b in "ab"}
    topology = Topology(machines, region_links=links)
    asked = job(topology, "wan", min_workers=6)
    plan = replace(planned(asked, topology), num_buckets=num_buckets)
    found = predict(plan, asked, topology)
    assert found.communication_s > 2 / 3 * 16 / 2 * 0.99
    assert simulate(plan, asked, topology).step_s == pytest.approx(found.step_s, rel=0.05)


def test_moves_of_single_workers_leave_work_for_hulks_own_all_reduce() -> None:
    """Shares by speed are no worse than equal ones, whose search has no such moves."""
    draw = random.Random(1)
    machines = tuple(Machine(f"m{n}", f"r{n % 8}", flops_per_s=draw.choice((1e13, 2e13, 3e13))) for n in range(300))
    regions = {machine.region for machine in machines}
    links = {
        (a, b): Link(draw.uniform(0.01, 0.25), 10 ** draw.uniform(7.5, 8.5)) if a != b else Link(0.0005, 1.2e9)
        for a in sorted(regions)
        for b in sorted(regions)
    }
    topology = Topology(machines, region_links=links)
    asked = job(topology, model=GPT, global_batch=2400)
    equal, by_speed = (planned(replace(asked, shares=shares), topology) for shares in ("equal", "planned"))
    assert equal.algorithm == "wan"
    assert by_speed.prediction.step_s <= equal.prediction.step_s


def test_the_floor_of_regions_takes_the_backward_passes_that_are_known() -> None:
    """Where a pass is nearly all backward, nearly all of it hides sums."""
    asked, topology = pairs(uplinks={"a": 3e6})
    plan, problem = planned(asked, topology), build(asked, topology)
    assert isinstance(problem, Problem)
    known = RegionSets(problem, Work(1000)).of(frozenset({0, 1}))
    assert known is not None
    assert known.floor_s <= plan.prediction.step_s
    assert known.floor_s < known.compute_s + known.bound_s - 2 / 3 * known.compute_s


def test_regions_are_chosen_by_the_buckets_that_a_plan_may_have() -> None:
    """A far third region costs 2.4 s at once and saves 2 s; in buckets most of the sums are hidden."""
    machines = tuple(Machine(region, region, flops_per_s=1e12) for region in "abc")
    links = {(a, b): Link(0.001, 1.7e6 if "c" in (a, b) else 2e7) for a in "abc" for b in "abc" if a != b}
    topology = Topology(machines, region_links=links, uplinks={"c": 1.7e6})
    model = Model((Layer("all", 1_000_000, 1e10, 1.99e12, 0, 1000),))
    plan = planned(job(topology, "wan", model=model, global_batch=6, micro_batch=1, min_workers=2), topology)
    assert (len(plan.workers), plan.num_buckets) == (3, 4)
    assert plan.prediction.step_s < 5.2


def test_many_regions_are_planned() -> None:
    regions = [f"r{n}" for n in range(MOST_LISTED_REGIONS + 2)]
    links = {(a, b): Link(0.02 * (1 + abs(i - j)), 1e7) for i, a in enumerate(regions) for j, b in enumerate(regions)}
    topology = Topology(tuple(Machine(region, region, flops_per_s=1e12) for region in regions), region_links=links)
    plan = planned(job(topology), topology)
    assert plan.algorithm == "wan"
    assert 0 < plan.optimality_gap < 1


def golden_plan() -> tuple[Plan, Workload]:
    topology = worlds.profile("B")
    asked = job(topology, key="team/gpt", attempt=3, min_workers=6, sync=Sync("local", 20, on_region_loss="continue"))
    return planned(asked, topology), asked


@pytest.mark.parametrize(
    ("sync", "version", "encryption"),
    [(Sync("wan"), 2, "wan"), (Sync("wan", encryption="none"), 1, "none"), (Sync("ring"), 1, None)],
)
def test_a_runtime_that_cannot_encrypt_does_not_read_a_plan_that_wants_it(
    sync: Sync, version: int, encryption: str | None
) -> None:
    topology = worlds.profile("B")
    asked = job(topology, min_workers=6, sync=sync)
    document = wire.document(planned(asked, topology), meta_of(asked))
    assert document["version"] == version
    assert document.get("collective", {}).get("encryption") == encryption


def test_golden_file_is_a_plan_and_fits_the_schema() -> None:
    """The runtime's tests read the same file. Shares are a solver's: another version of it may find others as good."""
    golden = json.loads(GOLDEN.read_text())
    jsonschema.validate(golden, SCHEMA)
    plan, meta = wire.decode(gzip.compress(GOLDEN.read_bytes()))
    assert wire.document(plan, meta) == golden
    fresh, _ = golden_plan()
    assert fresh.prediction.step_s == pytest.approx(plan.prediction.step_s, rel=0.02)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("no flows", {"collective": None}),
        ("ring with flows", {"algorithm": "ring"}),
        ("another region", {"regions": ["P", "O", "X"]}),
        ("a cycle", {"flow": {"exchange": [0], "reduce": [[1, 2], [2, 1]], "broadcast": [[1, 0], [2, 0]]}}),
        ("a region left out", {"flow": {"exchange": [0], "reduce": [[1, 0]], "broadcast": [[1, 0]]}}),
        ("sizes that fall", {"sizes": [2, 1]}),
    ],
)
def test_bad_flows_are_refused(name: str, change: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- the words of several checks
        wire.decode(gzip.compress(bad_plan(change)))


def bad_plan(change: dict[str, object]) -> bytes:
    """The golden plan with one thing wrong, its digest right."""
    body = json.loads(GOLDEN.read_text())
    del body["digest"]
    collective = body["collective"]
    if "collective" in change:
        del body["collective"]
    elif "algorithm" in change:
        body["algorithm"] = change["algorithm"]
    elif "regions" in change:
        collective["regions"] = change["regions"]
    elif "flow" in change:
        collective["classes"][0]["flows"] = [{"share": 1.0, **dict(change["flow"])}]  # type: ignore[call-overload]
    else:
        for found, size in zip(collective["classes"], change["sizes"], strict=False):  # type: ignore[call-overload]
            found["maxBytes"] = size
    text = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    return json.dumps({**body, "digest": hashlib.sha256(text).hexdigest()}).encode()
