"""What the status says of a plan's places: every layer, in every stage, with its regions."""

from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO

from api_vectors import job
from hulk_operator.api import HulkJob, PlanSummary
from hulk_operator.cli import tables
from hulk_operator.metrics import RingPlace, ring
from hulk_operator.reconcile.plan_summary import plan_summary, prediction_summary
from hulk_placement.model import Model, Transformer
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.sync import Rounds
from hulk_placement.topology import Machine, Topology
from rich.console import Console

MODEL = Model.of(Transformer(layers=4, hidden=8, heads=2, sequence_length=4, vocabulary=16))
NODES = {"e1": "eu", "e2": "eu", "u1": "us", "a1": "ap"}
TOPOLOGY = Topology(tuple(Machine(name, region) for name, region in NODES.items()))


def plan(layout: Layout, stages: tuple[int, ...], workers: dict[str, int]) -> Plan:
    """Ranks are on `workers`' accelerators, in order."""
    slots = tuple(WorkerSlot(name, NODES[name], num) for name, num in workers.items())
    return Plan("a/b", 1, slots, (1,) * layout.data, 1, 1, NOT_PREDICTED, layout, stages=stages)


def summary(found: Plan) -> PlanSummary:
    return plan_summary(
        HulkJob.model_validate(job({})), found, "digest", TOPOLOGY, MODEL, rounds=Rounds(warmup_steps=200)
    )


def places(found: Plan) -> list[tuple[str, int, int, tuple[str, ...]]]:
    return [(place.layers, place.num_nodes, place.num_regions, place.regions) for place in summary(found).layers]


def test_without_stages_every_node_has_all_layers() -> None:
    assert places(plan(Layout(3), (0,), {"u1": 1, "e2": 2})) == [("0-5", 2, 2, ("eu", "us"))]


def test_layers_are_where_their_stage_is() -> None:
    """Ranks run (replica, stage, tensor): e1 and u1 hold the stages of the first replica, e2 and a1 of the second."""
    found = plan(Layout(2, 2, 2), (0, 5), {"e1": 2, "u1": 2, "e2": 2, "a1": 2})
    assert places(found) == [("0-4", 2, 1, ("eu",)), ("5", 2, 2, ("ap", "us"))]


def test_stages_in_the_same_regions_are_one_place() -> None:
    found = plan(Layout(1, 4), (0, 2, 3, 5), {"e1": 1, "e2": 1, "u1": 1, "a1": 1})
    assert places(found) == [("0-2", 2, 1, ("eu",)), ("3-4", 1, 1, ("us",)), ("5", 1, 1, ("ap",))]


def test_stages_are_listed_with_their_accelerators() -> None:
    """Two replicas: e1 and e2 have layers 0 to 4, u1 and a1 layer 5."""
    found = summary(plan(Layout(2, 2), (0, 5), {"e1": 1, "u1": 1, "e2": 1, "a1": 1}))
    rows = [(row.stage, row.layers, row.num_accelerators, row.num_nodes, row.regions) for row in found.stages]
    assert rows == [(0, "0-4", 2, 2, ("eu",)), (1, "5", 2, 2, ("ap", "us"))]
    assert found.schedule == "1f1b"


def test_of_many_stages_the_first_are_listed() -> None:
    model = Model.of(Transformer(layers=30, hidden=8, heads=2, sequence_length=4, vocabulary=16))
    slots = tuple(WorkerSlot("e1", "eu", 1) for _ in range(20))
    long = Plan("a/b", 1, slots, (1,), 1, 1, NOT_PREDICTED, Layout(1, 20), stages=tuple(range(20)))
    found = plan_summary(HulkJob.model_validate(job({})), long, "digest", TOPOLOGY, model)
    assert [row.stage for row in found.stages] == list(range(16))
    assert found.layout.pipeline == 20


def test_the_order_is_that_of_the_first_stages_ring() -> None:
    workers = {"e1": 1, "e2": 1, "u1": 1, "a1": 1}
    found = replace(plan(Layout(2, 2), (0, 5), workers), rings=((1, 0), (0, 1)))
    assert summary(found).order == ("us", "eu")
    assert summary(plan(Layout(4), (0,), workers)).order == ("eu", "us", "ap")
    assert ring(found) == (RingPlace("u1", "us"), RingPlace("e1", "eu"))


def test_of_many_regions_the_first_are_named() -> None:
    names = {f"n{number}": f"r{number}" for number in range(6)}
    topology = Topology(tuple(Machine(name, region) for name, region in names.items()))
    slots = tuple(WorkerSlot(name, region, 1) for name, region in names.items())
    found = Plan("a/b", 1, slots, (1,) * 6, 1, 1, NOT_PREDICTED, Layout(6))
    [place] = plan_summary(HulkJob.model_validate(job({})), found, "digest", topology, MODEL).layers
    assert (place.num_regions, place.regions) == (6, ("r0", "r1", "r2", "r3"))


def test_replicas_that_train_apart_say_how_they_come_together_and_how_little_they_wait() -> None:
    every = plan(Layout(2), (0,), {"e1": 1, "u1": 1})
    apart = replace(every, inner_steps=50, fragments=4, delay_steps=2)
    waits = replace(NOT_PREDICTED, step_s=1.0, compute_s=0.961, communication_s=0.039)
    found, now = summary(apart).rounds, datetime(2026, 1, 1, tzinfo=UTC)
    assert found is not None
    expected = {"inner_steps": 50, "fragments": 4, "delay_steps": 2, "compression": "none", "warmup_steps": 200}
    expected |= {"outer_learning_rate": "0.7", "outer_momentum": "0.9"}
    assert found.model_dump() == expected
    assert prediction_summary(waits, apart, "assumed", now).utilisation_percent == 96
    assert summary(every).rounds is None
    assert prediction_summary(waits, every, "assumed", now).utilisation_percent is None
    found_job = HulkJob.model_validate(job({}))
    status = {"plan": summary(apart), "prediction": prediction_summary(waits, apart, "assumed", now)}
    shown = found_job.model_copy(update={"status": found_job.status.model_copy(update=status)})
    console = Console(file=StringIO(), width=200)
    console.print(tables.job_state(shown, now))
    words = (
        "50 steps in 4 fragments, each merged 2 steps late; outer learning rate 0.7, momentum 0.9; the first 200 "
        "together; predicted utilisation 96%"
    )
    assert words in console.file.getvalue()  # type: ignore[attr-defined]
