"""The all-reduces of gradients, compiled: buckets that become ready, wait for their turn, and go phase by phase.

Letters of shapes: C cells, G groups, S sums (the buckets of all groups in order), Q phases, E edges of all phases. One
more entry (`first_...`) says where the last one ends.
"""

from __future__ import annotations

from heapq import heappush
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk_placement.compiled import compiled
from hulk_placement.cost.simulation.blocks import ARRIVED, READY, Events
from hulk_placement.cost.simulation.sharing import Bools, Flows, start
from hulk_placement.cost.simulation.step import Edge, Step

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Sums(NamedTuple):
    """What groups reduce, and what they have reduced: times are infinite until then."""

    first_edge: int
    """Flows before are the pipelines' channels."""
    is_early: bool
    """Whether groups wait for their members' gradients only, else for all cells."""
    group_C: Ints
    """-1 for none."""
    in_flight_G: Ints
    is_last_G: Bools
    """Whether the group waits for all else."""
    slack_G: Floats
    first_sum_G: Ints
    first_phase_S: Ints
    first_edge_Q: Ints
    group_S: Ints
    fraction_S: Floats
    """Of the members' last backward pass."""
    sum_Q: Ints
    bytes_E: Floats
    latency_E: Floats
    phase_E: Ints
    missing_S: Ints
    """Members whose gradients are not there yet."""
    ready_S: Floats
    cause_S: Ints
    """Whose gradients came last, a cell; -1 - s: the end of sum s, which the group waited for."""
    start_S: Floats
    end_S: Floats
    next_G: Ints
    """The sum that starts next."""
    num_flying_G: Ints
    pending_Q: Ints
    """Edges that have not arrived."""
    end_Q: Floats
    last_Q: Ints
    """The edge that arrived last."""
    held_by_E: Ints
    """The resource that held an edge back in the end."""


def all_edges(step: Step) -> list[Edge]:
    """The edges of all phases, in the order of their flows."""
    buckets = [bucket for group in step.all_reduces for bucket in group.buckets]
    return [edge for bucket in buckets for phase in bucket.phases for edge in phase]


def make_sums(step: Step, first_edge: int) -> Sums:
    """All sums of a step, none started."""
    groups, edges = step.all_reduces, all_edges(step)
    buckets = [(number, bucket) for number, group in enumerate(groups) for bucket in group.buckets]
    phases = [(number, phase) for number, (_, bucket) in enumerate(buckets) for phase in bucket.phases]
    first_sum_G = _firsts([len(group.buckets) for group in groups])
    group_S = np.array([number for number, _ in buckets], np.int64)
    waits_G = [1 if group.after_all or not step.is_early else len(group.members) for group in groups]
    sizes_Q = [len(phase) for _, phase in phases]
    never_S = np.full((3, len(buckets)), np.inf)
    return Sums(
        first_edge=first_edge,
        is_early=step.is_early,
        group_C=_groups(step),
        in_flight_G=np.array([group.num_in_flight for group in groups], np.int64),
        is_last_G=np.array([group.after_all for group in groups], np.bool_),
        slack_G=np.array([group.slack_s for group in groups], np.float64),
        first_sum_G=first_sum_G,
        first_phase_S=_firsts([len(bucket.phases) for _, bucket in buckets]),
        first_edge_Q=_firsts(sizes_Q),
        group_S=group_S,
        fraction_S=np.array([bucket.ready for _, bucket in buckets], np.float64),
        sum_Q=np.array([number for number, _ in phases], np.int64),
        bytes_E=np.array([edge.num_bytes for edge in edges], np.float64),
        latency_E=np.array([edge.way.latency_s for edge in edges], np.float64),
        phase_E=np.repeat(np.arange(len(phases)), sizes_Q),
        missing_S=np.array(waits_G, np.int64)[group_S],
        ready_S=never_S[0],
        cause_S=np.full(len(buckets), -1),
        start_S=never_S[1],
        end_S=never_S[2],
        next_G=first_sum_G[:-1].copy(),
        num_flying_G=np.zeros(len(groups), np.int64),
        pending_Q=np.array(sizes_Q, np.int64),
        end_Q=np.full(len(phases), np.inf),
        last_Q=np.full(len(phases), -1),
        held_by_E=np.full(len(edges), -1),
    )


def feel(sums: Sums) -> None:
    """End every sum when the step feels its end, not before it began."""
    sums.end_S[:] = np.maximum(sums.start_S, sums.end_S - sums.slack_G[sums.group_S])
    sums.end_Q[:] = np.minimum(sums.end_Q, sums.end_S[sums.sum_Q])


def _firsts(counts: list[int]) -> Ints:
    return np.array(list(accumulate(counts, initial=0)), np.int64)


def _groups(step: Step) -> Ints:
    group_C = np.full(len(step.replicas) * step.num_stages, -1)
    for number, group in enumerate(step.all_reduces):
        for replica, stage in () if group.after_all else group.members:
            group_C[replica * step.num_stages + stage] = number
    return group_C


@compiled
def expect(sums: Sums, events: Events, cell: int, start_s: float, seconds: float) -> None:
    """A cell's last backward pass has started: say when its part of each bucket is there."""
    group = sums.group_C[cell]
    if group >= 0:
        for s in range(sums.first_sum_G[group], sums.first_sum_G[group + 1]):
            heappush(events, (start_s + sums.fraction_S[s] * seconds, READY, s, cell))


@compiled
def release(sums: Sums, flows: Flows, is_last: bool, cause: int, now_s: float) -> None:
    """All that these groups waited for is done: their sums are ready."""
    for s in range(sums.group_S.shape[0]):
        if sums.is_last_G[sums.group_S[s]] == is_last:
            add(sums, flows, s, cause, now_s)


@compiled
def add(sums: Sums, flows: Flows, s: int, cause: int, now_s: float) -> None:
    """One more part of a sum is there."""
    sums.missing_S[s] -= 1
    sums.ready_S[s], sums.cause_S[s] = now_s, cause
    launch(sums, flows, sums.group_S[s], now_s)


@compiled
def launch(sums: Sums, flows: Flows, group: int, now_s: float) -> None:
    """Start the group's next sums as far as they are ready and so many may be under way."""
    while sums.num_flying_G[group] < sums.in_flight_G[group]:
        s = sums.next_G[group]
        if s == sums.first_sum_G[group + 1] or sums.missing_S[s] > 0:
            return
        sums.next_G[group] += 1
        sums.num_flying_G[group] += 1
        sums.start_S[s] = now_s
        _start_phase(sums, flows, sums.first_phase_S[s], now_s)


@compiled
def _start_phase(sums: Sums, flows: Flows, phase: int, now_s: float) -> None:
    for edge in range(sums.first_edge_Q[phase], sums.first_edge_Q[phase + 1]):
        start(flows, sums.first_edge + edge, sums.bytes_E[edge], now_s)


@compiled
def end_edge(sums: Sums, flows: Flows, events: Events, edge: int, now_s: float) -> None:
    """An edge's last byte has left."""
    sums.held_by_E[edge] = flows.limit_F[sums.first_edge + edge]
    heappush(events, (now_s + sums.latency_E[edge], ARRIVED, sums.first_edge + edge, 0))


@compiled
def arrive(sums: Sums, flows: Flows, edge: int, now_s: float) -> int:
    """An edge's last byte has arrived: the next phase, or the group's next sum, may start. The ended sum, or -1."""
    phase = sums.phase_E[edge]
    sums.pending_Q[phase] -= 1
    if sums.pending_Q[phase] > 0:
        return -1
    sums.end_Q[phase], sums.last_Q[phase] = now_s, edge
    s = sums.sum_Q[phase]
    if phase + 1 < sums.first_phase_S[s + 1]:
        _start_phase(sums, flows, phase + 1, now_s)
        return -1
    sums.end_S[s] = now_s
    sums.num_flying_G[sums.group_S[s]] -= 1
    launch(sums, flows, sums.group_S[s], now_s)
    return int(s)
