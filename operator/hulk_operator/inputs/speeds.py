"""Speeds that nodes showed in jobs' own pods -> what the planner knows of each node for the next plan.

A node keeps a figure by product and workload. Those of this very workload are what was measured; where it never ran,
those of another workload tell at least how nodes differ from each other, and about how fast they are.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from hulk_placement.workload import Workload

from hulk_operator.api import AcceleratorStatus, NodeProfile

Speeds = dict[str, float]
"""FLOP/s of one accelerator, by node."""


@dataclass(frozen=True, slots=True)
class ShownSpeeds:
    """What earlier steps of the workload showed beside profiles: `speeds` of the nodes of a product, by one, `node`."""

    node: str = ""
    speeds: Speeds = field(default_factory=dict)


def with_measured_speeds(
    workload: Workload,
    profiles: Mapping[str, NodeProfile],
    products: Mapping[str, str],
    earlier: ShownSpeeds = ShownSpeeds(),
) -> Workload:
    """The workload with the speeds that nodes showed on the product they have now: with it, else with another."""
    digest = workload.digest
    shown = [(node, entry) for node, entry in _entries(profiles) if entry.product == products.get(node)]
    found = {node: entry for node, entry in shown if entry.workload == digest}
    there = {node: speed for node, speed in earlier.speeds.items() if node == earlier.node}
    measured = there | {node: float(entry.flops_per_second) for node, entry in found.items()}
    others: dict[str, Speeds] = defaultdict(dict)
    for node, entry in shown:
        if entry.workload != digest:
            others[entry.workload][node] = float(entry.flops_per_second)
    return replace(
        workload,
        flops_per_s=measured,
        measured_micro_batch={node: entry.micro_batch for node, entry in found.items() if entry.micro_batch},
        likely_flops_per_s=_beside(measured, {**earlier.speeds, **likely(measured or earlier.speeds, others)}),
    )


def likely(measured: Mapping[str, float], others: Mapping[str, Speeds]) -> Speeds:
    """What the workload is likely to reach on nodes where it was not measured.

    One other workload tells it, so that all figures compare: that of which most nodes are known, among those that
    were measured on a node of `measured` where there is any. Its figures count times what `measured` is of them on
    the nodes of both (the median).

    >>> likely({"a": 4.0}, {"other": {"a": 2.0, "b": 3.0}, "third": {"b": 9.0, "c": 9.0}})
    {'b': 6.0}
    >>> likely({}, {"other": {"a": 2.0, "b": 3.0}})
    {'a': 2.0, 'b': 3.0}
    >>> likely({"a": 4.0}, {"other": {"b": 3.0}})
    {}
    """
    usable = [digest for digest in sorted(others) if not measured or others[digest].keys() & measured.keys()]
    if not usable:
        return {}
    told = others[max(usable, key=lambda digest: len(others[digest]))]
    factor = median([measured[node] / told[node] for node in told.keys() & measured.keys()] or [1.0])
    return {node: flops_per_s * factor for node, flops_per_s in told.items() if node not in measured}


def _beside(measured: Speeds, speeds: Speeds) -> Speeds:
    return {node: speed for node, speed in speeds.items() if node not in measured}


def _entries(profiles: Mapping[str, NodeProfile]) -> Iterator[tuple[str, AcceleratorStatus]]:
    for node, profile in profiles.items():
        for entry in profile.status.accelerators:
            yield node, entry
