"""Plans of jobs on what the cluster has free now, beside everything else that runs. Creates nothing."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from hulk_placement.workload import Workload

from hulk_operator.api import ConditionType, HulkJob, HulkTopologySpec
from hulk_operator.cli import cluster_reads
from hulk_operator.cli.inventory import pods_unseen
from hulk_operator.cli.output import note
from hulk_operator.cli.plan_reports import plan_together, refused
from hulk_operator.cli.reports import PlanReport
from hulk_operator.cli.stored_plan import full_plan
from hulk_operator.cluster import Cluster, Forbidden
from hulk_operator.inputs.placement_constraints import UnusableJobError
from hulk_operator.inputs.workloads import Texts
from hulk_operator.planning.inventory import Reader
from hulk_operator.planning.reservations import Held
from hulk_operator.status import finished, holds
from hulk_operator.watched.informers import read


async def plan_from_cluster(
    cluster: Cluster, wanted: Sequence[HulkJob], texts: Texts, declared: HulkTopologySpec | None
) -> tuple[PlanReport, ...]:
    """Plans of the jobs on what the cluster has free now, beside everything else that runs. Creates nothing.

    A job that runs already is planned anew, as if it held nothing. `declared` stands for the cluster's own HulkTopology
    where it is given; `texts` before the cluster's ConfigMaps.
    """
    there = await _jobs(cluster)
    reader = Reader(cluster, partial(read, cluster, unseen=pods_unseen), texts, lambda: there)
    keys = {one.key for one in wanted}
    seen = await reader.inventory(await _in_force(cluster, there, keys), datetime.now(UTC), without=keys)
    seen = replace(seen, declared=declared or seen.declared)
    workloads: dict[str, list[Workload]] = defaultdict(list)
    reports: dict[str, PlanReport] = {}
    for one in wanted:
        try:
            workloads[one.spec.workers.resource_name].append(await reader.workload(one, seen))
        except UnusableJobError as error:
            reports[one.key] = refused(one.key, error.reason, error.message)
    for resource, group in sorted(workloads.items()):
        reports |= plan_together(group, seen.topology(resource))
    return tuple(reports[one.key] for one in wanted)


async def _jobs(cluster: Cluster) -> Sequence[HulkJob]:
    """Every job; a note says where they may not be seen."""
    try:
        return await cluster_reads.jobs(cluster, None)
    except Forbidden as error:
        note(f"plans whose pods are not there yet are not known: {error.message}")
        return ()


async def _in_force(cluster: Cluster, jobs: Sequence[HulkJob], without: Collection[str]) -> list[Held]:
    """Plans that hold accelerators, also those whose pods are not there yet; a note says which may not be seen."""
    held = []
    for one in jobs:
        if one.key in without or not holds(one.status, ConditionType.PLANNED) or finished(one.status):
            continue
        try:
            stored = await full_plan(cluster, one)
        except Forbidden as error:
            note(f"the plan of {one.key} is not known: {error.message}")
            continue
        if stored is not None:
            held.append(Held(one, stored[0]))
    return held
