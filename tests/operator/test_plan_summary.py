"""What the status says of a plan's places: every layer, in every stage, with its regions."""

from api_vectors import job
from hulk_operator.api import HulkJob
from hulk_operator.reconcile.summary import plan_summary
from hulk_placement.model import Model, Transformer
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.topology import Machine, Topology

MODEL = Model.of(Transformer(layers=4, hidden=8, heads=2, sequence_length=4, vocabulary=16))
NODES = {"e1": "eu", "e2": "eu", "u1": "us", "a1": "ap"}
TOPOLOGY = Topology(tuple(Machine(name, region) for name, region in NODES.items()))


def plan(layout: Layout, stages: tuple[int, ...], workers: dict[str, int]) -> Plan:
    """Ranks are on `workers`' accelerators, in order."""
    slots = tuple(WorkerSlot(name, NODES[name], num) for name, num in workers.items())
    return Plan("a/b", 1, slots, (1,) * layout.data, 1, 1, NOT_PREDICTED, layout, stages=stages)


def places(found: Plan) -> list[tuple[str, int, int, tuple[str, ...]]]:
    layers = plan_summary(HulkJob.model_validate(job({})), found, "digest", TOPOLOGY, MODEL).layers
    return [(place.layers, place.num_nodes, place.num_regions, place.regions) for place in layers]


def test_without_stages_every_node_has_all_layers() -> None:
    assert places(plan(Layout(3), (0,), {"u1": 1, "e2": 2})) == [("0-5", 2, 2, ("eu", "us"))]


def test_layers_are_where_their_stage_is() -> None:
    """Ranks run (replica, stage, tensor): e1 and u1 hold the stages of the first replica, e2 and a1 of the second."""
    found = plan(Layout(2, 2, 2), (0, 5), {"e1": 2, "u1": 2, "e2": 2, "a1": 2})
    assert places(found) == [("0-4", 2, 1, ("eu",)), ("5", 2, 2, ("ap", "us"))]


def test_stages_in_the_same_regions_are_one_place() -> None:
    found = plan(Layout(1, 4), (0, 2, 3, 5), {"e1": 1, "e2": 1, "u1": 1, "a1": 1})
    assert places(found) == [("0-2", 2, 1, ("eu",)), ("3-4", 1, 1, ("us",)), ("5", 1, 1, ("ap",))]


def test_of_many_regions_the_first_are_named() -> None:
    names = {f"n{number}": f"r{number}" for number in range(6)}
    topology = Topology(tuple(Machine(name, region) for name, region in names.items()))
    slots = tuple(WorkerSlot(name, region, 1) for name, region in names.items())
    found = Plan("a/b", 1, slots, (1,) * 6, 1, 1, NOT_PREDICTED, Layout(6))
    [place] = plan_summary(HulkJob.model_validate(job({})), found, "digest", topology, MODEL).layers
    assert (place.num_regions, place.regions) == (6, ("r0", "r1", "r2", "r3"))
