"""The search for another plan begins with the one that is carried out; plan files tell what a plan was made of."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hulk_placement.basis import Basis, basis_of
from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.cost.predict import predict
from hulk_placement.files import text
from hulk_placement.files.current import read_current
from hulk_placement.files.plan_writing import plan_document
from hulk_placement.layouts.beginning import begin_at
from hulk_placement.layouts.place import place
from hulk_placement.layouts.plans import plan_of
from hulk_placement.layouts.space import space_of
from hulk_placement.layouts.trials import Trials
from hulk_placement.model import Model, Transformer
from hulk_placement.plan import Block, Plan, used_pairs
from hulk_placement.replan.changes import changes
from hulk_placement.solution import Budget
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

SHAPE = Transformer(layers=6, hidden=64, heads=2, sequence_length=32, vocabulary=128)


def cluster(*names: str) -> Topology:
    """Machines of two accelerators by name, the first letter being the region."""
    machines = tuple(
        Machine(name, name[0], num_accelerators=2, flops_per_s=1e12 if name[-1] == "0" else 2e12) for name in names
    )
    regions = dict.fromkeys(name[0] for name in names)
    links = {(a, b): Link(0.0002, 1e9) if a == b else Link(0.05, 2e7) for a in regions for b in regions}
    return Topology(machines, region_links=links)


def deep(topology: Topology, **asked: object) -> Workload:
    """A workload of any layout."""
    candidates = {machine.name: 2 for machine in topology.machines}
    job = Workload(
        "deep", Model.of(SHAPE), 24, candidates, max_workers=8, pipeline=None, tensor=None, sync=Sync("ring")
    )
    return replace(job, **asked)  # type: ignore[arg-type]


ALL = cluster("a0", "a1", "b0", "b1")


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Two stages, a replica in each region and one over both."""
    job = deep(ALL, data=3, pipeline=2, tensor=1, micro_batch=2)
    found = place(job, ALL, Budget(20_000))
    assert isinstance(found, Plan)
    return found


def test_the_search_begins_where_the_plan_is(plan: Plan) -> None:
    job = deep(ALL)
    trials = Trials(Ground.of(job, ALL, ALL.machines))
    begun = begin_at(trials, space_of(trials.ground), plan)
    assert begun is not None
    again = plan_of(trials, begun)
    assert again.accelerators() == plan.accelerators()
    assert (again.layout, again.stages, sorted(again.shares)) == (plan.layout, plan.stages, sorted(plan.shares))
    assert begun.cost == pytest.approx(predict(again, job, ALL).step_s, rel=0.05)


def test_the_search_begins_at_the_layout_of_a_plan_with_its_own_order_of_blocks(plan: Plan) -> None:
    job = deep(ALL)
    trials = Trials(Ground.of(job, ALL, ALL.machines))
    own = replace(plan, schedule="explicit", blocks=plan_blocks(plan))
    begun = begin_at(trials, space_of(trials.ground), own)
    assert begun is not None
    again = plan_of(trials, begun)
    assert (again.schedule, again.layout, again.stages) == ("1f1b", plan.layout, plan.stages)
    assert again.accelerators() == plan.accelerators()


def plan_blocks(plan: Plan) -> tuple[tuple[Block, ...], ...]:
    """All forward passes, then all backward passes, of as many micro-batches as the first replica has."""
    passes = range(math.ceil(plan.shares[0] / plan.micro_batch))
    order = (*(("F", number) for number in passes), *(("B", number) for number in passes))
    return (order,) * plan.layout.pipeline


def test_replicas_of_a_lost_machine_fall_away_and_the_others_take_their_sequences(plan: Plan) -> None:
    lost = plan.machine(0, 0)
    left = replace(ALL, machines=tuple(m for m in ALL.machines if m.name != lost))
    job = deep(left)
    trials = Trials(Ground.of(job, left, left.machines))
    begun = begin_at(trials, space_of(trials.ground), plan)
    num_whole = sum(lost not in {plan.machine(r, 0), plan.machine(r, 1)} for r in range(3))
    assert 0 < num_whole < 3
    assert begun is not None
    again = plan_of(trials, begun)
    assert (again.layout.data, sum(again.shares)) == (num_whole, 24)
    assert lost not in again.accelerators()


@pytest.mark.parametrize(
    ("name", "asked", "machines"),
    [
        ("other degrees are asked for", {"pipeline": 1}, ("a0", "a1", "b0", "b1")),
        ("another number of replicas", {"data": 2}, ("a0", "a1", "b0", "b1")),
        ("nothing is left", {}, ("c0", "c1")),
        ("more accelerators than are left at least", {"min_workers": 8}, ("a0", "a1", "b0", "b1")),
    ],
)
def test_where_too_little_is_left_the_search_begins_anew(
    name: str, asked: dict[str, object], machines: tuple[str, ...], plan: Plan
) -> None:
    topology = cluster(*machines)
    trials = Trials(Ground.of(deep(topology, **asked), topology, topology.machines))
    assert begin_at(trials, space_of(trials.ground), plan) is None, name


def test_a_search_that_begins_with_a_plan_is_never_worse_than_it() -> None:
    """With one evaluation more than the start takes, it has nothing else to offer."""
    job = deep(ALL)
    best = place(job, ALL, Budget(60_000))
    assert isinstance(best, Plan)
    again = place(job, ALL, Budget(1, seed=7), start=best)
    assert isinstance(again, Plan)
    assert again.prediction.step_s <= 1.02 * best.prediction.step_s


def written(plan: Plan, basis: Basis | None, folder: Path) -> Path:
    path = folder / "plan.yaml"
    path.write_text(text.dump(plan_document(plan, basis)))
    return path


def test_what_a_plan_was_made_of_comes_back_from_its_file(plan: Plan, tmp_path: Path) -> None:
    job = deep(ALL)
    own = {pair: Link(0.05, 1.7e7, num_streams=4) for pair in used_pairs(plan)[:2]}
    basis = basis_of(plan, job, replace(ALL, node_links=own))
    assert basis.machine_links.keys() == own.keys()
    found = read_current(written(plan, basis, tmp_path), job, ALL)
    assert found.basis == replace(
        basis,
        region_links={pair: replace(link, shared=None) for pair, link in basis.region_links.items()},
        machine_links={pair: replace(link, shared=None) for pair, link in basis.machine_links.items()},
    )
    assert replace(found.plan, prediction=plan.prediction, why=plan.why, iterations=plan.iterations) == replace(
        plan, optimality_gap=0.0
    )


def test_nothing_drifts_between_a_plan_and_its_file_where_latencies_are_of_one_way(plan: Plan, tmp_path: Path) -> None:
    """Of 10 ms there and 70 ms back each direction has a round trip of 80 ms; machines' own links are other ones."""
    ways = {("a", "b"): 0.01, ("b", "a"): 0.07}
    regions = {pair: Link(0.08, 2e7, one_way_s=one_way_s) for pair, one_way_s in ways.items()}
    own = {pair: Link(0.09, 2e7, one_way_s=0.03 if pair[0] < pair[1] else 0.06) for pair in used_pairs(plan)[:2]}
    there = replace(ALL, region_links={**ALL.region_links, **regions}, node_links=own)
    job = deep(there)
    found = read_current(written(plan, basis_of(plan, job, there), tmp_path), job, there)
    assert found.basis is not None
    assert {found.basis.region_links[pair].rtt_s for pair in ways} == {0.08}
    assert changes(plan, found.basis, job, there).drifted == ()


def test_a_plan_of_lost_machines_is_read_all_the_same(plan: Plan, tmp_path: Path) -> None:
    left = replace(ALL, machines=ALL.machines[:1])
    job = deep(left)
    known = read_current(written(plan, basis_of(plan, deep(ALL), ALL), tmp_path), job, left).plan
    assert known.workers == plan.workers
    unknown = read_current(written(plan, None, tmp_path), job, left)
    assert [worker.machine for worker in unknown.plan.workers] == [worker.machine for worker in plan.workers]
    assert unknown.basis is None


@pytest.mark.parametrize(
    ("made_of", "words"),
    [
        ("{machines: [{name: a0, region: a}, {name: a0, region: a}]}", "2 have only 1 different names"),
        (
            "{machines: [{name: a0, region: a}], links: [{source: a, target: z, rttSeconds: 1, bandwidth: unknown}]}",
            "neither a machine nor a region: z",
        ),
        ("{machines: [{name: a0}]}", "region"),
    ],
)
def test_what_cannot_be_of_a_basis_is_refused_with_its_place(
    made_of: str, words: str, plan: Plan, tmp_path: Path
) -> None:
    path = written(plan, None, tmp_path)
    path.write_text(path.read_text() + f"madeOf: {made_of}\n")
    with pytest.raises(ValueError, match=words) as caught:
        read_current(path, deep(ALL), ALL)
    assert "madeOf" in str(caught.value)


def test_a_plan_of_other_cells_than_its_layout_is_refused_with_its_file(plan: Plan, tmp_path: Path) -> None:
    path = written(plan, None, tmp_path)
    values = text.load(path.read_text())
    path.write_text(text.dump({**values, "layout": {"data": 3, "pipeline": 5}}))
    with pytest.raises(ValueError, match=r"2, of a layout with 3|cells") as caught:
        read_current(path, deep(ALL), ALL)
    assert str(caught.value).startswith(f"{path}: ")
