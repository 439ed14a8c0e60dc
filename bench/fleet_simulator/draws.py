"""Arrivals: from a seeded bursty generator whose figures are told, or from a trace."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Bursts:
    """Two states in turn, quiet and busy, each as long as drawn; busy ones bring `factor` times as many jobs a slot."""

    quiet_slots: float = 20.0
    busy_slots: float = 5.0
    factor: float = 8.0

    def slots(self, num_jobs: int, num_slots: int, rng: np.random.Generator) -> list[int]:
        """The slots in which so many jobs arrive, ascending.

        >>> Bursts().slots(4, 10, np.random.default_rng(1)) == Bursts().slots(4, 10, np.random.default_rng(1))
        True
        """
        weights = np.ones(num_slots)
        slot, busy = 0, False
        while slot < num_slots:
            length = 1 + int(rng.exponential(self.busy_slots if busy else self.quiet_slots))
            if busy:
                weights[slot : slot + length] = self.factor
            slot, busy = slot + length, not busy
        drawn = rng.choice(num_slots, size=num_jobs, p=weights / weights.sum())
        return sorted(int(found) for found in drawn)


def read_trace(lines: Iterable[str]) -> dict[str, int]:
    """Slot of each job from a trace of rows `slot,job`; ValueError that names the line."""
    found: dict[str, int] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row or row[0].strip().startswith("#") or (number == 1 and row[0].strip() == "slot"):
            continue
        try:
            slot, job = int(row[0]), row[1].strip()
            if len(row) > 2:
                raise ValueError
        except (ValueError, IndexError):
            raise ValueError(f"trace line {number}: {','.join(row)!r} must be slot,job") from None
        if slot < 0 or not job:
            raise ValueError(f"trace line {number}: slot {slot} must be >= 0 and the job named")
        if job in found:
            raise ValueError(f"trace line {number}: job {job} arrives twice, in slots {found[job]} and {slot}")
        found[job] = slot
    return found
