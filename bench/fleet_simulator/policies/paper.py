"""GADGET as published (arXiv 2202.01158): relax, choose ring sizes, decompose into mappings, draw one of them.

    1  relax over jobs and ring sizes; of each job the size with the largest gain × fraction
    2  relax the embedding of rings of those sizes into machines and their links:
       maximise sum of gain × z(job)  subject to  sum over machines of y(job, m) = size × z(job), z <= 1,
       accelerators of m >= y's, bandwidth of m >= reserved × y's
    3  write y(job) as a sum of whole mappings with weights; draw a mapping with its weight as probability

Nothing is repaired: a draw may give out an accelerator twice, or more of a link than there is. It is told what does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from hulk_placement.fleet.place import largest
from hulk_placement.fleet.problem import Problem
from hulk_placement.fleet.program import Rows, solve
from hulk_placement.fleet.relax import kinds_of
from hulk_placement.fleet.room import Counts, Floats, Room, reservation, workers
from hulk_placement.fleet.types import Job, Mapped
from hulk_placement.fleet.worth import Worth, all_worths

SMALL = 1e-7
Chosen = dict[str, dict[str, int]]


def gadget_paper(problem: Problem) -> Chosen:
    """The drawn mappings, whether they fit together or not."""
    return _drawn(problem, all_worths(problem))


def gadget_repaired(problem: Problem) -> Chosen:
    """The same draw, made to fit: best gain per accelerator first, what does not fit becomes the most that does."""
    worths = all_worths(problem)
    drawn, room, chosen = _drawn(problem, worths), problem.room(), {}
    for job in sorted(problem.jobs, key=lambda job: _rank(problem, worths[job.key], drawn.get(job.key, {}))):
        mapping: dict[str, int] | None = drawn.get(job.key, {})
        if not mapping and worths[job.key].log_scale == -math.inf:
            continue
        if not mapping or not room.fits(job, mapping):
            wanted = workers(mapping) if mapping else job.max_workers
            mapping = largest(room, job, wanted, problem.held.get(job.key))
        if mapping:
            room.take(job, mapping)
            chosen[job.key] = mapping
    return chosen


def _rank(problem: Problem, worth: Worth, mapping: dict[str, int]) -> tuple[bool, int, bool, float]:
    job, count = worth.job, workers(mapping) or worth.job.min_workers
    gain = worth.gain(count)
    density = (
        math.log(gain / (count * max(1, job.accelerators_per_worker))) + worth.log_scale if gain > 0 else -math.inf
    )
    return job.preemptible or job.key not in problem.held, -job.priority, not mapping, -density


def overruns(problem: Problem, chosen: Mapping[str, Mapped]) -> list[str]:
    """Sentences on what the mappings take more of than there is."""
    room = problem.room()
    before = problem.room()
    for job in problem.jobs:
        room.take(job, chosen.get(job.key, {}))
    told = [
        f"{room.names[m]}: {room.size[m] - room.free[m]} accelerators given out of {room.size[m]}"
        for m in np.flatnonzero(room.free < 0)
    ]
    told += [
        f"{room.names[m]}: {before.card[m] - room.card[m]:.4g} B/s reserved of {before.card[m]:.4g}"
        for m in np.flatnonzero(room.card < 0)
    ]
    told += [
        f"link {pair[0]} to {pair[1]}: {before.links[pair] - left:.4g} B/s reserved of {before.links[pair]:.4g}"
        for pair, left in room.links.items()
        if left < 0
    ]
    told += [
        f"uplink of {region}, {way}: {before.uplinks[region, way] - left:.4g} B/s reserved of "
        f"{before.uplinks[region, way]:.4g}"
        for (region, way), left in room.uplinks.items()
        if left < 0
    ]
    return told


def _drawn(problem: Problem, worths: dict[str, Worth]) -> Chosen:
    room, chosen, rng = problem.room(), {}, _rng(problem)
    for job in problem.jobs:
        if not job.preemptible and job.key in problem.held:
            room.take(job, problem.held[job.key])
            chosen[job.key] = dict(problem.held[job.key])
    for _, group in groupby(problem.jobs, key=lambda job: job.priority):
        jobs = [job for job in group if job.key not in chosen and math.isfinite(worths[job.key].log_scale)]
        found = _embedded(room, jobs, worths, rng) if jobs else {}
        for job in jobs:
            room.take(job, found.get(job.key, {}))
        chosen |= found
    return chosen


def _rng(problem: Problem) -> np.random.Generator:
    return np.random.default_rng([problem.settings.seed, int(abs(problem.now_s)) % (1 << 31)])


def _embedded(room: Room, jobs: Sequence[Job], worths: dict[str, Worth], rng: np.random.Generator) -> Chosen:
    """Steps 1 to 3 for jobs of one priority."""
    scale = max(worths[job.key].log_scale for job in jobs)
    sizes, gains = ring_sizes(room, jobs, worths, scale)
    sized = [n for n, size in enumerate(sizes) if size]
    if not sized:
        return {}
    shares = _embedding(room, [jobs[n] for n in sized], [sizes[n] for n in sized], [gains[n] for n in sized])
    drawn: Chosen = {}
    for n, share in zip(sized, shares, strict=True):
        most = room.most(jobs[n])
        mappings = decompose(share, sizes[n], most)
        at, total = rng.random(), 0.0
        for weight, mapping in mappings:
            total += weight
            if at < total:
                drawn[jobs[n].key] = {room.names[machine]: count for machine, count in mapping.items()}
                break
    return drawn


def ring_sizes(
    room: Room, jobs: Sequence[Job], worths: dict[str, Worth], scale: float
) -> tuple[list[int], list[float]]:
    """Step 1: each job's ring size and its gain in units of e^scale; 0 where the relaxation gives it nothing."""
    rows, kinds = Rows(), kinds_of(room, jobs)
    num_kinds = int(kinds.max(initial=0)) + 1
    options: list[list[tuple[int, int, float]]] = []
    used: list[tuple[list[int], list[float]]] = [([], []) for _ in range(num_kinds)]
    for job in jobs:
        worth = worths[job.key]
        factor = math.exp(worth.log_scale - scale)
        mine = [(count, gain * factor) for count, gain in zip(worth.counts, worth.gains, strict=True) if gain > 0]
        columns = rows.columns([gain for _, gain in mine], [1.0] * len(mine))
        options.append([(column, count, gain) for column, (count, gain) in zip(columns, mine, strict=True)])
        rows.add(columns, [1.0] * len(columns), 1.0)
        admits = np.bincount(kinds, weights=np.minimum(room.admits(job), 1 << 20), minlength=num_kinds)
        places = rows.columns([0.0] * num_kinds, [float(most) for most in admits])
        rows.add([*columns, *places], [*[float(c) for c, _ in mine], *[-1.0] * num_kinds], 0.0, equal=True)
        for kind, column in enumerate(places):
            used[kind][0].append(column)
            used[kind][1].append(float(job.accelerators_per_worker))
    free = np.bincount(kinds, weights=np.maximum(room.free, 0), minlength=num_kinds)
    for (columns, wanted), limit in zip(used, free, strict=True):
        rows.add(columns, wanted, float(limit))
    values = solve(rows).values
    best = [max(mine, key=lambda o: values[o[0]] * o[2], default=(0, 0, 0.0)) for mine in options]
    sizes = [size if size and values[column] > SMALL else 0 for column, size, _ in best]
    return sizes, [gain for _, _, gain in best]


def _embedding(room: Room, jobs: Sequence[Job], sizes: Sequence[int], gains: Sequence[float]) -> list[Floats]:
    """Step 2: for each job its parts of workers on every machine."""
    rows, num = Rows(), len(room.names)
    fractions = rows.columns(gains, [1.0] * len(jobs))
    places = [rows.columns([0.0] * num, [float(most) for most in room.admits(job)]) for job in jobs]
    for fraction, there, size in zip(fractions, places, sizes, strict=True):
        rows.add([fraction, *there], [float(size), *[-1.0] * num], 0.0, equal=True)
    wanted = [float(job.accelerators_per_worker) for job in jobs]
    reserved = [reservation(job) if size > 1 else 0.0 for job, size in zip(jobs, sizes, strict=True)]
    for machine in range(num):
        columns = [there[machine] for there in places]
        rows.add(columns, wanted, float(max(0, room.free[machine])))
        if math.isfinite(room.card[machine]):
            rows.add(columns, reserved, max(0.0, float(room.card[machine])))
    for namespace, limit in room.quotas.left.items():
        mine = [n for n, job in enumerate(jobs) if job.namespace == namespace]
        rows.add([fractions[n] for n in mine], [wanted[n] * sizes[n] for n in mine], max(0.0, float(limit)))
    values = solve(rows).values
    return [values[there] for there in places]


def decompose(share: Floats, size: int, most: Counts) -> list[tuple[float, dict[int, int]]]:
    """Step 3: parts of workers by machine as whole mappings of `size` workers with weights that sum to sum / size.

    >>> decompose(np.array([1.0, 0.5, 0.5]), 2, np.array([1, 1, 1]))
    [(0.5, {0: 1, 1: 1}), (0.5, {0: 1, 2: 1})]
    """
    left, found = np.where(share > SMALL, share, 0.0), []
    while left.sum() > SMALL * size:
        weight, mapping, missing = float(left.sum()) / size, {}, size
        for machine in np.argsort(-left, kind="stable"):
            count = min(missing, int(most[machine]), math.ceil(left[machine] / weight - SMALL))
            if count > 0:
                mapping[int(machine)] = count
                missing -= count
        if missing:
            break
        weight = min(weight, *(float(left[machine]) / count for machine, count in mapping.items()))
        for machine, count in mapping.items():
            left[machine] = max(0.0, left[machine] - weight * count)
        left[left < SMALL] = 0.0
        found.append((weight, mapping))
    return found
