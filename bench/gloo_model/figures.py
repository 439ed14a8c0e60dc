"""Other figures that were measured with gloo on the same emulated links, beside their predictions.

Measured for this project, medians; the table of single all-reduces does not have them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hulk_placement.cost.gloo import Gloo
from hulk_placement.cost.groups import Group, GroupTime
from hulk_placement.cost.hierarchical import Hierarchical
from hulk_placement.cost.transports import Transport, allreduce_seconds

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
    ("B", 16): 3.13,
}
"""Seconds of gloo in two levels on six nodes, by profile and MiB; one member a region, but for the last: both."""

AFTER_SILENCE = (
    ("C", REGION_ORDER, 4, 0.0, 2.64),
    ("C", REGION_ORDER, 4, 4.0, 3.70),
    ("B", ("P0", "O0", "T0"), 0.25, 4.0, 1.147),
    ("B", ("P0", "O0", "T0"), 4, 4.0, 2.383),
)
"""Seconds with cubic after so many seconds of silence. Profile and order were not recorded with these: they are those
of the measured cases whose seconds in use agree best."""


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
        way = Hierarchical("all" if (profile, mib) == ("B", 16) else "one")
        figures.append(Figure(f"{profile} {mib} MiB, {way.members}", measured_s, _six(way, profile, mib).seconds))
    return figures


def shared_16() -> GroupTime:
    """The last of them with its router's buffer, which its bursts overflow."""
    return _six(Hierarchical("all", Gloo(router_buffer_s=0.15)), "B", 16)


def silence() -> list[Figure]:
    """All-reduces over connections in use, and after 4 s without a word."""
    figures = []
    for profile, order, mib, silence_s, measured_s in AFTER_SILENCE:
        group = Group(order, int(mib * MIB))
        time = allreduce_seconds(Gloo(), [group], topology(profile), silence_s)[0]
        what = f"{profile} {len(order)} nodes {mib} MiB, silent for {silence_s:g} s"
        figures.append(Figure(what, measured_s, time.seconds))
    return figures


def _six(transport: Transport, profile: str, mib: float) -> GroupTime:
    return allreduce_seconds(transport, [Group(REGION_ORDER, int(mib * MIB))], topology(profile))[0]
