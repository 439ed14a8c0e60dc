"""The decision's linear relaxation: parts of workers, machines of a kind as one, nothing lost between machines.

    maximise  sum over jobs and segments of slope × workers in the segment
    subject to  workers of a job = sum over kinds of machines of its workers there <= what the kind admits of the job
                accelerators of a kind, of a quota >= what its jobs' workers hold
                0 <= workers in a segment <= its length

A job's segments are those of the upper hull of its gain over its number of workers. The best sum is an upper bound of
what any whole-numbered decision gains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hulk_placement.fleet.program import Rows, solve
from hulk_placement.fleet.room import Counts, Floats, Room
from hulk_placement.fleet.types import Job
from hulk_placement.fleet.worth import Worth, upper_hull

MOST_KINDS = 24

TIE = 1e-8
"""Each job's gain counts for so much less than the one's before it: of jobs alike the first is served."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The optimum of the relaxation: its gain per second in units of e^`log_scale`, and parts of workers by job."""

    gain: float
    log_scale: float
    workers: Floats
    by_kind: Floats
    """Of each job (row) the workers on each kind of machines."""


def relax(worths: Sequence[Worth], room: Room) -> Relaxed:
    """The best parts of workers on what the room has free; gangs smaller than the least count in proportion.

    Ties go to earlier ones.
    """
    log_scale = max((worth.log_scale for worth in worths), default=-math.inf)
    if not math.isfinite(log_scale):
        return Relaxed(0.0, 0.0, np.zeros(len(worths)), np.zeros((len(worths), 1)))
    kinds = kinds_of(room, [worth.job for worth in worths])
    segments = [_segments(worth, log_scale, 1 - TIE * place) for place, worth in enumerate(worths)]
    rows = _rows(worths, segments, room, kinds)
    answer = solve(rows)
    num_kinds = int(kinds.max(initial=0)) + 1
    by_kind = answer.values[rows.num_columns - len(worths) * num_kinds :].reshape(len(worths), num_kinds)
    gain = answer.objective / (1 - TIE * len(worths))
    return Relaxed(gain, log_scale, by_kind.sum(axis=1), by_kind)


def kinds_of(room: Room, jobs: Sequence[Job]) -> Counts:
    """The kind of every machine: alike are those of a region, a size and a memory; or only of a region, were that many.

    The more is put together the less the relaxation knows: its optimum stays an upper bound.
    """
    figures = np.stack([room.region, room.size, room.memory], axis=1)
    kinds = np.unique(figures, axis=0, return_inverse=True)[1].ravel()
    if kinds.max(initial=0) >= MOST_KINDS:
        kinds = room.region
    if kinds.max(initial=0) >= MOST_KINDS:
        kinds = np.zeros(len(room.region), dtype=np.int64)
    is_simple = not any(job.candidates is not None or job.memory_bytes_per_worker for job in jobs)
    return np.zeros_like(kinds) if is_simple else kinds.astype(np.int64)


def _segments(worth: Worth, log_scale: float, less: float) -> list[tuple[float, float]]:
    """Length and slope of the hull's rising segments, slopes in units of e^log_scale."""
    factor = less * math.exp(worth.log_scale - log_scale) if math.isfinite(worth.log_scale) else 0.0
    if len(worth.counts) < 2 or not factor:
        return []
    counts, gains = upper_hull(np.array(worth.counts, dtype=np.float64), np.array(worth.gains) * factor)
    lengths, rises = np.diff(counts), np.diff(gains)
    return [(float(length), float(rise / length)) for length, rise in zip(lengths, rises, strict=True) if rise > 0]


def _rows(
    worths: Sequence[Worth], segments: Sequence[Sequence[tuple[float, float]]], room: Room, kinds: Counts
) -> Rows:
    """The program: a column a segment, then one for each job and kind."""
    rows, num_kinds = Rows(), int(kinds.max(initial=0)) + 1
    owners = [rows.columns([slope for _, slope in mine], [length for length, _ in mine]) for mine in segments]
    admitted = [
        np.bincount(kinds, weights=np.minimum(room.admits(w.job), 1 << 20), minlength=num_kinds) for w in worths
    ]
    places = [rows.columns([0.0] * num_kinds, [float(most) for most in mine]) for mine in admitted]
    for mine, there in zip(owners, places, strict=True):
        rows.add([*mine, *there], [*[1.0] * len(mine), *[-1.0] * len(there)], 0.0, equal=True)
    free = np.bincount(kinds, weights=np.maximum(room.free, 0), minlength=num_kinds)
    wanted = [float(worth.job.accelerators_per_worker) for worth in worths]
    for kind in range(num_kinds):
        rows.add([there[kind] for there in places], wanted, float(free[kind]))
    for namespace, limit in room.quotas.left.items():
        mine = [n for n, worth in enumerate(worths) if worth.job.namespace == namespace]
        rows.add([c for n in mine for c in places[n]], [wanted[n] for n in mine for _ in places[n]], float(limit))
    return rows
