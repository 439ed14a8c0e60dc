"""Speeds that nodes showed in jobs' own pods -> what the planner knows of each node for the next plan.

A node keeps a figure by job, product and workload. Those of this very workload are what was measured; where it never
ran, those of another workload tell at least how nodes differ from each other, and about how fast they are.

A job's pods are its user's code, so a figure is one namespace's word. It counts as measured for that namespace alone.
Others believe it only where at least two other namespaces agree, and then as what is likely. How many jobs of a
namespace say so counts nothing: anyone can start another job.

| who measured            | for a job of namespace a                                                        |
|-------------------------|---------------------------------------------------------------------------------|
| the job itself          | measured                                                                        |
| another job of a        | measured, the newest                                                            |
| jobs of b               | nothing                                                                         |
| jobs of b and of c      | likely, where both are within MAX_SPREAD: the median                            |
| jobs of b, c and d      | likely, where more than half are: the median of those                           |
| nobody knows who        | nothing: an entry of a release that did not write it down                       |
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from hulk_placement.accelerators import fastest, look_up
from hulk_placement.workload import Workload

from hulk_operator import names
from hulk_operator.api import AcceleratorStatus, NodeProfile
from hulk_operator.api.nodeprofile import MAX_LINKS

RETENTION: Final = timedelta(days=30)
"""Drivers, clocks and cooling change."""
MAX_ENTRIES_OF_NAMESPACE: Final = 16
"""Of one node, the newest: nobody pushes out what others measured."""
NUM_NAMESPACES: Final = 2
MAX_SPREAD: Final = 1.25
"""The largest of figures that agree is at most so much of the smallest."""

Speeds = dict[str, float]
"""FLOP/s of one accelerator, by node."""


@dataclass(frozen=True, slots=True)
class ShownSpeeds:
    """What earlier steps of the workload showed beside profiles: `speeds` of the nodes of a product, by one, `node`."""

    node: str = ""
    speeds: Speeds = field(default_factory=dict)


def possible(flops_per_s: float, product: str) -> float:
    """A speed that a job's pods report, bounded by the product's data sheet; by the fastest one where it has none.

    In its fastest precision: a script may switch TF32 on by itself.
    """
    sheet = look_up(product)
    return min(flops_per_s, sheet.fastest if sheet else fastest())


def kept(entries: Iterable[AcceleratorStatus], new: AcceleratorStatus) -> list[AcceleratorStatus]:
    """The entries of a node with a new one: without what it replaces, what is too old, and what nobody answers for."""
    of_namespace: dict[str, list[AcceleratorStatus]] = defaultdict(list)
    for entry in (*(entry for entry in entries if _key(entry) != _key(new)), new):
        if entry.namespace and new.time - entry.time < RETENTION:
            of_namespace[entry.namespace].append(entry)
    newest = [entry for own in of_namespace.values() for entry in _by_time(own)[-MAX_ENTRIES_OF_NAMESPACE:]]
    return _by_time(newest)[-MAX_LINKS:]


Said = list[tuple[str, AcceleratorStatus]]
"""What one namespace's jobs say: node and entry, the newest last."""


@dataclass(frozen=True, slots=True)
class KnownSpeeds:
    """FLOP/s of an accelerator by node: with a workload, in which micro-batches, and what it is likely to reach."""

    measured: Speeds
    micro_batch: Mapping[str, int]
    likely: Speeds


def with_speeds(workload: Workload, known: KnownSpeeds) -> Workload:
    """The workload with what is known of it."""
    return replace(
        workload,
        flops_per_s=known.measured,
        measured_micro_batch=known.micro_batch,
        likely_flops_per_s=known.likely,
    )


def known_speeds(job: str, digest: str, said: Mapping[str, Said], earlier: ShownSpeeds = ShownSpeeds()) -> KnownSpeeds:
    """What nodes showed (`said_speeds`) with a job's workload, by its digest; where they did not, with another.

    Of two entries of its namespace that contradict each other the job's own counts.
    """
    namespace = names.namespace_of(job)
    own = sorted(said.get(namespace, ()), key=lambda row: (names.key(namespace, row[1].job) == job, row[1].time))
    found = {node: entry for node, entry in own if entry.workload == digest}
    there = {node: speed for node, speed in earlier.speeds.items() if node == earlier.node}
    measured = there | {node: float(entry.flops_per_second) for node, entry in found.items()}
    reference = measured or earlier.speeds
    of_others = [rows for of, rows in said.items() if of != namespace]
    others = agreed([{**likely(reference, _others(rows, digest)), **_exact(rows, digest)} for rows in of_others])
    return KnownSpeeds(
        measured,
        {node: entry.micro_batch for node, entry in found.items() if entry.micro_batch},
        _beside(measured, {**earlier.speeds, **others, **likely(reference, _others(own, digest))}),
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


def agreed(said: Iterable[Speeds]) -> Speeds:
    """The nodes of which namespaces, each with its `Speeds`, say about the same, and the median of those.

    At least NUM_NAMESPACES do, and more than half of all that know the node: one alone convinces nobody, and one
    against two others does not silence them.

    >>> agreed([{"a": 4.0, "b": 4.0}, {"a": 4.4}])
    {'a': 4.2}
    >>> agreed([{"a": 4.0}, {"a": 4.4}, {"a": 900.0}]), agreed([{"a": 4.0}, {"a": 900.0}])
    ({'a': 4.2}, {})
    """
    of_node: dict[str, list[float]] = defaultdict(list)
    for speeds in said:
        for node, flops_per_s in speeds.items():
            of_node[node].append(flops_per_s)
    largest = {node: _largest_alike(sorted(values)) for node, values in of_node.items()}
    return {
        node: median(alike)
        for node, alike in largest.items()
        if len(alike) >= NUM_NAMESPACES and 2 * len(alike) > len(of_node[node])
    }


def _largest_alike(values: Sequence[float]) -> Sequence[float]:
    """Of values in order, the most that are within MAX_SPREAD of each other."""
    runs = ([value for value in values[first:] if value <= values[first] * MAX_SPREAD] for first in range(len(values)))
    return max(runs, key=len)


def said_speeds(profiles: Mapping[str, NodeProfile], products: Mapping[str, str], now: datetime) -> dict[str, Said]:
    """By namespace; without what is too old, of another product than the node has now, or of nobody knows whom."""
    found: dict[str, Said] = defaultdict(list)
    for node, profile in profiles.items():
        for entry in _by_time(profile.status.accelerators):
            if entry.namespace and entry.product == products.get(node) and now - entry.time < RETENTION:
                found[entry.namespace].append((node, entry))
    return found


def _exact(said: Said, digest: str) -> Speeds:
    return {node: float(entry.flops_per_second) for node, entry in said if entry.workload == digest}


def _others(said: Said, digest: str) -> dict[str, Speeds]:
    """Speeds by workload, but for this one."""
    found: dict[str, Speeds] = defaultdict(dict)
    for node, entry in said:
        if entry.workload != digest:
            found[entry.workload][node] = float(entry.flops_per_second)
    return found


def _beside(measured: Speeds, speeds: Speeds) -> Speeds:
    return {node: speed for node, speed in speeds.items() if node not in measured}


def _key(entry: AcceleratorStatus) -> tuple[str, str, str, str]:
    return entry.namespace, entry.job, entry.product, entry.workload


def _by_time(entries: Iterable[AcceleratorStatus]) -> list[AcceleratorStatus]:
    return sorted(entries, key=lambda entry: entry.time)
