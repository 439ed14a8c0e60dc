"""Local search: equal pieces along the nearest regions, then changes between two jobs at a time, annealed."""

from __future__ import annotations

import math
import random

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.split import moves
from hulk_placement.split.division import Divisions, Progress, along, cut
from hulk_placement.split.estimate import IMPOSSIBLE

NUM_STARTS = 8
HOT, COLD = 0.01, 0.001
"""Rise of the value that is taken with a chance of 1 in e, at the beginning and at the end."""

STARTS_END = 0.2
"""Part of the work after which no more starts are tried."""

SCAN_EVERY = 0.2
"""Part of the work after which shapes are looked for again."""

NUM_FAILED = 100
"""Changes in a row that change nothing, after which there is nothing to change."""


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """Try starts, scan for shapes on the best, anneal it."""
    rng = random.Random(seed)
    begin(divisions, progress, rng)
    anneal(divisions, progress, rng)


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


def anneal(divisions: Divisions, progress: Progress, rng: random.Random) -> None:
    """Change the best division until the work is done."""
    counts = divisions.best()[0]
    values = divisions.values(counts)
    num_failed, scanned = 0, progress()
    while (done := progress()) < 1.0 and num_failed < NUM_FAILED:
        heat = HOT * (COLD / HOT) ** done
        changed = moves.drawn(divisions.pools, counts, rng)
        num_failed = num_failed + 1 if changed is None else 0
        if changed is not None:
            new = divisions.values_after(counts, values, changed)
            rise = float(new.sum() - values.sum())
            if rise <= 0.0 or (rise < IMPOSSIBLE / 2 and rng.random() < math.exp(-rise / heat)):
                counts, values = changed, new
                divisions.keep(counts, float(values.sum()))
        if done > scanned + SCAN_EVERY:
            scanned = done
            scan(divisions, divisions.best()[0])
            counts = divisions.best()[0]
            values = divisions.values(counts)
