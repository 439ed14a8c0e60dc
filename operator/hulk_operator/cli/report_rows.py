"""A plan and its links -> rows of reports, for whoever has the plan: made now, or read from the cluster."""

from collections.abc import Iterable

from hulk_placement.collective.flow_words import flow_words
from hulk_placement.plan import Plan
from hulk_placement.report.rows import StepPartRow
from hulk_placement.topology import LinkKind, Topology

from hulk_operator.cli.reports import BottleneckRow, FlowRow, LinkRow, WorkerRow


def flow_rows(plan: Plan) -> tuple[FlowRow, ...]:
    """The flows of Hulk's own all-reduce by size of the vector; none where gloo's ring is used."""
    if plan.collective is None:
        return ()
    regions = plan.collective.network.regions
    return tuple(
        FlowRow(
            max_bytes=found.max_bytes,
            predicted_microseconds=round(found.predicted_s * 1e6),
            bound_microseconds=round(found.bound_s * 1e6),
            flows=tuple(
                f"{flow.share:.1%} {flow_words(flow, regions)}"
                for flow in sorted(found.flows, key=lambda flow: -flow.share)
            ),
        )
        for found in plan.collective.classes
    )


def worker_rows(plan: Plan, topology: Topology) -> tuple[WorkerRow, ...]:
    """Workers in rank order. Machines that the topology no longer has get no link."""
    known = {machine.name for machine in topology.machines}
    rows = []
    per_replica = plan.layout.pipeline * plan.layout.width
    first = 0  # rank
    for worker, slot in enumerate(plan.workers):
        ranks = slice(first, first + slot.num_accelerators)
        first = ranks.stop
        compute_s = max(plan.prediction.rank_compute_s[ranks], default=None)
        target = plan.workers[worker - 1].machine
        sends = len(plan.workers) > 1 and plan.algorithm == "ring" and per_replica == 1
        rows.append(
            WorkerRow(
                worker=worker,
                node=slot.machine,
                region=slot.region,
                accelerators=slot.num_accelerators,
                sequences=sum(plan.shares[ranks.start // per_replica : -(-ranks.stop // per_replica)]),
                compute_microseconds=None if compute_s is None else round(compute_s * 1e6),
                sends_to=target if sends else None,
                link=link_row(topology, slot.machine, target) if sends and {slot.machine, target} <= known else None,
            )
        )
    return tuple(rows)


def bottleneck(step: Iterable[StepPartRow], topology: Topology) -> BottleneckRow | None:
    """The link that the largest part of a step is spent on; one that is its regions' is as well known as theirs."""
    parts = [row for row in step if row.source and row.target]
    if not parts:
        return None
    largest = max(parts, key=lambda row: row.microseconds)
    assert largest.source is not None
    assert largest.target is not None
    row = bottleneck_row(topology, largest.source, largest.target)
    regions = topology.machine(row.source).region, topology.machine(row.target).region
    is_theirs = row.source != row.target and row.kind == LinkKind.INFERRED.value
    inherited = topology.region_links.get(regions) if is_theirs else None
    kind = row.kind if inherited is None else inherited.kind.value
    return row.model_copy(update={"kind": kind, "part": largest.part, "share": largest.share})


def bottleneck_row(topology: Topology, source: str, target: str) -> BottleneckRow:
    """A link as the one that holds a step back, for what is not known: of jobs the ring's slowest."""
    return BottleneckRow(**dict(link_row(topology, source, target)))


def link_row(topology: Topology, source: str, target: str) -> LinkRow:
    """A link as the planner sees it."""
    link = topology.link(source, target)
    unknown = link.kind is LinkKind.UNKNOWN
    return LinkRow(
        source=source,
        target=target,
        kind=link.kind.value,
        rtt_microseconds=None if unknown else round(link.rtt_s * 1e6),
        bandwidth_bytes_per_second=None if unknown else round(link.bandwidth_bytes_per_s),
        streams=link.num_streams,
        age_seconds=round(link.age_s),
    )
