"""Local search: equal pieces along the nearest regions, then changes between two jobs at a time, annealed.

Where it ends depends on where it begins: several beginnings, of which the worse are given up, leave less to chance.
"""

from __future__ import annotations

import math
import random

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.split import moves
from hulk_placement.split.division import Divisions, Progress, along, cut
from hulk_placement.split.estimate import IMPOSSIBLE

NUM_STARTS = 8
NUM_CHAINS = 4
"""Divisions that are annealed at first."""

HOT, COLD = 0.03, 0.001
"""Rise of the value that is taken with a chance of 1 in e, at the beginning and at the end."""

STARTS_END = 0.2
"""Part of the work after which no more starts are tried."""

SCAN_EVERY = 0.2
"""Part of the work after which shapes are looked for again."""

NUM_FAILED = 100
"""Changes in a row that change nothing, after which there is nothing to change."""


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """Try starts, scan for shapes on the best, anneal the best few."""
    rng = random.Random(seed)
    begin(divisions, progress, rng)
    anneal(divisions, divisions.best(NUM_CHAINS), progress, rng)


def begin(divisions: Divisions, progress: Progress, rng: random.Random) -> None:
    """Pieces for the jobs in several orders, from several regions on."""
    num_jobs, num_regions = len(divisions.jobs), len(divisions.jobs[0].ground.regions)
    for turn in range(NUM_STARTS):
        if turn and progress() >= STARTS_END:
            break
        order_J = list(range(num_jobs))
        if turn:
            rng.shuffle(order_J)
        divisions.try_(cut(divisions, along(divisions, rng.randrange(num_regions) if turn else 0), order_J))
    if progress() < STARTS_END:
        scan(divisions, divisions.best()[0])


def scan(divisions: Divisions, counts: Ints) -> None:
    """Look for better shapes of each job in a division."""
    for job, row in zip(divisions.jobs, counts, strict=False):
        job.scan(row)
    divisions.try_(counts)


def anneal(divisions: Divisions, field: list[Ints], progress: Progress, rng: random.Random) -> Ints:
    """Change divisions until the work is done: each by itself, and in each round the better half goes on; the best.

    Progress may stay at 1.0, so that no part may end behind it: sums of parts can be a rounding error more.
    """
    begun = progress()
    num_rounds = len(field).bit_length()
    for turn in range(num_rounds):
        end = begun + (1.0 - begun) * (turn + 1) / num_rounds
        ended = []
        for number, counts in enumerate(field):
            now = progress()
            until = min(1.0, now + (end - now) / (len(field) - number))
            ended.append(_changed(divisions, counts, progress, rng, (now, until), (turn / num_rounds, 1 / num_rounds)))
        field = [counts for _, counts in sorted(ended, key=lambda found: found[0])][: max(1, len(field) // 2)]
    return field[0]


def _changed(
    divisions: Divisions,
    counts: Ints,
    progress: Progress,
    rng: random.Random,
    work: tuple[float, float],
    cooled: tuple[float, float],
) -> tuple[float, Ints]:
    """The best division that changes of one lead to, with its value.

    `work`: where it begins and ends. `cooled`: how far it has cooled down at the beginning, and how far it does.
    """
    values = divisions.values(counts)
    best = (float(values.sum()), counts)
    (begin, end), num_failed = work, 0
    scanned = begin
    while (now := progress()) < end and num_failed < NUM_FAILED:
        heat = HOT * (COLD / HOT) ** (cooled[0] + cooled[1] * (now - begin) / (end - begin))
        changed = moves.drawn(divisions.pools, counts, rng)
        num_failed = num_failed + 1 if changed is None else 0
        if changed is not None:
            new = divisions.values_after(counts, values, changed)
            rise = float(new.sum() - values.sum())
            if rise <= 0.0 or (rise < IMPOSSIBLE / 2 and rng.random() < math.exp(-rise / heat)):
                counts, values = changed, new
                best = min(best, (divisions.keep(counts, values), counts), key=lambda found: found[0])
        if now > scanned + SCAN_EVERY:
            scanned = now
            scan(divisions, best[1])
            counts = best[1]
            values = divisions.values(counts)
    return best
