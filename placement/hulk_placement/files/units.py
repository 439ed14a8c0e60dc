"""The figures of documents by their keys, each with what it is in the planner's base units: seconds, bytes, FLOP/s."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from hulk_placement.files.part import Part, Positive, Quantity

SECONDS = {"Milliseconds": (1, 1000), "Microseconds": (1, 1_000_000), "Seconds": (1, 1)}
_RATES = {
    "GigabitsPerSecond": (125_000_000, 1),
    "MegabitsPerSecond": (125_000, 1),
    "GigabytesPerSecond": (1_000_000_000, 1),
    "BytesPerSecond": (1, 1),
}
_SIZES = {"Gibibytes": (1 << 30, 1), "Gigabytes": (1_000_000_000, 1), "Bytes": (1, 1)}

LATENCY = Quantity(
    "latency",
    {
        "rttMilliseconds": (1, 1000),
        "rttMicroseconds": (1, 1_000_000),
        "oneWayMilliseconds": (2, 1000),
        "oneWayMicroseconds": (2, 1_000_000),
        "oneWaySeconds": (2, 1),
        "rttSeconds": (1, 1),
    },
)

ONE_WAY = Quantity("latency", {key: (1, divisor) for key, (ways, divisor) in LATENCY.units.items() if ways == 2})
"""A latency where it is said of one way."""


def _prefixed(name: str, prefix: str, units: dict[str, tuple[int, int]]) -> Quantity:
    return Quantity(name, {prefix + unit: scale for unit, scale in units.items()})


BANDWIDTH = _prefixed("bandwidth", "bandwidth", _RATES)
FLOW = _prefixed("the rate of one flow", "flow", _RATES)
UPLINK = _prefixed("uplink", "uplink", _RATES)
NIC = _prefixed("the NIC's rate", "nic", _RATES)
MEMORY = _prefixed("memory", "memory", _SIZES)
FRAMEWORK = _prefixed("framework memory", "framework", _SIZES)
MEMORY_BANDWIDTH = Quantity(
    "memory bandwidth",
    {"memoryBandwidthGigabytesPerSecond": (1_000_000_000, 1), "memoryBandwidthBytesPerSecond": (1, 1)},
)
SPEED = Quantity("speed", {"teraflopsPerSecond": (10**12, 1), "flopsPerSecond": (1, 1)})
MATRIX_RATES = Quantity("bandwidth", {unit[0].lower() + unit[1:]: scale for unit, scale in _RATES.items()})
FORWARD = _prefixed("forward time", "forward", SECONDS)
BACKWARD = _prefixed("backward time", "backward", SECONDS)


FlopsPerSecond = Annotated[float, Field(ge=1, le=1e21)]
"""From less than any machine to more than all: beyond, seconds of a step would be 0 or infinite."""


class Latency(Part):
    """A link's latency: of the round trip, or of one way, which is half of it unless the way back says another one."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (LATENCY,)

    rtt_milliseconds: Positive | None = None
    """Round-trip time, ms."""
    rtt_microseconds: Positive | None = None
    """Round-trip time, µs."""
    rtt_seconds: Positive | None = None
    """Round-trip time, s."""
    one_way_milliseconds: Positive | None = None
    """Latency of one way, ms."""
    one_way_microseconds: Positive | None = None
    """Latency of one way, µs."""
    one_way_seconds: Positive | None = None
    """Latency of one way, s."""


class Bandwidth(Part):
    """What a link carries from its source to its target."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (BANDWIDTH,)

    bandwidth_megabits_per_second: Positive | None = None
    """TCP payload rate, 10^6 bit/s."""
    bandwidth_gigabits_per_second: Positive | None = None
    """TCP payload rate, 10^9 bit/s."""
    bandwidth_gigabytes_per_second: Positive | None = None
    """TCP payload rate, 10^9 bytes/s."""
    bandwidth_bytes_per_second: Positive | None = None
    """TCP payload rate, bytes/s."""


class Flow(Part):
    """What one TCP connection gets of a link."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (FLOW,)

    flow_megabits_per_second: Positive | None = None
    """What a single TCP connection gets, 10^6 bit/s; absent = as much as `streams` of them did."""
    flow_gigabits_per_second: Positive | None = None
    """The same, 10^9 bit/s."""
    flow_gigabytes_per_second: Positive | None = None
    """The same, 10^9 bytes/s."""
    flow_bytes_per_second: Positive | None = None
    """The same, bytes/s."""


class Uplink(Part):
    """What leaves, or enters, a region at most."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (UPLINK,)

    uplink_megabits_per_second: Positive | None = None
    """What all flows that leave the region, or all that enter it, carry together, 10^6 bit/s; absent = no limit."""
    uplink_gigabits_per_second: Positive | None = None
    """The same, 10^9 bit/s."""
    uplink_gigabytes_per_second: Positive | None = None
    """The same, 10^9 bytes/s."""
    uplink_bytes_per_second: Positive | None = None
    """The same, bytes/s."""


class Nic(Part):
    """What leaves, or enters, a machine at most."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (NIC,)

    nic_megabits_per_second: Positive | None = None
    """What all flows that leave the machine, or all that enter it, carry together, 10^6 bit/s, those inside its region
    too; absent = no limit, with NCCL that of its widest link."""
    nic_gigabits_per_second: Positive | None = None
    """The same, 10^9 bit/s."""
    nic_gigabytes_per_second: Positive | None = None
    """The same, 10^9 bytes/s."""
    nic_bytes_per_second: Positive | None = None
    """The same, bytes/s."""


class Speed(Part):
    """How fast one accelerator trains."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (SPEED,)

    teraflops_per_second: Annotated[float, Field(ge=1e-12, le=1e9)] | None = None
    """Measured speed of one accelerator in training, 10^12 FLOP/s; absent = not measured."""
    flops_per_second: FlopsPerSecond | None = None
    """The same, FLOP/s."""


class Accelerator(Speed):
    """Figures of one accelerator; what is absent is unknown, or known by its product."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (MEMORY, MEMORY_BANDWIDTH, SPEED)

    memory_gibibytes: Positive | None = None
    """Memory of one accelerator, 2^30 bytes; absent = the product's, where its data sheet is known."""
    memory_gigabytes: Positive | None = None
    """The same, 10^9 bytes."""
    memory_bytes: Positive | None = None
    """The same, bytes."""
    memory_bandwidth_gigabytes_per_second: Positive | None = None
    """Rate of that memory, 10^9 bytes/s; absent = unknown, or the product's."""
    memory_bandwidth_bytes_per_second: Positive | None = None
    """The same, bytes/s."""
