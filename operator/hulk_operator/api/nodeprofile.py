"""NodeProfile: what one node's agent shall measure (spec, by the operator) and has measured (status).

The operator writes spec, status.accelerators and the links under load; the agent writes everything else of status.
"""

from typing import Annotated, Literal

from pydantic import Field

from hulk_operator.api.base import MAX_COUNT, Count, Digest, NodeName, Positive, Product, Resource, Time, list_map

MAX_LINKS = 256
Address = Annotated[str, Field(min_length=1, max_length=45, pattern=r"^[0-9a-fA-F.:]+$")]
Port = Annotated[int, Field(ge=1, le=65_535)]
Streams = Annotated[int, Field(ge=1, le=64)]
# What an agent says, true or not: the operator judges it and says why it refuses it.
Reported = Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]


class Measurement(Resource):
    """One ordered measurement of one link."""

    id: Annotated[Positive, Field(description="Grows with every order to this node.")]
    target: Annotated[NodeName, Field(description="Node at the other end.")]
    address: Annotated[Address, Field(description="Its agent's address on the pod network.")]
    port: Annotated[Port, Field(description="Its agent's port.")]
    kind: Annotated[Literal["rtt", "bandwidth"], Field(description="What to measure.")]
    role: Annotated[
        Literal["client", "server"], Field(description="client sends; server opens its port for this target only.")
    ] = "client"
    streams: Annotated[Streams, Field(description="TCP streams of a bandwidth test.")] = 1
    seconds: Annotated[int, Field(ge=1, le=60, description="Longest duration.")] = 5
    max_bytes: Annotated[Count, Field(description="Byte budget; 0 = bounded by seconds.")] = 0
    not_before: Annotated[Time | None, Field(description="Start; absent = at once.")] = None


class NodeProfileSpec(Resource):
    """What to measure next."""

    measurement_id: Annotated[Count, Field(description="Highest id that was ever ordered.")] = 0
    measurements: Annotated[
        tuple[Measurement, ...],
        Field(max_length=MAX_LINKS, description="Ordered measurements.", json_schema_extra=list_map("id")),
    ] = ()


class EchoAddress(Resource):
    """Where a node's agent answers echoes."""

    address: Annotated[Address, Field(description="Address on the pod network.")]
    port: Annotated[Port, Field(description="UDP port.")]


class LinkStatus(Resource):
    """One measured link from this node to `target`; idle and under-load samples are separate entries."""

    target: Annotated[NodeName, Field(description="Node at the other end.")]
    under_load: Annotated[bool, Field(description="Whether a job used the link meanwhile.")] = False
    rtt_p50_microseconds: Annotated[
        Reported | None, Field(alias="rttP50Microseconds", description="Median round-trip time.")
    ] = None
    rtt_p95_microseconds: Annotated[
        Reported | None, Field(alias="rttP95Microseconds", description="95th percentile of the round-trip time.")
    ] = None
    bandwidth_bytes_per_second: Annotated[Reported | None, Field(description="TCP payload rate to the target.")] = None
    streams: Annotated[Streams | None, Field(description="TCP streams of that rate.")] = None
    time: Annotated[Time, Field(description="When it was measured.")]
    bandwidth_time: Annotated[
        Time | None, Field(description="When the bandwidth was measured; absent = at `time`.")
    ] = None
    samples: Annotated[Reported, Field(description="Number of round trips or seconds behind it.")] = 1


class AcceleratorStatus(Resource):
    """How fast this node really runs one workload, as the pods of one job measured it."""

    namespace: Annotated[
        str, Field(max_length=63, description="Namespace of the job; empty = nobody knows, so that it counts for none.")
    ] = ""
    job: Annotated[str, Field(max_length=63, description="The job.")] = ""
    product: Annotated[Product, Field(description="Accelerator's product label.")]
    workload: Annotated[Digest, Field(min_length=1, description="Digest of model and training configuration.")]
    flops_per_second: Annotated[Positive, Field(description="Useful FLOP/s of one accelerator.")]
    micro_batch: Annotated[Positive | None, Field(description="Sequences of a pass it was measured with.")] = None
    time: Annotated[Time, Field(description="When it was measured.")]
    samples: Annotated[Positive, Field(description="Number of passes behind it.")] = 1


class NodeProfileStatus(Resource):
    """What was measured."""

    last_id: Annotated[Count, Field(description="Highest measurement id that is done or given up.")] = 0
    echo: Annotated[EchoAddress | None, Field(description="Where this node's agent answers.")] = None
    links: Annotated[
        tuple[LinkStatus, ...],
        Field(
            max_length=MAX_LINKS,
            description="Measured links from this node.",
            json_schema_extra=list_map("target", "underLoad"),
        ),
    ] = ()
    accelerators: Annotated[
        tuple[AcceleratorStatus, ...],
        Field(
            max_length=MAX_LINKS,
            description="Measured speeds of this node.",
            json_schema_extra=list_map("namespace", "job", "product", "workload"),
        ),
    ] = ()
    keeps_windows: Annotated[
        bool, Field(description="Whether TCP on its pod network keeps the windows of silent connections.")
    ] = False
    agent_version: Annotated[str | None, Field(max_length=64, description="Version of the agent.")] = None
