"""The document `topology.yaml`: machines, regions and the links between them, in the units that people have."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from hulk_placement.files.part import (
    API_VERSION,
    MOST_ACCELERATORS,
    MOST_MACHINES,
    Amount,
    Count,
    Name,
    OneOf,
    Part,
    Positive,
    Quantity,
)
from hulk_placement.files.units import (
    BANDWIDTH,
    FLOW,
    LATENCY,
    MATRIX_RATES,
    MEMORY,
    MEMORY_BANDWIDTH,
    NIC,
    SPEED,
    Accelerator,
    Bandwidth,
    Flow,
    Latency,
    Nic,
    Uplink,
)

Between = Literal["machines", "regions"]
Known = Literal["measured", "under load", "declared", "inferred"]


class Region(Uplink):
    """A region: where it is, what its machines share, what it costs."""

    name: Name
    """The region's name, as machines say it."""
    latitude: Annotated[float, Field(ge=-90, le=90)] | None = None
    """Degrees north. With coordinates, latencies below what light needs are warned of."""
    longitude: Annotated[float, Field(ge=-180, le=180)] | None = None
    """Degrees east."""
    price_per_hour: Amount | None = None
    """Price of one accelerator for an hour, of machines that state none; 0 = none is known."""
    egress_price_per_gigabyte: Amount | None = None
    """Price of 10^9 bytes to any other region, where the pair states none."""

    @model_validator(mode="after")
    def _is_a_place(self) -> Region:
        if (self.latitude is None) != (self.longitude is None):
            raise ValueError("coordinates are latitude and longitude: only one of them is given")
        return self


class InsideLink(Latency, Bandwidth):
    """The link between two accelerators of a machine."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (
        Quantity(LATENCY.name, LATENCY.units, required=True),
        Quantity(BANDWIDTH.name, BANDWIDTH.units, required=True),
    )


class Machine(Accelerator, Nic):
    """A machine, or `count` of them that are alike."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (MEMORY, MEMORY_BANDWIDTH, SPEED, NIC)

    name: Name
    """The machine's name; with `count`, name-0, name-1 and so on."""
    count: Annotated[int, Field(ge=1, le=MOST_MACHINES)] | None = None
    """How many machines like this one there are."""
    region: Name
    """Its region."""
    zone: str = ""
    """Its zone in the region."""
    accelerators: Annotated[int, Field(ge=0, le=MOST_ACCELERATORS)] = 1
    """Accelerators that are free."""
    product: Annotated[str, Field(min_length=1)] = "unknown"
    """Their product, by its label `nvidia.com/gpu.product`, such as NVIDIA-A100-SXM4-80GB."""
    inside: InsideLink | None = None
    """The link between two of its accelerators; absent = the product's."""
    price_per_hour: Amount | None = None
    """Price of one accelerator for an hour; absent = the region's; 0 = none is known: left out where prices decide."""
    keeps_windows: bool = False
    """Whether its TCP connections keep their congestion windows while they are silent, as with Linux's
    net.ipv4.tcp_slow_start_after_idle = 0 or BBR; else stages between regions wait for them to grow in every step."""


class SizePoint(Bandwidth):
    """What messages of one size get of a link: their bytes over all their seconds, the latency among them."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (Quantity(BANDWIDTH.name, BANDWIDTH.units, required=True),)

    message_bytes: Positive
    """Bytes of a message."""


class Link(Latency, Bandwidth, Flow):
    """What is known of a link from `source` to `target`, two machines or two regions; of a region to itself: inside it.

    It has a latency and a bandwidth (or `bandwidth: unknown`), or is `unknown`, or only tells the price.
    """

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (LATENCY, BANDWIDTH, FLOW)

    source: Name
    """Machine or region that sends."""
    target: Name
    """Machine or region that receives."""
    between: Between | None = None
    """What the names mean where they could mean both; absent = regions."""
    symmetric: bool = False
    """Whether all of it holds from target to source as well."""
    bandwidth: Literal["unknown"] | None = None
    """`unknown`: only the latency is known. Such a link is planned with the bandwidth of an unknown one."""
    bandwidth_by_size: Annotated[tuple[SizePoint, ...], Field(min_length=1)] | None = None
    """What messages of some sizes get, as benchmarks of send and receive print it; between two sizes it changes with
    the size's logarithm, beyond the ends it stays. Without a bandwidth, that is the largest of these."""
    own_wire: bool = False
    """Whether two machines have this link to themselves: it shares neither their regions' link and uplinks nor their
    NICs. Of machines only."""
    streams: Count = 1
    """How many TCP connections together reached the bandwidth."""
    unknown: bool = False
    """Nothing is known of the link: it is used only where the workload allows it."""
    known: Known = "declared"
    """How the figures came to be known."""
    age_seconds: Amount = 0
    """How old they are."""
    egress_price_per_gigabyte: Amount | None = None
    """Price of 10^9 bytes from source to target; of regions only."""

    @model_validator(mode="after")
    def _said(self) -> Link:
        has_latency, has_flow = self.figure(LATENCY) is not None, self.figure(FLOW) is not None
        has_rate = self.figure(BANDWIDTH) is not None or self.bandwidth_by_size is not None
        if has_rate and self.bandwidth:
            raise ValueError("bandwidth is unknown, and a bandwidth is given")
        if self.unknown and (has_latency or has_rate or self.bandwidth):
            raise ValueError("it is unknown, and figures are given")
        if has_latency != (has_rate or self.bandwidth is not None):
            missing = "a bandwidth (or bandwidth: unknown)" if has_latency else "a latency"
            raise ValueError(f"{missing} is missing")
        if has_flow and not has_rate:
            raise ValueError("the rate of one flow is given, but no bandwidth")
        sizes = [point.message_bytes for point in self.bandwidth_by_size or ()]
        if sizes != sorted(set(sizes)):
            raise ValueError(f"bandwidthBySize: sizes {', '.join(f'{size:g}' for size in sizes)} must rise")
        if self.own_wire and not has_rate:
            raise ValueError("it is a wire of its own, but no bandwidth is given")
        if not (has_latency or self.unknown or self.egress_price_per_gigabyte is not None):
            raise ValueError("it says nothing: give a latency and a bandwidth, or unknown: true, or a price")
        return self


class Matrix(Part):
    """A figure for every pair of `names`: row sends to column, null is unknown.

    The diagonal of regions is their inside, where it is neither 0 nor null; that of machines does not count.
    """

    names: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Machines or regions, in the order of rows and columns."""
    between: Between | None = None
    """What the names mean where they could mean both; absent = regions."""
    symmetric: bool = False
    """Whether one direction stands for both: the other one is null or the same."""
    rows: tuple[tuple[Amount | None, ...], ...]
    """A row for each name, a figure in it for each name."""


class LatencyMatrix(Matrix):
    """Latencies."""

    unit: Annotated[str, OneOf(tuple(LATENCY.units))]
    """What the figures are."""


class BandwidthMatrix(Matrix):
    """Rates."""

    unit: Annotated[str, OneOf(tuple(MATRIX_RATES.units))]
    """What the figures are."""
    streams: Count = 1
    """How many TCP connections together reached a figure."""


class TopologyFile(Part):
    """Machines, and what is known of the links between them. Anybody's: nothing in it need exist."""

    api_version: Literal["hulk.dev/files/v1"] = API_VERSION
    """Version of this format."""
    kind: Literal["Topology"] = "Topology"
    """What this document is."""
    description: str = ""
    """What this is, and where the figures come from."""
    machines: Annotated[tuple[Machine, ...], Field(min_length=1)]
    """The machines."""
    regions: tuple[Region, ...] = ()
    """What is known of their regions; a region of which nothing is known need not be here."""
    links: tuple[Link, ...] = ()
    """Links. A machine pair without one has its regions' link; one that is here stands before a matrix."""
    latency_matrix: LatencyMatrix | None = None
    """Latencies of many links at once."""
    bandwidth_matrix: BandwidthMatrix | None = None
    """Rates of many links at once; a latency without a rate is a link of unknown bandwidth."""
    flow_matrix: BandwidthMatrix | None = None
    """What a single TCP connection gets of each link, where that is not as much."""
