"""HulkTopology: what cannot be measured (prices, rules) and what is declared where nothing was measured."""

from typing import Annotated

from pydantic import Field

from hulk_operator.api.base import (
    Count,
    Decimal,
    Namespace,
    NodePattern,
    Place,
    Positive,
    Product,
    Region,
    Resource,
    list_map,
)
from hulk_operator.names import MAX_REGIONS

MAX_PAIRS = 4096
MAX_PINNED = 16_384


class Uplink(Resource):
    """The capacity that all links of a region share."""

    region: Annotated[Region, Field(description="Region.")]
    bytes_per_second: Annotated[Positive, Field(description="TCP payload rate, each direction.")]


class Price(Resource):
    """What an accelerator costs."""

    product: Annotated[Product, Field(description="Accelerator's product label.")]
    per_hour: Annotated[Decimal, Field(description="Price of one for an hour, in one currency throughout.")]


class Egress(Resource):
    """What traffic between two regions costs."""

    source: Annotated[Region, Field(description="Region that sends.")]
    target: Annotated[Region, Field(description="Region that receives.")]
    per_gb: Annotated[Decimal, Field(description="Price of 10^9 bytes.")]


class DeclaredLink(Resource):
    """A link between two regions or two nodes; used only where nothing was measured."""

    source: Annotated[Place, Field(description="Region or node that sends.")]
    target: Annotated[Place, Field(description="Region or node that receives.")]
    rtt_microseconds: Annotated[Positive, Field(description="Round-trip time.")]
    bandwidth_bytes_per_second: Annotated[Positive, Field(description="TCP payload rate.")]


class DeclaredNode(Resource):
    """A node for planning from files; ignored where the cluster has nodes of its own."""

    name: Annotated[Place, Field(description="Node.")]
    region: Annotated[Region, Field(description="Its region.")]
    zone: Annotated[Region | None, Field(description="Its zone.")] = None
    accelerators: Annotated[Positive, Field(description="Accelerators that are free.")] = 1
    product: Annotated[Product | None, Field(description="Their product; absent = unknown.")] = None
    memory_bytes: Annotated[Count, Field(description="Memory of each; 0 = unknown.")] = 0
    flops_per_second: Annotated[Positive | None, Field(description="Speed of each; absent = not calibrated.")] = None


class Residency(Resource):
    """A region rule: jobs of a namespace may run only in these regions."""

    namespace: Annotated[Namespace, Field(description="Namespace of the jobs.")]
    regions: Annotated[
        tuple[Region, ...],
        Field(
            min_length=1,
            max_length=MAX_REGIONS,
            description="Regions that may be used.",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ]


class PinnedRegion(Resource):
    """The region that a node is in, whatever its label says."""

    node: Annotated[NodePattern, Field(description="Node, or the beginning of nodes' names and `*`.")]
    region: Annotated[Region, Field(description="Its region.")]


class HulkTopologySpec(Resource):
    """What is declared about regions, links and nodes."""

    uplinks: Annotated[
        tuple[Uplink, ...],
        Field(max_length=MAX_REGIONS, description="Shared uplinks.", json_schema_extra=list_map("region")),
    ] = ()
    prices: Annotated[
        tuple[Price, ...],
        Field(max_length=256, description="Prices of accelerators.", json_schema_extra=list_map("product")),
    ] = ()
    egress: Annotated[
        tuple[Egress, ...],
        Field(max_length=MAX_PAIRS, description="Prices of traffic.", json_schema_extra=list_map("source", "target")),
    ] = ()
    links: Annotated[
        tuple[DeclaredLink, ...],
        Field(max_length=MAX_PAIRS, description="Declared links.", json_schema_extra=list_map("source", "target")),
    ] = ()
    nodes: Annotated[
        tuple[DeclaredNode, ...],
        Field(max_length=MAX_PAIRS, description="Nodes for planning from files.", json_schema_extra=list_map("name")),
    ] = ()
    residency: Annotated[
        tuple[Residency, ...],
        Field(max_length=256, description="Region rules.", json_schema_extra=list_map("namespace")),
    ] = ()
    pinned_regions: Annotated[
        tuple[PinnedRegion, ...],
        Field(
            max_length=MAX_PINNED,
            description="The regions that nodes are in. A node whose label says otherwise gets no new pods, nor does a "
            "node in one of these regions that is not pinned to it.",
            json_schema_extra=list_map("node"),
        ),
    ] = ()
