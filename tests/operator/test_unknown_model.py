"""A job that says nothing of its model: planned by links, never predicted, measured, planned again by the measure."""

import json
from dataclasses import replace
from typing import Any

from hulk_operator.api import HulkJob, HulkTopologySpec, Observed, ObservedModel
from hulk_operator.cli.plan_reports import plan_from_files
from hulk_operator.cluster import HULK_JOBS, ApiResource, Object
from hulk_operator.inputs.unknown_model import ASSUMED_PARAMETERS, template_digest
from hulk_operator.observation import Observation
from hulk_operator.reconcile.recipe import decide
from hulk_operator.reconcile.steps.planning import committed
from hulk_operator.reconcile.types import Memory, Planned, Poll, Sighting
from hulk_operator.worker_client import parse_metrics
from test_planning import node, planning_over
from views import NOW, ago, decision, full, gang, running, view

TEMPLATE = {"spec": {"containers": [{"name": "w", "image": "i", "command": ["hulk-launch", "train.py"]}]}}
SLOW, FAST = (
    {"rttMicroseconds": 50_000, "bandwidthBytesPerSecond": 10**6},
    {
        "rttMicroseconds": 100,
        "bandwidthBytesPerSecond": 10**10,
    },
)


def minimal(**more: Any) -> HulkJob:
    """Workers and a template, as the API server fills in the rest."""
    metadata = {"name": "demo", "namespace": "lab", "uid": "u1", "resourceVersion": "7", "generation": 3}
    return HulkJob.model_validate(
        {"metadata": metadata, "spec": {"workers": {"max": 3}, "template": TEMPLATE, **more}, "status": {}}
    )


def stored(one: HulkJob) -> tuple[ApiResource, Object]:
    return HULK_JOBS, {"apiVersion": "hulk.dev/v1alpha1", "kind": "HulkJob", **one.wire(), "status": one.status.wire()}


def measured(one: HulkJob, gradient_bytes: int, template: str = "") -> HulkJob:
    known = ObservedModel(parameters=7, gradient_bytes=gradient_bytes, template=template or template_digest(one.spec))
    seen = Observed(step=0, model=known, updated_at=NOW)
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


async def answer(one: HulkJob) -> Planned:
    async with planning_over(*(node(name) for name in "abc"), stored(one)) as world:
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
