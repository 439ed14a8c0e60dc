"""Other figures that were measured with gloo on the same emulated links, beside their predictions.

Measured for this project, medians; the table of single all-reduces does not have them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hulk_placement.cost.groups import Group
from hulk_placement.cost.hierarchical import Hierarchical
from hulk_placement.cost.transports import allreduce_seconds

from bench.gloo_model.buckets import Bucket, Gradients, ddp_seconds, ddp_simulated
from bench.gloo_model.rows import topology

MIB = 1 << 20
REGION_ORDER = ("P0", "P1", "O0", "O1", "T0", "T1")
FOLD = ("P0", "P1", "O0", "T0", "T1", "O1")

GRADIENT_BYTES = 8_400_000
DDP = {8: 10.1, 3: 5.3, 2: 2.9, 1: 3.1}
"""Seconds for the gradients of DDP on six nodes, profile B in region order, by the number of buckets."""

HIERARCHICAL = {
    ("A", 0.25): 0.948,
    ("A", 1): 1.113,
    ("A", 4): 1.771,
    ("A", 16): 5.936,
    ("B", 0.25): 0.988,
    ("B", 1): 1.054,
    ("B", 4): 1.315,
}
"""Seconds of gloo in two levels on six nodes, by profile and MiB."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, and what is predicted for it."""

    what: str
    measured_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return self.predicted_s / self.measured_s - 1


def ddp(closed_form: bool) -> list[Figure]:
    """DDP's buckets, by the closed form or by simulation; all gradients are ready at once."""
    seconds = ddp_seconds if closed_form else ddp_simulated
    return [
        Figure(f"{num} buckets", measured_s, seconds([_gradients(num)], topology("B"))[0])
        for num, measured_s in DDP.items()
    ]


def _gradients(num_buckets: int) -> Gradients:
    return Gradients(REGION_ORDER, (Bucket(GRADIENT_BYTES // num_buckets),) * num_buckets)


def hierarchical() -> list[Figure]:
    """Two levels, buffers left aside (the harness that measured them is not the one of the table)."""
    figures = []
    for (profile, mib), measured_s in HIERARCHICAL.items():
        group = Group(REGION_ORDER, int(mib * MIB))
        time = allreduce_seconds(Hierarchical(), [group], topology(profile))[0]
        figures.append(Figure(f"{profile} {mib} MiB", measured_s, time.seconds))
    return figures
