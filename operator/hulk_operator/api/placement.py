"""Where a HulkJob may run, which layers must be where, and what its plan is to do best."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from hulk_operator import names
from hulk_operator.api import rules
from hulk_operator.api.base import LIST_SET, Decimal, NodeName, Region, Resource
from hulk_operator.api.rules import validated_by

MAX_PINS = 64
MAX_PINNED_NODES = 256
SPANS = r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"


class LayerPin(Resource):
    """Layers that must be in one of some regions, or on one of some nodes."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.LAYER_PIN))

    layers: Annotated[
        str | None,
        Field(
            max_length=256,
            pattern=SPANS,
            description="Numbers of layers, both ends among them: 0-5 or 0-5,8. 0 is the embedding, the last the head.",
        ),
    ] = None
    parameters: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="Pattern of parameters' names, as in the state dict, such as model.layers.[0-5] or *embed*.",
        ),
    ] = None
    regions: Annotated[
        tuple[Region, ...],
        Field(max_length=names.MAX_REGIONS, description="Regions where they may be.", json_schema_extra=LIST_SET),
    ] = ()
    nodes: Annotated[
        tuple[NodeName, ...],
        Field(max_length=MAX_PINNED_NODES, description="Nodes where they may be.", json_schema_extra=LIST_SET),
    ] = ()


class Placement(Resource):
    """Where the job may run, and what its plan is to do best."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.PLACEMENT))

    regions: Annotated[
        tuple[Region, ...],
        Field(
            max_length=names.MAX_REGIONS,
            description="Regions that may be used; empty = all.",
            json_schema_extra=LIST_SET,
        ),
    ] = ()
    denied_regions: Annotated[
        tuple[Region, ...],
        Field(
            max_length=names.MAX_REGIONS,
            description="Regions that may not be used, whatever else allows them.",
            json_schema_extra=LIST_SET,
        ),
    ] = ()
    allow_unknown_links: Annotated[bool, Field(description="Whether links of which nothing is known may be used.")] = (
        False
    )
    pins: Annotated[
        tuple[LayerPin, ...],
        Field(
            max_length=MAX_PINS,
            description=(
                "Where layers must be. Without pipeline stages every worker holds all layers, so all workers go where "
                "every pin allows, and a job whose pins leave no such node is refused."
            ),
        ),
    ] = ()
    worker_nodes: Annotated[
        tuple[NodeName, ...],
        Field(
            max_length=names.MAX_WORKERS,
            description="The node of every worker, in rank order; empty = the plan decides.",
        ),
    ] = ()
    allow_scale_up: Annotated[
        Literal["none", "placeholders", "provisioningRequest"],
        Field(
            description=(
                "How new nodes are asked for while the job waits because those there are lack room: placeholders = by "
                "pods of the workers' size, which Cluster Autoscaler and Karpenter act on; provisioningRequest = by a "
                "ProvisioningRequest of Cluster Autoscaler's; none = not at all, its condition Planned says what it "
                "lacks."
            )
        ),
    ] = "none"
    objective: Annotated[
        Literal["time", "throughputPerMoney"],
        Field(description="What the plan is to do best: the shortest step, or the most sequences for the price."),
    ] = "time"
    max_price_per_hour: Annotated[
        Decimal | None,
        Field(
            description=(
                "What all the plan's accelerators may cost in an hour, by the prices of the HulkTopology. Nodes whose "
                "product has no price there are not used then, nor for throughputPerMoney."
            )
        ),
    ] = None
