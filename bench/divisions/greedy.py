"""Greedy by region: the fastest region first, each as a whole for the job that gains most by it; nothing is changed."""

from __future__ import annotations

import numpy as np
from hulk_placement.split.division import Divisions, Progress, along, cut, move, nothing, speed_by_pool


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """The regions in turn; where the jobs are more than regions, also equal pieces. `seed` decides nothing."""
    pools, jobs = divisions.pools, divisions.jobs
    divisions.try_(cut(divisions, along(divisions, 0), list(range(len(jobs)))))
    speed_P = sum(speed_by_pool(job) for job in jobs) * pools.total_P
    speed_R = np.bincount(jobs[0].ground.region_M, weights=speed_P)
    counts = nothing(pools, len(jobs))
    values = divisions.values(counts)
    for region in np.argsort(-speed_R, kind="stable").tolist():
        tried = []
        for number, job in enumerate(jobs):
            given = counts.copy()
            for pool in np.flatnonzero(job.ground.region_M == region).tolist():
                move(pools, given, pool, -1, number, int(given[-1, pool]))
            tried.append((job.value(given[number]) - values[number], number, given))
            if progress() >= 1.0:
                return
        gain, number, given = min(tried, key=lambda found: found[:2])
        if gain < 0.0:
            counts = given
            values[number] += gain
    divisions.try_(counts)
