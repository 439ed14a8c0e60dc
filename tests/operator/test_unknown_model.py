"""A job that says nothing of its model: planned by links, never predicted, measured, planned again by the measure."""

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hulk_operator.api import HulkJob, HulkJobStatus, HulkTopologySpec, Observed, ObservedModel
from hulk_operator.cli.cluster_plans import plan_from_cluster
from hulk_operator.cli.plan_reports import plan_from_files
from hulk_operator.cluster import HULK_JOBS, HULK_TOPOLOGIES, ApiResource, Object
from hulk_operator.inputs.speeds import ShownSpeeds, known_speeds, with_speeds
from hulk_operator.inputs.unknown_model import ASSUMED_PARAMETERS, measured_model, reference_speeds, template_digest
from hulk_operator.inputs.workloads import Situation, to_model, to_workload
from hulk_operator.observation import Observation
from hulk_operator.reconcile.recipe import decide
from hulk_operator.reconcile.steps.planning import committed
from hulk_operator.reconcile.types import Memory, Planned, Poll, Sighting
from hulk_operator.watched import NodeState
from hulk_operator.worker_answers import parse_metrics
from hulk_placement.cost.compute import speeds
from hulk_placement.cost.predict import predict
from hulk_placement.model import Model
from hulk_placement.solve import solve
from hulk_placement.topology import Link, Machine, Topology
from test_planning import job, node, planning_over, shown
from views import LAUNCHED, NODES, NOW, ago, decision, full, gang, running, view
from views import job as a_job

TEMPLATE = {"spec": {"containers": [{"name": "w", "image": "i", "command": ["hulk-launch", "train.py"]}]}}
SLOW, FAST = (
    {"rttMicroseconds": 50_000, "bandwidthBytesPerSecond": 10**6},
    {
        "rttMicroseconds": 100,
        "bandwidthBytesPerSecond": 10**10,
    },
)


def minimal(name: str = "demo", namespace: str = "lab", **more: Any) -> HulkJob:
    """Workers and a template, as the API server fills in the rest."""
    metadata = {"name": name, "namespace": namespace, "uid": "u1", "resourceVersion": "7", "generation": 3}
    return HulkJob.model_validate(
        {"metadata": metadata, "spec": {"workers": {"max": 3}, "template": TEMPLATE, **more}, "status": {}}
    )


def stored(one: HulkJob) -> tuple[ApiResource, Object]:
    return HULK_JOBS, {"apiVersion": "hulk.dev/v1alpha1", "kind": "HulkJob", **one.wire(), "status": one.status.wire()}


def measured(
    one: HulkJob, gradient_bytes: int, template: str = "", at: datetime = NOW, compute_s: float = 0.0, **more: Any
) -> HulkJob:
    """With what first steps measured; of a compute time on node a."""
    sizes = {"parameters": 7, "gradient_bytes": gradient_bytes, "template": template or template_digest(one.spec)}
    timed = {"compute_microseconds": round(compute_s * 1e6), "node": "a", "product": "lab-cpu"} if compute_s else {}
    seen = Observed(step=0, model=ObservedModel(**sizes | timed | more), updated_at=at)
    return one.model_copy(update={"status": one.status.model_copy(update={"observed": seen})})


def test_the_machines_with_the_best_links_are_chosen_and_nothing_is_predicted() -> None:
    nodes = [{"name": name, "region": "r", "product": "lab-cpu", "accelerators": 1} for name in "abcd"]
    pairs = [(one, other) for one in "abcd" for other in "abcd" if one < other]
    links = [{"source": a, "target": b, **(FAST if a + b in ("ab", "ad", "bd") else SLOW)} for a, b in pairs]
    declared = HulkTopologySpec.model_validate({"nodes": nodes, "links": links})
    (report,) = plan_from_files([minimal(workers={"min": 3, "max": 3})], declared, {})
    assert report.planned, report.message
    assert {worker.node for worker in report.workers} == {"a", "b", "d"}
    assert report.prediction is None
    assert report.why[0] == (
        "spec.model is not given: machines are chosen by their links and speed for all-reduces of 100000000 bytes, "
        "assumed until the first steps measure them."
    )


async def answer(one: HulkJob, *others: tuple[ApiResource, Object]) -> Planned:
    async with planning_over(*(node(name) for name in "abc"), stored(one), *others) as world:
        world.planner.request("lab/demo")
        found = await world.answer("demo")
        assert isinstance(found, Planned), found
        return found


async def test_the_plan_of_the_cluster_takes_all_workers_and_promises_nothing() -> None:
    found = await answer(minimal(placement={"allowUnknownLinks": True}))
    assert found.summary.num_workers == 3
    assert (found.prediction, found.full.basis, found.full.plan.prediction.step_s) == (None, None, 0.0)
    assert (found.summary.algorithm, found.summary.optimality_gap) == ("ring", None)


async def test_the_next_plan_is_made_for_what_was_measured_of_this_template() -> None:
    one = minimal(placement={"allowUnknownLinks": True})
    found = await answer(measured(one, 440))
    assert "all-reduces of 440 bytes, as its first steps measured" in found.full.plan.why[0]
    other = await answer(measured(one, 440, template="another"))
    assert f"all-reduces of {4 * ASSUMED_PARAMETERS} bytes" in other.full.plan.why[0]


def predicted_s(found: Planned) -> tuple[float, float]:
    """A step, and its compute."""
    assert found.prediction is not None
    assert found.prediction.source == "template"
    return found.prediction.step_microseconds / 1e6, found.prediction.compute_microseconds / 1e6


ANYWHERE = {"allowUnknownLinks": True}
PAIRS = [("a", "b"), ("a", "c"), ("b", "c")]


async def test_a_new_job_of_a_template_that_was_measured_is_predicted() -> None:
    earlier = measured(minimal("earlier"), 4_000_000, compute_s=2.0)
    links = [{"source": a, "target": b, "rttMicroseconds": 100, "bandwidthBytesPerSecond": 10**7} for a, b in PAIRS]
    declared = HULK_TOPOLOGIES, {"metadata": {"name": "cluster"}, "spec": {"links": links}}
    found = await answer(minimal(), stored(earlier), declared)
    step_s, compute_s = predicted_s(found)
    assert compute_s == pytest.approx(2.0)
    all_reduce_s = 4 / 3 * 4 / 10  # a ring of three sends 4/3 of 4 MB, at 10 MB/s
    exposed_s = all_reduce_s / found.full.plan.num_buckets  # the other buckets while it computes
    assert step_s == pytest.approx(2.0 + exposed_s, rel=0.01)
    assert found.summary.num_workers == 3
    assert found.full.plan.prediction.step_s == pytest.approx(step_s, abs=1e-6)
    assert "the compute of rank 0, as first steps of this template measured" in found.full.plan.why[0]
    assert (found.prediction.memory_bytes, found.full.basis) == (0, None)


@pytest.mark.parametrize("workers", [{"max": 3}, {"min": 2, "max": 2}, {"min": 1, "max": 1}])
async def test_a_rank_computes_as_much_with_any_number_of_workers(workers: dict[str, int]) -> None:
    one = measured(minimal(placement=ANYWHERE, workers=workers), 400, compute_s=2.0)
    assert predicted_s(await answer(one))[1] == pytest.approx(2.0)


async def test_of_a_given_batch_a_rank_computes_its_part() -> None:
    """6 sequences of it took 3 s: of 12 over three workers each has 4, which take 2 s."""
    one = measured(
        minimal(placement=ANYWHERE, training={"globalBatch": 12}, workers={"min": 3, "max": 3}),
        400,
        compute_s=3.0,
        sequences=6,
    )
    assert predicted_s(await answer(one))[1] == pytest.approx(2.0)


async def test_nothing_is_predicted_of_batches_that_do_not_compare() -> None:
    one = measured(minimal(placement=ANYWHERE, training={"globalBatch": 12}), 400, compute_s=3.0)
    assert (await answer(one)).prediction is None


async def test_other_machines_are_as_much_slower_as_other_jobs_were_on_them() -> None:
    other = job("other")
    slow = [shown(name, speed, other) for name, speed in (("a", 8 * 10**6), ("b", 2 * 10**6), ("c", 2 * 10**6))]
    one = measured(minimal(placement=ANYWHERE, workers={"min": 3, "max": 3}), 400, compute_s=2.0)
    found = await answer(one, *slow)
    assert predicted_s(found)[1] == pytest.approx(8.0)
    assert not found.prediction.calibrated
    gone = measured(minimal(placement=ANYWHERE, workers={"min": 3, "max": 3}), 400, compute_s=2.0, node="z")
    assert predicted_s(await answer(gone, *slow))[1] == pytest.approx(2.0), "nothing tells how fast that one was"


@pytest.mark.parametrize(
    ("product", "of_other", "least_s", "most_s"),
    [
        pytest.param("NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", 0.5, 1.9, id="by data sheets"),
        pytest.param("lab-cpu", "other-cpu", 2.0, 2.0, id="nothing compares them"),
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_other_products_are_compared_by_data_sheets(
    product: str, of_other: str, least_s: float, most_s: float, is_gone: bool
) -> None:
    """2 s on one machine, on another one by their products, also where only that one is left."""
    one = minimal()
    known = measured(one, 4 * 10**9, compute_s=2.0, product=product).status.observed
    assert known is not None
    products = {"b": of_other} if is_gone else {"a": product, "b": of_other}
    workload = to_workload(one, to_model(one.spec, measured=known.model), Situation(1, dict.fromkeys(products, 1)))
    assert known.model is not None
    shown = ShownSpeeds("a", reference_speeds(one.spec, known.model, products))
    workload = with_speeds(workload, known_speeds(workload.key, workload.digest, {}, shown))
    topology = Topology(tuple(Machine(name, "eu", "", 1, product=of) for name, of in products.items()), {}, {})
    found = {
        name: workload.model.flops_per_sequence / speed for name, speed in speeds(workload, topology, products).items()
    }
    assert is_gone or found["a"] == pytest.approx(2.0)
    assert least_s <= found["b"] <= most_s


async def test_the_command_line_predicts_by_the_clusters_jobs_too() -> None:
    earlier = measured(minimal("earlier"), 400, compute_s=2.0)
    cluster = FakeCluster(*(node(name) for name in "abc"), stored(earlier))
    (report,) = await plan_from_cluster(cluster, [minimal(placement=ANYWHERE)], {}, None)
    assert report.prediction is not None, report.message
    assert report.prediction.compute_microseconds == 2_000_000
    assert report.prediction.memory_bytes is None


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        pytest.param(None, [("lab", 1, 0.0), ("lab", 2, 0.0)], 2, id="the newest"),
        pytest.param((1, 0.0), [("lab", 2, 0.0)], 1, id="its own before newer ones"),
        pytest.param((1, 0.0), [("lab", 2, 0.5)], 2, id="that of a compute before its own without"),
        pytest.param((1, 0.5), [("lab", 2, 0.5)], 1, id="its own where both know the compute"),
        pytest.param(None, [("elsewhere", 1, 0.5)], None, id="of no other namespace"),
    ],
)
def test_which_measure_a_job_is_planned_by(own: Any, others: list[Any], expected: int | None) -> None:
    """`gradient_bytes` tells them apart, and how late they were made."""
    one = minimal() if own is None else measured(minimal(), own[0], compute_s=own[1])
    known = [
        measured(minimal(f"job-{number}", namespace), number, at=ago(10 - number), compute_s=compute_s)
        for namespace, number, compute_s in others
    ]
    found = measured_model(one, known)
    assert (found.gradient_bytes if found else None) == expected
    assert measured_model(minimal(template=LAUNCHED["template"]), known) is None


def test_a_job_with_a_model_is_planned_by_that() -> None:
    with_model = a_job()
    same = minimal("same", template=with_model.spec.template.wire())
    assert measured_model(with_model, [measured(same, 440)]) is None


SIZES = "hulk_worker_parameters 110\nhulk_worker_gradient_bytes 440\n"
TIMES = 'hulk_worker_step_seconds 2.5\nhulk_worker_compute_seconds{rank="0"} 2\n'


@pytest.mark.parametrize(("training", "sequences"), [({}, None), ({"globalBatch": 6}, 2)])
def test_the_compute_of_rank_0_is_kept_with_its_machine(training: dict[str, int], sequences: int | None) -> None:
    one, memory = minimal(training=training), Memory("u1", swept_to=1)
    nodes = {node: NodeState(products={"nvidia.com/gpu": "lab-cpu"}) for node in NODES}

    def after(status: HulkJobStatus, text: str) -> ObservedModel:
        seen = replace(memory, sighting=Sighting(1, ago(1), replace(parse_metrics(text), attempt=1)))
        fields = {"job": one, "pods": gang(), "full": full(), "memory": seen, "nodes": nodes}
        made = decide(view(status, **fields)).view.status
        assert made.observed is not None
        assert made.observed.model is not None
        return made.observed.model

    known = after(running(), "hulk_worker_step 13\n" + SIZES + TIMES)
    assert (known.step_microseconds, known.compute_microseconds) == (2_500_000, 2_000_000)
    assert (known.sequences, known.node, known.product) == (sequences, "node-0", "lab-cpu")
    warming = after(running(), "hulk_worker_step 2\n" + SIZES + TIMES)
    assert warming.compute_microseconds is None
    again = running().model_copy(update={"observed": Observed(step=0, model=known, updated_at=ago(99))})
    assert after(again, "hulk_worker_step 3\n" + SIZES.replace("440", "880")) == known.model_copy(
        update={"gradient_bytes": 880}
    )


def test_what_the_first_steps_measure_is_kept_for_the_next_attempt() -> None:
    text = "hulk_worker_step 3\nhulk_worker_parameters 110\nhulk_worker_gradient_bytes 440\n"
    seen = replace(parse_metrics(text), attempt=1)
    one, memory = minimal(), Memory("u1", swept_to=1, sighting=Sighting(1, ago(1), seen))
    made = decide(view(running(), job=one, pods=gang(), full=full(), memory=memory))
    assert made.view.status.observed is not None
    known = made.view.status.observed.model
    assert known == ObservedModel(parameters=110, gradient_bytes=440, template=template_digest(one.spec))
    again = committed(view(made.view.status, job=one), decision(2))
    assert again.observed is not None
    assert (again.observed.step, again.observed.model) == (0, known)
    silent = replace(memory, sighting=Sighting(1, ago(1), Observation(attempt=1, step=9)))
    later = decide(view(again.model_copy(update={"attempt": 1}), job=one, memory=silent)).view.status
    assert later.observed is None or later.observed.model == known


def test_nothing_is_predicted_however_long_it_runs() -> None:
    made = decide(view(running(since_s=5000), job=minimal(), pods=gang(), full=full(calibrated=False)))
    assert made.view.status.prediction is None
    (poll,) = [action for _, action in made.actions if isinstance(action, Poll)]
    assert not poll.preflight


def test_another_argument_is_another_template() -> None:
    other = json.loads(json.dumps(TEMPLATE))
    other["spec"]["containers"][0]["args"] = ["--large"]
    assert template_digest(minimal().spec) != template_digest(minimal(template=other).spec)


@pytest.mark.parametrize("per_region", [(1, 1), (2, 2), (2, 2, 2)])
@pytest.mark.parametrize("mib", [0.25, 16, 100])
def test_a_plan_for_assumed_gradients_serves_others_nearly_as_well(per_region: tuple[int, ...], mib: float) -> None:
    """Steps of a program whose gradients nobody has told of: flows and buckets beside those planned for its own."""
    regions = [f"r{number}" for number, count in enumerate(per_region) for _ in range(count)]
    machines = tuple(Machine(f"n{i}", region, flops_per_s=1e12) for i, region in enumerate(regions))
    near, names = Link(1e-4, 1e9), sorted(set(regions))
    far = {("r0", "r1"): Link(0.14, 7.24e6), ("r1", "r2"): Link(0.1, 12.07e6), ("r0", "r2"): Link(0.22, 2.41e6)}
    links = {pair: link for (a, b), link in far.items() for pair in ((a, b), (b, a)) if {a, b} <= set(names)}
    topology = Topology(machines, region_links=links | {(name, name): near for name in names})
    job = minimal(workers={"min": len(regions), "max": len(regions)})
    situation = Situation(attempt=1, candidates={machine.name: 1 for machine in machines})
    assumed = to_workload(job, to_model(job.spec), situation)
    flops = 3e11 * len(regions) / assumed.global_batch  # 0.3 s of each machine
    own = replace(assumed, model=Model.of_totals(int(mib * (1 << 18)), flops))
    given, best = (solve([each], [], topology).plans[each.key] for each in (assumed, own))
    assert given.algorithm == "wan"
    assert predict(given, own, topology).step_s == pytest.approx(best.prediction.step_s, rel=0.1)
