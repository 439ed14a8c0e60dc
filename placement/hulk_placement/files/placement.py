"""The documents `placement.yaml` and `links.yaml`: one micro-batch's blocks on devices, and links between these.

Times and memory are in units of the keys, or all of them in one unit that nobody names (`span: 1`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from hulk_placement.files.part import API_VERSION, Amount, Name, Number, OneOf, Part, Quantity
from hulk_placement.files.units import MEMORY as MEMORY_BYTES
from hulk_placement.files.units import SECONDS
from hulk_placement.schedule.placement import Kind

MOST_DEVICES = 4096


def _times(key: str) -> tuple[Quantity, Quantity]:
    """A time in seconds, and in the unit that nobody names."""
    return Quantity(key, {key + unit: scale for unit, scale in SECONDS.items()}), Quantity(key, {key: (1, 1)})


SPAN_S, SPAN = _times("span")
BUSY_S, BUSY = _times("busy")
LATENCY_S, LATENCY = _times("latency")
MEMORY = Quantity("memory", {"memory": (1, 1)})


def _either(one: Quantity, other: Quantity, required: bool = False) -> Quantity:
    """A figure with its unit or without."""
    return Quantity(one.name, {**one.units, **other.units}, required)


class PlacedBlock(Part):
    """One block of a micro-batch."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (_either(SPAN_S, SPAN, required=True), _either(MEMORY_BYTES, MEMORY))

    name: Name
    """Its name; that of a backward or weight block is its forward block's but for the first letter."""
    kind: Annotated[str, OneOf(tuple(map(str, Kind)))] = "forward"
    """What it computes; weight is the gradients of weights, where no backward block has them in it."""
    devices: Annotated[tuple[Number, ...], Field(min_length=1)]
    """The devices that it occupies, all at once, counted from 0."""
    after: tuple[Name, ...] = ()
    """The blocks whose results it needs."""
    stage: Name | None = None
    """The part of the model that it computes; absent = the name without its first letter."""
    span: Amount | None = None
    """How long it takes, in a unit that nobody names; then no figure has one."""
    span_milliseconds: Amount | None = None
    """How long it takes, ms."""
    span_microseconds: Amount | None = None
    """The same, µs."""
    span_seconds: Amount | None = None
    """The same, s."""
    memory: float | None = None
    """What each of its devices holds from its start on, or, below 0, gives back at its end; in a unit nobody names."""
    memory_gibibytes: float | None = None
    """The same, GiB."""
    memory_gigabytes: float | None = None
    """The same, 10^9 bytes."""
    memory_bytes: float | None = None
    """The same, bytes."""


class PlacementFile(Part):
    """What a pipeline computes for one micro-batch: blocks, where each runs, and what it needs. For `hulk schedule`."""

    api_version: Literal["hulk.dev/files/v1"] = API_VERSION
    """Version of this format."""
    kind: Literal["Placement"] = "Placement"
    """What this document is."""
    description: str = ""
    """What this is, and where the figures come from."""
    devices: Annotated[int, Field(ge=1, le=MOST_DEVICES)]
    """How many devices there are."""
    blocks: Annotated[tuple[PlacedBlock, ...], Field(min_length=1)]
    """The blocks of one micro-batch; all micro-batches have the same."""


class Wire(Part):
    """The way from one device to another, for what a block there needs of a block here."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (_either(BUSY_S, BUSY), _either(LATENCY_S, LATENCY))

    source: Number
    """The device that sends."""
    target: Number
    """The device that receives."""
    symmetric: bool = False
    """Whether the way back is the same; it is a link of its own, which carries at the same time."""
    uplinks: tuple[Name, ...] = ()
    """What several links share, by any name, such as a region's way out: one transfer at a time is on it."""
    busy: Amount | None = None
    """How long a transfer occupies the link, by its bytes and the link's rate; absent = not at all."""
    busy_milliseconds: Amount | None = None
    """The same, ms."""
    busy_microseconds: Amount | None = None
    """The same, µs."""
    busy_seconds: Amount | None = None
    """The same, s."""
    latency: Amount | None = None
    """From then until it is there, one way, while the link is free for the next; absent = none."""
    latency_milliseconds: Amount | None = None
    """The same, ms."""
    latency_microseconds: Amount | None = None
    """The same, µs."""
    latency_seconds: Amount | None = None
    """The same, s."""

    @model_validator(mode="after")
    def _joins_two(self) -> Wire:
        if self.source == self.target:
            raise ValueError(f"a link from device {self.source} to itself: what a device has needs no link")
        return self


class LinksFile(Part):
    """Links between the devices of a placement. Devices without one exchange at once. For `hulk schedule --links`."""

    api_version: Literal["hulk.dev/files/v1"] = API_VERSION
    """Version of this format."""
    kind: Literal["Links"] = "Links"
    """What this document is."""
    description: str = ""
    """What this is, and where the figures come from."""
    links: Annotated[tuple[Wire, ...], Field(min_length=1)]
    """The links, each from one device to another."""
