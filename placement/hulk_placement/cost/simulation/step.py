"""What one training step does, as plain values: the input of the simulation, wherever its figures come from.

Replicas of stages compute blocks in a schedule's order; a block's output goes over a way to the next stage; gradients
are reduced bucket by bucket in groups of cells. A *cell* is one stage of one replica. A *way* draws on resources: a
directed region link, the uplink out of its source region, the uplink into its target region, one connection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hulk_placement.cost.simulation.schedule import Schedule

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Place:
    """Where bytes go: a directed link between regions, an uplink, inside a region or a machine, a wire, a NIC.

    `ends` are the names: regions (source, target) of a link, machines (source, target) of a wire that two have to
    themselves between regions, (region,) or (machine,) of the others.

    >>> print(Place("link", ("eu", "us")), Place("uplink out of", ("eu",)), sep=", ")
    link eu > us, uplink out of eu
    """

    kind: Literal[
        "link", "uplink out of", "uplink into", "inside region", "inside machine", "wire", "NIC out of", "NIC into"
    ]
    ends: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {' > '.join(self.ends)}"


@dataclass(frozen=True, slots=True)
class Resource:
    """What flows share: where that is, and the bytes a second it carries (infinite: never the limit).

    Several may have one place: a link, and one connection over it.
    """

    place: Place
    bytes_per_s: float

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0:
            raise ValueError(f"{self.place}: {self.bytes_per_s} B/s must be > 0")


@dataclass(frozen=True, slots=True)
class Way:
    """How bytes go from one cell to another: at most at `bytes_per_s`, drawing on resources, there `latency_s` later.

    The first resource names the way. A ring whose edges keep pace with each other is one way over all their resources;
    what it uses twice is named twice. `num_flows` equal flows go this way, each with that rate at most: where flows
    share a resource, they get that many shares. `is_cold`: stages find its connections silent (`windows.rs`).
    """

    resources: tuple[int, ...]
    bytes_per_s: float
    latency_s: float
    num_flows: int = 1
    is_cold: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.bytes_per_s < math.inf and 0 <= self.latency_s < math.inf and self.num_flows >= 1):
            raise ValueError(
                f"way: {self.bytes_per_s} B/s must be > 0, latency {self.latency_s} s >= 0, both finite, "
                f"{self.num_flows} flows >= 1"
            )
        if not self.resources:
            raise ValueError("way: it must draw on one resource at least, which names it")


@dataclass(frozen=True, slots=True, eq=False)
class Replica:
    """One pipeline of P stages and M micro-batches.

    `forward_s`, `backward_s` (P, M): seconds of each block; `boundary_bytes` (P - 1, M): what a stage gives to the
    next one, and as many bytes of gradient back; `ways`: for each boundary the way forward and the way back.
    """

    schedule: Schedule
    forward_s: Floats
    backward_s: Floats
    boundary_bytes: Floats
    ways: tuple[tuple[Way, Way], ...]

    def __post_init__(self) -> None:
        shape = len(self.schedule.orders), self.schedule.num_micro_batches
        found = self.forward_s.shape, self.backward_s.shape
        if found != (shape, shape) or self.boundary_bytes.shape != (shape[0] - 1, shape[1]):
            raise ValueError(
                f"replica: times of shapes {found} and bytes of shape {self.boundary_bytes.shape} for {shape[0]} "
                f"stages of {shape[1]} micro-batches"
            )
        if len(self.ways) != shape[0] - 1:
            raise ValueError(f"replica: {len(self.ways)} boundaries have ways, {shape[0] - 1} must")
        for figures in (self.forward_s, self.backward_s, self.boundary_bytes):
            if not (np.isfinite(figures).all() and (figures >= 0).all()):
                raise ValueError(f"replica: {figures.min()} is among times and bytes that must be >= 0 and finite")

    @classmethod
    def alike(
        cls,
        order: Schedule,
        forward_s: Sequence[float],
        backward_s: Sequence[float],
        boundary_bytes: Sequence[float] = (),
        ways: Sequence[tuple[Way, Way]] = (),
    ) -> Replica:
        """A replica whose micro-batches are all alike: seconds by stage, bytes by boundary."""

        def repeat(values: Sequence[float]) -> Floats:
            return np.repeat(np.array(values, float)[:, None], order.num_micro_batches, axis=1)

        return cls(order, repeat(forward_s), repeat(backward_s), repeat(boundary_bytes), tuple(ways))


@dataclass(frozen=True, slots=True)
class Edge:
    """What goes over one way in one phase of an all-reduce of one bucket."""

    way: Way
    num_bytes: float

    def __post_init__(self) -> None:
        if not 0 <= self.num_bytes < math.inf:
            raise ValueError(f"edge: {self.num_bytes} bytes must be >= 0 and finite")


Phase = tuple[Edge, ...]
"""Edges that start together; the next phase starts when all are there. gloo's ring has two, reducing and gathering."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients reduced together: there when `ready` (0 .. 1) of each member's last backward pass is done."""

    ready: float
    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.ready <= 1:
            raise ValueError(f"bucket: ready at {self.ready} of the last backward pass, must be 0 .. 1")
        if not self.phases or not all(self.phases):
            raise ValueError(f"bucket: {len(self.phases)} phases, must be >= 1, each with an edge")


Cell = tuple[int, int]
"""Replica and stage."""


@dataclass(frozen=True, slots=True)
class AllReduce:
    """One group's all-reduce of its gradients: buckets in order, `num_in_flight` at a time (gloo 2, Hulk's own 1).

    A cell is a member of one group at most, those with `after_all` apart: such a group sums what stages share (tied
    parameters) when all else is computed and reduced. Of its time the step does not feel the last `slack_s`.
    """

    members: tuple[Cell, ...]
    buckets: tuple[Bucket, ...]
    num_in_flight: int = 1
    after_all: bool = False
    slack_s: float = 0.0

    def __post_init__(self) -> None:
        ready = [bucket.ready for bucket in self.buckets]
        if not self.members or self.num_in_flight < 1 or ready != sorted(ready):
            raise ValueError(
                f"all-reduce of {len(self.members)} cells (>= 1), {self.num_in_flight} buckets in flight (>= 1), "
                f"ready at {ready} (rising)"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One training step. All replicas have as many stages.

    With `overlap` a stage computes while it sends; without, it waits until what it sent has arrived. With `is_early` a
    group reduces as soon as its members' gradients are there, else when all cells have computed. Replicas reduce once
    in `num_steps_apart` steps: a step bears its part of that, or waits `waited_s` in the mean where they go on
    computing (`cost.streaming`), which the events of one step do not show. When all is summed it takes `after_s` more,
    and `held_s` of sends that hold their receivers, too (`cost.blocking`), which the events do not know.
    """

    resources: tuple[Resource, ...]
    replicas: tuple[Replica, ...]
    all_reduces: tuple[AllReduce, ...] = ()
    overlap: bool = True
    is_early: bool = True
    num_steps_apart: int = 1
    waited_s: float | None = None
    after_s: float = 0.0
    held_s: float = 0.0

    def __post_init__(self) -> None:
        if self.num_steps_apart < 1:
            raise ValueError(f"all-reduces {self.num_steps_apart} steps apart: must be >= 1")
        if not (0 <= self.after_s < math.inf and 0 <= self.held_s < math.inf):
            raise ValueError(f"step: {self.after_s} s after its sums and {self.held_s} s held must be >= 0 and finite")
        if not self.replicas or len({len(replica.ways) for replica in self.replicas}) != 1:
            raise ValueError(f"{len(self.replicas)} replicas must be >= 1, all of as many stages")
        cells = [cell for group in self.all_reduces if not group.after_all for cell in group.members]
        if len(set(cells)) != len(cells):
            raise ValueError("a cell is a member of several all-reduces")
        for replica, stage in cells:
            if not (0 <= replica < len(self.replicas) and 0 <= stage < self.num_stages):
                raise ValueError(
                    f"cell {(replica, stage)} of an all-reduce: there are {len(self.replicas)} replicas of "
                    f"{self.num_stages} stages"
                )
        used = {number for way in self.every_way() for number in way.resources}
        if used and not 0 <= min(used) <= max(used) < len(self.resources):
            raise ValueError(f"resources {min(used)} .. {max(used)} are used, there are {len(self.resources)}")

    @property
    def num_stages(self) -> int:
        """Of every replica."""
        return len(self.replicas[0].ways) + 1

    def every_way(self) -> list[Way]:
        """Of pipelines, then of all-reduces."""
        own = [way for replica in self.replicas for both in replica.ways for way in both]
        buckets = [bucket for group in self.all_reduces for bucket in group.buckets]
        return own + [edge.way for bucket in buckets for phase in bucket.phases for edge in phase]
