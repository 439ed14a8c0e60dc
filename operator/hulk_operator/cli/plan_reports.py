"""Plans without running anything: jobs and a topology -> `PlanReport`s, by the operator's own planner."""

from collections.abc import Sequence
from dataclasses import replace

from hulk_placement.cost.foresee import foresee
from hulk_placement.plan import Plan, Prediction
from hulk_placement.report.view import view
from hulk_placement.solve import solve
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload

from hulk_operator import names
from hulk_operator.api import HulkJob, HulkTopologySpec
from hulk_operator.api.plan_summary import gap_text
from hulk_operator.cli.report_rows import bottleneck, bottleneck_row, flow_rows, worker_rows
from hulk_operator.cli.reports import Made, PlanReport, PredictionRow
from hulk_operator.inputs.node import data_sheet_memory_bytes
from hulk_operator.inputs.placement_constraints import Nodes, UnusableJobError
from hulk_operator.inputs.topology import (
    allowed_regions,
    declared_egress,
    declared_links,
    declared_prices,
    declared_uplinks,
)
from hulk_operator.inputs.unknown_model import as_measured, without_guesses
from hulk_operator.inputs.workloads import Situation, Texts, model_reference, to_model, to_workload


def declared_topology(spec: HulkTopologySpec) -> Topology:
    """The topology that a file declares. ValueError where it declares no node."""
    if not spec.nodes:
        raise ValueError("the topology declares no nodes: add spec.nodes, or plan from the cluster without --topology")
    prices = declared_prices(spec)
    machines = tuple(
        Machine(
            name=node.name,
            region=node.region,
            zone=node.zone or "",
            num_accelerators=node.accelerators,
            product=node.product or "unknown",
            memory_bytes=node.memory_bytes or data_sheet_memory_bytes(node.product or ""),
            flops_per_s=None if node.flops_per_second is None else float(node.flops_per_second),
            price_per_hour=prices.get(node.product or "", 0.0),
        )
        for node in spec.nodes
    )
    node_links, region_links = declared_links(spec, machines)
    return Topology(machines, node_links, region_links, declared_uplinks(spec), declared_egress(spec))


def _workload(job: HulkJob, situation: Situation, texts: Texts) -> Workload:
    """The planner's workload of a job; UnusableJobError says why there is none."""
    reference = model_reference(job.spec)
    text = None if reference is None else texts.get((job.namespace, reference.config_map, reference.key))
    if reference is not None and text is None:
        raise UnusableJobError(
            "ModelNotFound",
            f"ConfigMap {reference.config_map} with key {reference.key} of namespace {job.namespace} was not found in "
            f"the files: add it with another -f (kubectl create configmap {reference.config_map} "
            f"--from-file={reference.key} --dry-run=client -o yaml).",
        )
    return to_workload(job, to_model(job.spec, text), situation)


def plan_from_files(
    jobs: Sequence[HulkJob], spec: HulkTopologySpec, texts: Texts, topology: Topology | None = None
) -> tuple[PlanReport, ...]:
    """Plans of all jobs together, on the given topology, else on the nodes and links that `spec` declares."""
    topology = topology or declared_topology(spec)
    candidates = {machine.name: machine.num_accelerators for machine in topology.machines}
    nodes = Nodes(
        regions={machine.name: machine.region for machine in topology.machines},
        prices={machine.name: machine.price_per_hour for machine in topology.machines},
        products={machine.name: machine.product or names.UNKNOWN_PRODUCT for machine in topology.machines},
    )
    workloads: list[Workload] = []
    reports: dict[str, PlanReport] = {}
    for job in jobs:
        allowed = allowed_regions(spec, job.metadata.namespace or "")
        try:
            workloads.append(_workload(job, Situation(1, candidates, allowed_regions=allowed, nodes=nodes), texts))
        except UnusableJobError as error:
            reports[job.key] = refused(job.key, error.reason, error.message)
    reports |= plan_together(workloads, topology)
    return tuple(reports[job.key] for job in jobs)


def plan_together(workloads: Sequence[Workload], topology: Topology) -> dict[str, PlanReport]:
    """One planning pass over all workloads, on what the topology says is free."""
    solution = solve(workloads, (), topology)
    of_key = {workload.key: workload for workload in workloads}
    reports = {key: plan_report(plan, topology, of_key[key]) for key, plan in solution.plans.items()}
    return reports | {key: refused(key, found.reason, found.message) for key, found in solution.unplaced.items()}


def refused(key: str, reason: str, message: str) -> PlanReport:
    """The report of a job that gets no plan."""
    return PlanReport(job=key, planned=False, reason=reason, message=message)


def plan_report(plan: Plan, topology: Topology, workload: Workload | None = None) -> PlanReport:
    """A plan worker by worker, each with the link to the worker that it sends to; with a workload also the details."""
    if workload is not None and not workload.model.is_counted:
        plan = without_guesses(plan, workload)
        if workload.model.is_timed:
            plan = replace(plan, prediction=foresee(*as_measured(plan, workload), topology))
        workload = None
    if workload is not None:
        plan = replace(plan, prediction=foresee(plan, workload, topology))
    prediction = plan.prediction
    details = None if workload is None else view(plan, workload, topology)
    worst = bottleneck_row(topology, *prediction.bottleneck) if prediction.bottleneck else None
    return PlanReport(
        job=plan.key,
        planned=True,
        attempt=plan.attempt,
        algorithm=plan.algorithm,
        num_buckets=plan.num_buckets,
        prediction=_prediction_row(prediction) if prediction.step_s else None,
        bottleneck=worst if details is None else bottleneck(details.step, topology),
        optimality_gap=gap_text(plan.optimality_gap) if prediction.step_s else None,
        optimality_num_workers=plan.gap_num_workers,
        workers=worker_rows(plan, topology),
        flows=flow_rows(plan),
        why=plan.why,
        details=details,
        made=None if workload is None else Made(plan, workload, topology),
    )


def _prediction_row(prediction: Prediction) -> PredictionRow:
    return PredictionRow(
        step_microseconds=round(prediction.step_s * 1e6),
        compute_microseconds=round(prediction.compute_s * 1e6),
        bubble_microseconds=round(prediction.bubble_s * 1e6) or None,
        communication_microseconds=round(prediction.communication_s * 1e6),
        memory_bytes=prediction.memory_bytes or None,
        calibrated=prediction.calibrated,
    )
