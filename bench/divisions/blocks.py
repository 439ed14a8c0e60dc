"""A problem as the classifier of the paper's formulation sees it: blocks of machines, with figures for each job.

Where regions or jobs are alike, many divisions are equally good, and no figure of a machine says to which of the jobs
it goes. So machines and jobs have an order: machines along the shortest of the walks that always go on to the nearest
region, jobs by size, the largest first. Figures say where on the walk a block is, and how far from where the job's
piece of the walk would be if all pieces were of the same speed.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from hulk_native import GRAPH_LIMIT
from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.gnn.graphs import Figures, figures_of
from hulk_placement.split.division import Divisions, along, cut
from hulk_placement.split.estimate import IMPOSSIBLE

LATENCY_S = 0.02
"""Links of which one is so much longer than another weigh 1 / e of it."""

BLOCKS_A_JOB = 8
"""A block has at most that part of a job's equal share of all the speed, where machines are as small."""

NUM_FIGURES = 12
MANY = 6
"""Jobs."""

LEAST, LEAST_JOINED = 1e-4, 1e-9
"""What logarithms are taken of, and what edges weigh, at the least."""


class Graph(NamedTuple):
    """Blocks (N) of machines along the walk, as J jobs see them, the largest first."""

    figures_JNF: Floats
    joined_NN: Floats
    """Rows of share * exp(-latency / LATENCY_S), normalised."""
    pool_N: Ints
    num_N: Ints
    """Accelerators."""
    share_N: Floats
    """Of the speed, the mean over the jobs."""


def by_size(divisions: Divisions) -> list[int]:
    """Jobs by the size of their model and batch, the largest first."""
    sizes = [job.workload.model.num_parameters * job.workload.global_batch for job in divisions.jobs]
    return sorted(range(len(sizes)), key=lambda job: (-sizes[job], job))


def walk(divisions: Divisions) -> list[int]:
    """Pools along the shortest walk that always goes on to the nearest region."""
    job = divisions.jobs[0]

    def seconds(order_P: list[int]) -> float:
        regions = dict.fromkeys(job.ground.region_M[order_P].tolist())
        return sum(min(float(job.both_RR[a, b]), IMPOSSIBLE) for a, b in itertools.pairwise(regions))

    return min((along(divisions, first) for first in range(len(job.ground.regions))), key=seconds)


def equal_pieces(divisions: Divisions) -> Ints:
    """The division into pieces of the same speed along the walk, the largest job first."""
    return cut(divisions, walk(divisions), by_size(divisions))


def graph_of(divisions: Divisions) -> Graph:
    """The graph of a problem."""
    jobs = [figures_of(divisions.jobs[number]) for number in by_size(divisions)]
    total_P = divisions.pools.total_P
    share_P = np.mean([job.speed_P * total_P / (job.speed_P @ total_P) for job in jobs], axis=0)
    pool_N, num_N = _blocks(divisions, share_P)
    share_N = share_P[pool_N] * num_N / total_P[pool_N]
    latency_NN = _latencies(divisions)[np.ix_(pool_N, pool_N)]
    joined_NN = share_N * np.exp(-latency_NN / LATENCY_S) + LEAST_JOINED
    places = (_log(share_P[pool_N] * len(jobs)), _log(latency_NN @ share_N))
    figures = (*_suited(jobs, total_P, pool_N), *places, *_pieces(len(jobs), share_N))
    return Graph(
        figures_JNF=np.clip(np.stack(np.broadcast_arrays(*figures), axis=-1), -GRAPH_LIMIT, GRAPH_LIMIT),
        joined_NN=joined_NN / joined_NN.sum(axis=1, keepdims=True),
        pool_N=pool_N,
        num_N=num_N,
        share_N=share_N,
    )


def _suited(jobs: list[Figures], total_P: Ints, pool_N: Ints) -> tuple[Floats, ...]:
    """How pools suit jobs, (J, N) or (J, 1): speed, memory of one and of all, gradients over the inside, states."""
    speed_JP, memory_JP = np.stack([job.speed_P for job in jobs]), np.stack([job.memory_P for job in jobs])
    gradient_JP = np.stack([job.log_gradient_s_P for job in jobs])
    layers_J1, states_J1, batch_J1 = (
        np.array([[float(getattr(job, name))] for job in jobs])
        for name in ("num_layers", "states_bytes", "global_batch")
    )
    all_J1 = (speed_JP @ total_P)[:, None]
    ideal_J1 = batch_J1 * len(jobs) / all_J1
    held_JP = memory_JP / states_J1
    by_pool = (
        _log(speed_JP * total_P.sum() / all_J1),
        _log(held_JP * layers_J1),
        _log(held_JP * total_P),
        gradient_JP - np.log10(ideal_J1),
    )
    return (*(array_JP[:, pool_N] for array_JP in by_pool), _log(states_J1) - _log(states_J1).mean())


def _pieces(num_jobs: int, share_N: Floats) -> tuple[Floats, ...]:
    """Where on the walk blocks are, and how far from the middle of each job's equal piece, in pieces."""
    at_N, rank_J1 = np.cumsum(share_N) - share_N / 2, np.arange(num_jobs)[:, None]
    away_JN = at_N * num_jobs - rank_J1 - 0.5
    return at_N, away_JN, np.abs(away_JN), rank_J1 / num_jobs, np.array([[num_jobs / MANY]])


def _log(values: Floats) -> Floats:
    return np.asarray(np.log10(np.maximum(values, LEAST)))


def _latencies(divisions: Divisions) -> Floats:
    """Seconds between pools, the mean of both ways."""
    job = divisions.jobs[0]
    latency_RR = job.setting(job.space.options[0]).latency_RR
    return np.asarray((latency_RR + latency_RR.T)[np.ix_(job.ground.region_M, job.ground.region_M)] / 2)


def _blocks(divisions: Divisions, share_P: Floats) -> tuple[Ints, Ints]:
    """The pool and the accelerators of each block along the walk, in whole machines or workers of every job."""
    pools, most = divisions.pools, 1.0 / (BLOCKS_A_JOB * len(divisions.jobs))
    found = []
    for pool in walk(divisions):
        left, unit = int(pools.total_P[pool]), int(pools.quantum_JP[:, pool].max())
        size = max(1, int(left * most / max(share_P[pool], LEAST)) // unit) * unit
        found += [(pool, min(size, left - first)) for first in range(0, left, size)]
    pool_N, num_N = np.array(found).T
    return pool_N, num_N


def parts_of(divisions: Divisions, graph: Graph, counts: Ints) -> Floats:
    """The part of each block that each job has in a division, (J, N): within a pool in the order of the jobs."""
    ends_JP = counts[by_size(divisions)].cumsum(axis=0)
    begins_JP = ends_JP - counts[by_size(divisions)]
    ends_N = np.zeros(len(graph.pool_N), np.int64)
    for pool in range(counts.shape[1]):
        ends_N[graph.pool_N == pool] = graph.num_N[graph.pool_N == pool].cumsum()
    lower_JN = np.maximum(begins_JP[:, graph.pool_N], ends_N - graph.num_N)
    return np.asarray(np.maximum(np.minimum(ends_JP[:, graph.pool_N], ends_N) - lower_JN, 0) / graph.num_N)
