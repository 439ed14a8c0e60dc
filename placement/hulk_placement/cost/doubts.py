"""Where the closed form of a step may be more than a twentieth off what the simulation says, and why.

Both take the same seconds for every block, transfer and all-reduce alone. They differ where several use one link at the
same time. Plain sums over what the step sends bound how much that can be; where all bounds together are below a
twentieth of the step, both speeds of the evaluator apply.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

import numpy as np

from hulk_placement.cost.pipelines import time_pipelines
from hulk_placement.cost.predict import predict, stage_groups, transport_of
from hulk_placement.cost.simulation.plans import step_of
from hulk_placement.cost.simulation.step import AllReduce, Phase, Step
from hulk_placement.cost.transports import allreduce_seconds
from hulk_placement.cost.wires import for_sums
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

TOLERANCE = 0.05
"""Of a step: how far the two may be apart where both apply."""


STEADY = ("ring",)
"""Algorithms that use the same links from their beginning to their end, and a shared link as much as it gives."""


class Doubt(StrEnum):
    """Why the closed form may be off."""

    TRANSFERS_MEET = "transfers of several pipelines or boundaries meet on a link and have to share it"
    ALL_REDUCES_MEET = "all-reduces of several stages meet on a link that is not all that holds them back"
    ALL_REDUCES_APART = "all-reduces that share a link are not under way at the same time"
    ALL_REDUCES_AMONG_TRANSFERS = "some stages reduce over a link while others still send over it"
    TIES_MEET = "several replicas sum the parameters that stages share over one link"
    UPLINKS_FULL = "an uplink is busy for as long as gradients are summed, to which the way there and back is added"
    EARLY_BUCKETS = "the first buckets are reduced while the last backward pass still runs"


def doubts(plan: Plan, workload: Workload, topology: Topology) -> tuple[Doubt, ...]:
    """Why `predict` and `simulate` may differ by more than `TOLERANCE`; () where both apply.

    Those that make least of a step are left out as long as all that are left out make less than that together.
    KeyError when the plan names a machine that the topology lacks.
    """
    found = _Step(plan, workload, topology)
    kinds = found.of_transfers(), found.of_all_reduces(), found.of_uplinks(), found.of_early_starts()
    bounds = dict(chain.from_iterable(kinds))
    left_s = TOLERANCE * found.predicted_s
    for doubt in sorted(bounds, key=bounds.__getitem__):
        left_s -= max(0.0, bounds[doubt])
        if left_s >= 0.0:
            del bounds[doubt]
    return tuple(bounds)


@dataclass(frozen=True, slots=True)
class _Use:
    """What one of those who share a resource has of it: at most so fast, and so many bytes in a step."""

    who: object
    bytes_per_s: float
    num_bytes: float
    num_flows: int = 1
    latency_s: float = 0.0


_Bounds = Iterator[tuple[Doubt, float]]
"""At most so many seconds of a step for this reason."""


class _Step:
    """A plan's step in the closed form, and who uses what in it."""

    def __init__(self, plan: Plan, workload: Workload, topology: Topology) -> None:
        self.plan, self.step = plan, step_of(plan, workload, topology)
        self.pipelines = time_pipelines(plan, workload, topology)
        self.predicted_s = predict(plan, workload, topology).step_s
        self.apart = self.step.num_steps_apart
        self.ready_P = self.pipelines.ready_P
        if not self.step.is_early:
            self.ready_P = np.full_like(self.ready_P, self.ready_P.max())
        self.spread_s = float(self.ready_P.max() - self.ready_P.min())
        passed_s = max(float(self.pipelines.ends_DP.max()), self.pipelines.nic_s)
        summed_s = self.predicted_s - self.pipelines.tied_s - self.step.after_s
        self.reduced_s = passed_s + (summed_s - passed_s) * self.apart
        self.transfers, self.reduces, self.ties = _transfers(self.step), _reduces(self.step), _ties(self.step)
        self.met = [r for r, uses in self.reduces.items() if self._is_contended(r, uses)]
        self.alone_P = _alone(plan, workload, topology) if plan.layout.data > 1 and plan.collective is None else []

    def of_transfers(self) -> _Bounds:
        """No transfer waits longer for others than what they share is busy."""
        yield Doubt.TRANSFERS_MEET, self._busy_s(self.transfers)
        yield Doubt.TIES_MEET, self._busy_s(self.ties)

    def of_all_reduces(self) -> _Bounds:
        """None ends earlier than alone; how much each other one delays it is bounded with fair shares."""
        is_steady = self.plan.algorithm in STEADY
        if not self.alone_P or (is_steady and not self.met):
            return
        ends = [ready + alone for ready, alone in zip(self.ready_P, self.alone_P, strict=True)]
        latest_s = max(end + self._delay_s(stage) for stage, end in enumerate(ends))
        yield Doubt.ALL_REDUCES_MEET, (latest_s - self.reduced_s) / self.apart
        early_s = self.reduced_s - max(ends)
        yield Doubt.ALL_REDUCES_APART, (min(early_s, self.spread_s) if is_steady else early_s) / self.apart

    def of_uplinks(self) -> _Bounds:
        """The closed form counts bytes on them only, which is long enough where a link holds sums back, not they."""
        reduced_s = self.reduced_s - float(self.ready_P.max())
        late_s = max(self._passed_s(self.reduces) - reduced_s, 0.0) / self.apart
        yield Doubt.UPLINKS_FULL, late_s + max(self._passed_s(self.ties) - self.pipelines.tied_s, 0.0)

    def of_early_starts(self) -> _Bounds:
        """What begins before all has been computed."""
        if not (self.step.is_early and self.reduces):
            return
        shared = [r for r in self.transfers if r in self.reduces]
        both = [r for r in shared if self._is_contended(r, self.transfers[r] + self.reduces[r])]
        yield Doubt.ALL_REDUCES_AMONG_TRANSFERS, sum(map(self._delayed_s, both))
        last_s = max(float(replica.backward_s[:, -1].max()) for replica in self.step.replicas)
        if self.plan.collective is None:
            early_s = min(last_s, self.reduced_s - float(self.ready_P.max()))
            groups = [group for group in self.step.all_reduces if not group.after_all]
            first = min(group.buckets[0].ready for group in groups)
            yield Doubt.EARLY_BUCKETS, (1 - first) * early_s * max(map(_num_turns, groups))

    def _passed_s(self, by_resource: dict[int, list[_Use]]) -> float:
        """At most: until all that crosses the busiest uplink has arrived."""
        ends_s = [0.0]
        for r, uses in by_resource.items():
            if self.step.resources[r].place.kind.startswith("uplink"):
                busy_s = sum(self._seconds(r, use.num_bytes) for use in uses)
                ends_s.append(busy_s + max(use.latency_s for use in uses))
        return max(ends_s)

    def _delayed_s(self, r: int) -> float:
        """At most: what is sent once the first stage reduces takes that much longer for each flow it shares with."""
        uses = self.reduces[r]
        busy_s = sum(self._seconds(r, use.num_bytes) for use in uses)
        return min(busy_s, self.spread_s * sum(use.num_flows for use in uses))

    def _is_contended(self, r: int, uses: list[_Use]) -> bool:
        wanted = sum(use.bytes_per_s for use in uses)
        return len({use.who for use in uses}) > 1 and wanted > self.step.resources[r].bytes_per_s

    def _busy_s(self, by_resource: dict[int, list[_Use]]) -> float:
        """Seconds in which what is contended is busy."""
        contended = [r for r, uses in by_resource.items() if self._is_contended(r, uses)]
        return sum(self._seconds(r, use.num_bytes) for r in contended for use in by_resource[r])

    def _seconds(self, r: int, num_bytes: float) -> float:
        return num_bytes / self.step.resources[r].bytes_per_s

    def _delay_s(self, stage: int) -> float:
        """At most: by all that others send where it meets them, and by as much of each of them as it sends itself."""
        by_all, by_each = 0.0, [0.0]
        for r in self.met:
            own = sum(use.num_bytes for use in self.reduces[r] if use.who == stage)
            others = [use.num_bytes for use in self.reduces[r] if use.who != stage]
            if own:
                by_all += self._seconds(r, sum(min(own, other) for other in others))
                by_each.append(self._seconds(r, own * len(others)))
        return min(by_all, max(by_each))


def _alone(plan: Plan, workload: Workload, topology: Topology) -> list[float]:
    """Seconds of each stage's all-reduces if no other stage had any."""
    groups, tensor = stage_groups(plan, workload), plan.layout.tensor
    stages = [groups[stage * tensor : (stage + 1) * tensor] for stage in range(plan.layout.pipeline)]
    seen, transport = for_sums(plan, groups, topology), transport_of(plan, workload)
    return [allreduce_seconds(transport, stage, seen)[0].seconds for stage in stages]


def _num_turns(group: AllReduce) -> int:
    """How often a group's buckets may gain what the first one does: those under way together fall out of step."""
    return math.ceil(len(group.buckets) / group.num_in_flight) if group.num_in_flight > 1 else 1


def _transfers(step: Step) -> dict[int, list[_Use]]:
    """By resource; each boundary of each replica, each way, for itself."""
    found: dict[int, list[_Use]] = {}
    for number, replica in enumerate(step.replicas):
        for boundary, ways in enumerate(replica.ways):
            num_bytes = float(replica.boundary_bytes[boundary].sum())
            for side, way in enumerate(ways):
                for r in way.resources:
                    found.setdefault(r, []).append(_Use((number, boundary, side), way.bytes_per_s, num_bytes))
    return found


def _reduces(step: Step) -> dict[int, list[_Use]]:
    """By resource; each stage's group for itself, by its number, its buckets and phases one after the other."""
    groups = [group for group in step.all_reduces if not group.after_all]
    return _by_resource({number: _phases(group) for number, group in enumerate(groups)})


def _ties(step: Step) -> dict[int, list[_Use]]:
    """By resource; what is summed in the end."""
    groups = [group for group in step.all_reduces if group.after_all]
    return _by_resource({number: _phases(group) for number, group in enumerate(groups)})


def _phases(group: AllReduce) -> list[Phase]:
    """Of a group, as if what buckets do at the same time were one phase."""
    num = min(group.num_in_flight, len(group.buckets))
    rows = [group.buckets[first : first + num] for first in range(0, len(group.buckets), num)]
    return [sum(phases, ()) for row in rows for phases in zip(*(bucket.phases for bucket in row), strict=True)]


def _by_resource(phases_of: dict[int, list[Phase]]) -> dict[int, list[_Use]]:
    found: dict[int, list[_Use]] = {}
    for who, phases in phases_of.items():
        most: dict[int, float] = {}
        flows: dict[int, int] = {}
        moved: defaultdict[int, float] = defaultdict(float)
        latency: defaultdict[int, float] = defaultdict(float)
        for phase in phases:
            rates: defaultdict[int, float] = defaultdict(float)
            nums: defaultdict[int, int] = defaultdict(int)
            late: dict[int, float] = {}
            for edge in phase:
                for r in edge.way.resources:
                    rates[r] += edge.way.bytes_per_s * edge.way.num_flows
                    nums[r] += edge.way.num_flows
                    moved[r] += edge.num_bytes
                    late[r] = max(edge.way.latency_s, late.get(r, 0.0))
            most |= {r: max(rate, most.get(r, 0.0)) for r, rate in rates.items()}
            flows |= {r: max(num, flows.get(r, 0)) for r, num in nums.items()}
            for r, seconds in late.items():
                latency[r] += seconds
        for r, num_bytes in moved.items():
            found.setdefault(r, []).append(_Use(who, most[r], num_bytes, flows[r], latency[r]))
    return found
