"""The all-reduces of gradients, as arrays: buckets that `hulk_native.run_step` reduces phase by phase.

Letters of shapes: C cells, G groups, S sums (the buckets of all groups in order), Q phases, E edges of all phases. One
more entry (`first_...`) says where the last one ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk_placement.cost.simulation.sharing import Bools, firsts
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
    """Of its time the step does not feel the last so many seconds."""
    num_waits_G: Ints
    """What is awaited: the gradients of so many members, or all else."""
    first_sum_G: Ints
    first_phase_S: Ints
    first_edge_Q: Ints
    group_S: Ints
    fraction_S: Floats
    """Of the members' last backward pass."""
    bytes_E: Floats
    latency_E: Floats
    ready_S: Floats
    cause_S: Ints
    """Whose gradients came last, a cell; -1 - s: the end of sum s, which the group waited for."""
    start_S: Floats
    end_S: Floats
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
    sizes_Q = [len(phase) for _, bucket in buckets for phase in bucket.phases]
    waits_G = [1 if group.after_all or not step.is_early else len(group.members) for group in groups]
    never_S = np.full(len(buckets), np.inf)
    return Sums(
        first_edge=first_edge,
        is_early=step.is_early,
        group_C=_groups(step),
        in_flight_G=np.array([group.num_in_flight for group in groups], np.int64),
        is_last_G=np.array([group.after_all for group in groups], np.bool_),
        slack_G=np.array([group.slack_s for group in groups], np.float64),
        num_waits_G=np.array(waits_G, np.int64),
        first_sum_G=firsts([len(group.buckets) for group in groups]),
        first_phase_S=firsts([len(bucket.phases) for _, bucket in buckets]),
        first_edge_Q=firsts(sizes_Q),
        group_S=np.array([number for number, _ in buckets], np.int64),
        fraction_S=np.array([bucket.ready for _, bucket in buckets], np.float64),
        bytes_E=np.array([edge.num_bytes for edge in edges], np.float64),
        latency_E=np.array([edge.way.latency_s for edge in edges], np.float64),
        ready_S=never_S.copy(),
        cause_S=np.full(len(buckets), -1),
        start_S=never_S.copy(),
        end_S=never_S.copy(),
        end_Q=np.full(len(sizes_Q), np.inf),
        last_Q=np.full(len(sizes_Q), -1),
        held_by_E=np.full(len(edges), -1),
    )


def _groups(step: Step) -> Ints:
    group_C = np.full(len(step.replicas) * step.num_stages, -1)
    for number, group in enumerate(step.all_reduces):
        for replica, stage in () if group.after_all else group.members:
            group_C[replica * step.num_stages + stage] = number
    return group_C
