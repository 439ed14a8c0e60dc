"""Plans of jobs: from files alone, or on what the cluster has free now. Creates nothing."""

from hulk_placement.topology import Topology

from hulk_operator.api import HulkTopologySpec
from hulk_operator.cli import cluster_reads
from hulk_operator.cli.cluster_reads import Target
from hulk_operator.cli.files import Documents
from hulk_operator.cli.plan_reports import plan_from_files
from hulk_operator.cli.reports import PlanReports


async def plans_of(documents: Documents, target: Target, topology: Topology | None = None) -> PlanReports:
    """Plans from files alone where there is a topology, or one that declares nodes, else from the cluster.

    What only a plan from the cluster needs is loaded for it.
    """
    if topology is not None:
        return PlanReports(jobs=plan_from_files(documents.jobs, HulkTopologySpec(), documents.texts, topology))
    if documents.topology is not None and documents.topology.nodes:
        return PlanReports(jobs=plan_from_files(documents.jobs, documents.topology, documents.texts))
    from hulk_operator.cli.cluster_plans import plan_from_cluster

    async with cluster_reads.cluster_of(target) as cluster:
        found = await plan_from_cluster(cluster, documents.jobs, documents.texts, documents.topology)
    return PlanReports(jobs=found)
