"""HulkJob's spec: what to train, on how many workers, where, and how it runs.

Each field states when it may change (`Change`); the generator makes the CEL rules and the reference's table from it.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from hulk_operator import names
from hulk_operator.api import rules
from hulk_operator.api.base import (
    ANY_TIME,
    NEVER,
    SUSPENDED,
    Decimal,
    ObjectName,
    Region,
    Resource,
    ResourceName,
    Seconds,
    Series,
    list_map,
)
from hulk_operator.api.model import MAX_STEPS, Model, Training
from hulk_operator.api.network_policy import NetworkPolicy
from hulk_operator.api.placement import Placement
from hulk_operator.api.rules import validated_by
from hulk_operator.api.template import PodTemplate
from hulk_operator.api.utility import Utility


class Workers(Resource):
    """How many pods the job may have, and what each of them holds."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.WORKERS))

    min: Annotated[
        int,
        Field(ge=1, le=names.MAX_WORKERS, description="Fewest workers to run with.", json_schema_extra=ANY_TIME),
    ] = 1
    max: Annotated[
        int, Field(ge=1, le=names.MAX_WORKERS, description="Most workers to run with.", json_schema_extra=ANY_TIME)
    ]
    accelerators_per_worker: Annotated[
        int,
        Field(
            ge=1,
            le=64,
            description="Accelerators of each worker (elsewhere: numProcPerNode).",
            json_schema_extra=NEVER,
        ),
    ] = 1
    resource_name: Annotated[
        ResourceName, Field(description="Extended resource that counts accelerators.", json_schema_extra=NEVER)
    ] = names.DEFAULT_RESOURCE


class Parallelism(Resource):
    """Degrees of parallelism; an absent one is chosen by the plan."""

    data: Annotated[
        int | None,
        Field(
            ge=1,
            le=65_536,
            description=(
                "Replicas; absent = chosen by the plan from workers.min to workers.max. A replica is one rank, or "
                "shard x tensor for each stage: data x pipeline x shard x tensor must be acceleratorsPerWorker times a "
                "number of workers in that range; the plan then has exactly that many workers."
            ),
        ),
    ] = None
    pipeline: Annotated[
        int | None,
        Field(
            ge=1,
            le=1024,
            description=(
                "Stages. Above 1 each is one accelerator, or shard x tensor of them, and sync.mode must be auto or "
                "ring. absent = 1; for Hulk's own example (-m hulk_runtime.examples.gpt) chosen by the plan where no "
                "node has the memory for a whole model and shards are no quicker, or pins bind layers to different "
                "places."
            ),
        ),
    ] = None
    shard: Annotated[
        int | None,
        Field(
            ge=1,
            le=65_536,
            description=(
                "Ranks that divide a replica's parameters, gradients and optimizer states (FSDP), inside a node or on "
                "alike nodes of one region; replicas sum their shards. absent = 1; chosen by the plan where no node "
                "has the memory for a whole model, for a script that may shard it. hulk.device_mesh() and HULK_* "
                "variables tell the script; Hulk's own example (-m hulk_runtime.examples.gpt) runs them as planned. "
                "Beside stages they are never chosen, but planned where both are stated."
            ),
        ),
    ] = None
    tensor: Annotated[
        int | None,
        Field(
            ge=1,
            le=64,
            description=(
                "Tensor-parallel ranks, on one node; absent = 1; chosen by the plan where it chooses shards that do "
                "not do alone. Hulk's own example runs them as planned, also in stages."
            ),
        ),
    ] = None
    schedule: Annotated[
        Literal["1f1b", "gpipe"] | None,
        Field(
            description="The order of blocks in a pipeline; absent = searched for the job's links where that is better."
        ),
    ] = None


class LocalSync(Resource):
    """Settings of mode `local`: several steps between two synchronisations."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.LOCAL_SYNC))

    inner_steps: Annotated[
        int, Field(ge=1, le=100_000, description="Optimizer steps of each replica between two synchronisations.")
    ] = 50
    outer_learning_rate: Annotated[
        Decimal | None,
        Field(
            description="Of the outer step that moves all replicas by the mean of what each has moved; absent = 0.7 "
            "where sums are merged late (delaySteps), else 1."
        ),
    ] = None
    outer_momentum: Annotated[
        Decimal | None,
        Field(
            description="Nesterov's, of the outer step; below 1; absent = 0.9 where sums are merged late (delaySteps), "
            "else 0.5."
        ),
    ] = None
    fragments: Annotated[
        int | None,
        Field(
            ge=1,
            le=1000,
            description=(
                "Parts of the layers that come together in turn within innerSteps, in scripts with hulk.DiLoCo; absent "
                "= chosen so that links are hidden behind compute. Hulk's own loop sums all at once."
            ),
        ),
    ] = None
    delay_steps: Annotated[
        int | None,
        Field(
            ge=0,
            le=100_000,
            description="Steps that training goes on while a fragment is summed, in scripts with hulk.DiLoCo; absent = "
            "as few as hide links behind compute.",
        ),
    ] = None
    warmup_steps: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_STEPS,
            description="First steps, in each of which gradients are summed: replicas part from a model that has begun "
            "to learn. Absent = a fifth of training.steps, none where these are not said; 0 for a model that has "
            "learned before.",
        ),
    ] = None


class Sync(Resource):
    """How replicas agree on gradients."""

    mode: Annotated[
        Literal["auto", "ring", "wan", "local"],
        Field(
            description=(
                "ring = the all-reduce of torch's own backend in the planned order; wan = Hulk's own over the WAN; "
                "auto = whichever of the two the plan predicts to be faster, of those that the program can use "
                "(spec.instrumentation); local = replicas train apart and come together every local.innerSteps steps, "
                "which changes what is learned."
            )
        ),
    ] = "auto"
    local: Annotated[LocalSync | None, Field(description="Only for mode local.")] = None
    compression: Annotated[
        Literal["auto", "none", "bf16", "int8", "int4"],
        Field(
            description=(
                "What Hulk's own all-reduce sends between regions; inside a region nothing is compressed. auto = none; "
                "in scripts with hulk.DiLoCo int8 or int4 where links are not hidden behind compute otherwise. int4 is "
                "for mode local."
            )
        ),
    ] = "auto"
    on_region_loss: Annotated[
        Literal["restart", "continue"],
        Field(
            description=(
                "What happens when a whole region is cut off: a new attempt, or the side with more than half of the "
                "workers goes on without it (Hulk's own all-reduce only, so auto then chooses that)."
            )
        ),
    ] = "restart"
    fixed_shares: Annotated[
        bool,
        Field(
            description=(
                "Whether Hulk's own all-reduce keeps the plan's shares and paces whatever the links do: sums then have "
                "the same bits whenever the same plan runs again. Without it the ranks follow what links carry."
            )
        ),
    ] = False
    encryption: Annotated[
        Literal["wan", "none"],
        Field(
            description=(
                "wan = what Hulk's own all-reduce sends between regions is encrypted and authenticated, by AES-256-GCM "
                "or, where a processor has no AES, ChaCha20-Poly1305; none = it is sent as it is. Inside a region it "
                "always is, and so is everything that torch's own backends send."
            )
        ),
    ] = "wan"

    @property
    def may_use_wan(self) -> bool:
        """Whether a plan may use Hulk's own all-reduce, whose peers know each other by a secret."""
        return self.mode != "ring"


STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss", "hdfs", "webhdfs")
"""fsspec's names of stores that every node reaches. The worker's image must have the package for them: Hulk's own has
that of S3 (`object_store.PACKAGES` of the runtime), and a worker that lacks one says which."""


StoreUrl = Annotated[str, Field(max_length=1024, pattern=rf"^({'|'.join(STORES)})://[^/\s]+(/\S*)?$")]


class RegionalStore(Resource):
    """A region's own store."""

    region: Annotated[Region, Field(description="Region.")]
    url: Annotated[StoreUrl, Field(description="Object store, of any of the kinds of `url`.")]


class Storage(Resource):
    """Where checkpoints are kept: an object store by URL, or a volume claim."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.STORAGE))

    url: Annotated[
        StoreUrl | None,
        Field(
            description=(
                f"Object store, such as s3://bucket/path ({', '.join(STORES)}). Hulk's image has the package for S3; "
                "for another store the worker's image must have its own, such as gcsfs. A file or the memory of one "
                "node is refused: it is not there for the next attempt."
            ),
        ),
    ] = None
    regional: Annotated[
        tuple[RegionalStore, ...],
        Field(
            max_length=names.MAX_REGIONS,
            json_schema_extra=list_map("region"),
            description=(
                "Stores by region, for sharded checkpoints: the ranks of a region write to its own, those of another "
                "region to that of the region to which its link is best, or to `url` where no link is known. Empty = "
                "all to `url`."
            ),
        ),
    ] = ()
    secret_name: Annotated[
        ObjectName | None, Field(description="Secret whose keys become environment variables of the worker.")
    ] = None
    persistent_volume_claim: Annotated[
        ObjectName | None, Field(description="Claim that every worker's node can mount.")
    ] = None

    @property
    def where(self) -> str:
        """The place as the status tells it."""
        return self.url or f"pvc/{self.persistent_volume_claim}"


class Checkpoint(Resource):
    """When and where training state is saved."""

    storage: Annotated[Storage, Field(description="Where checkpoints are kept.", json_schema_extra=NEVER)]
    every_steps: Annotated[
        int, Field(ge=1, le=1_000_000_000, description="Steps between checkpoints.", json_schema_extra=ANY_TIME)
    ] = 50
    keep: Annotated[int, Field(ge=1, le=1000, description="How many to keep.", json_schema_extra=ANY_TIME)] = 3
    trust_store: Annotated[
        bool,
        Field(
            description=(
                "True: attempts also go on from checkpoints that are not signed by the job's secret, and begin at step "
                "1 in a folder that has lost them. For tasks of Hulk's runtime and hulk.Checkpointer: whoever can "
                "write there chooses the model, and can run no code."
            ),
            json_schema_extra=ANY_TIME,
        ),
    ] = False


class RunPolicy(Resource):
    """How often and how long the job is tried."""

    backoff_limit: Annotated[
        int,
        Field(
            ge=0,
            le=1000,
            description=(
                "Failures after which the job is Failed: of workers, and of starts for want of an image, a Secret or "
                "something else that the template names. Node losses, quotas and scheduling do not count."
            ),
        ),
    ] = 3
    start_timeout_seconds: Annotated[
        Seconds, Field(description="A gang that is not up by then is released and planned again.")
    ] = 300
    scale_up_timeout_seconds: Annotated[
        Seconds,
        Field(
            description=(
                "How long nodes are asked for (placement.allowScaleUp). After that the job waits without asking, and "
                "is planned when there is room."
            )
        ),
    ] = 900
    stall_seconds: Annotated[
        int | None,
        Field(
            ge=0,
            le=10 * 365 * 86_400,
            description=(
                "No step and no line of output of rank 0 for so long ends the attempt, as a failure; 0 = never. Absent "
                "= 50 steps as predicted or observed, at least half an hour, where steps are known (hulk-launch or "
                "hulk_runtime), else never."
            ),
        ),
    ] = None
    active_deadline_seconds: Annotated[Seconds | None, Field(description="A job that runs longer is Failed.")] = None
    ttl_seconds_after_finished: Annotated[
        int | None, Field(ge=0, le=315_360_000, description="A finished job is deleted after this time.")
    ] = None


class HulkJobSpec(Resource):
    """What the user wants."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.JOB_SPEC))

    suspend: Annotated[
        bool,
        Field(
            description="True: release all pods after a checkpoint, and leave Kueue's queue.",
            json_schema_extra=ANY_TIME,
        ),
    ] = False
    managed_by: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=253,
            description=f"Controller of this job; anything but {names.CONTROLLER} or absent: Hulk does not touch it.",
            json_schema_extra=NEVER,
        ),
    ] = None
    priority_class_name: Annotated[
        ObjectName | None, Field(description="PriorityClass of the job's pods.", json_schema_extra=SUSPENDED)
    ] = None
    workers: Annotated[
        Workers, Field(description="How many pods (elsewhere: numNodes, replicas), and what each holds.")
    ]
    model: Annotated[
        Model | None,
        Field(
            description=(
                "The model, in one of three forms. Absent = machines are chosen by their links and speed, and no "
                "memory is counted. The first steps measure gradients and compute "
                "(status.observed.model), by which the next plan of this template is made and predicted."
            ),
            json_schema_extra=NEVER,
        ),
    ] = None
    training: Annotated[Training, Field(description="How the model is trained.")] = Training()
    parallelism: Annotated[Parallelism, Field(description="Degrees of parallelism.", json_schema_extra=SUSPENDED)] = (
        Parallelism()
    )
    sync: Annotated[Sync, Field(description="How replicas agree on gradients.", json_schema_extra=SUSPENDED)] = Sync()
    instrumentation: Annotated[
        Literal["auto", "none"],
        Field(
            description=(
                "How Hulk's runtime gets into a program whose image lacks it. auto = where the plan uses Hulk's own "
                "all-reduce, sync.mode is local, or the model has shards or tensor ranks, an init container brings it: "
                "the script's own init_process_group and DistributedDataParallel take the all-reduce, known trainers "
                "train apart, hulk.device_mesh can be imported; none = the program is left alone: sync.mode auto is "
                "then ring, but for Hulk's own programs (-m hulk_runtime...)."
            ),
            json_schema_extra=SUSPENDED,
        ),
    ] = "auto"
    placement: Annotated[Placement, Field(description="Where the job may run.", json_schema_extra=SUSPENDED)] = (
        Placement()
    )
    utility: Annotated[Utility, Field(description="Worth among competing jobs.", json_schema_extra=ANY_TIME)] = (
        Utility()
    )
    metric: Annotated[
        Series | None,
        Field(
            description="A series without labels on rank 0's /metrics; its value is status.observed.metric.",
            json_schema_extra=ANY_TIME,
        ),
    ] = None
    checkpoint: Annotated[
        Checkpoint | None, Field(description="When and where state is saved; absent = no resume.")
    ] = None
    template: Annotated[PodTemplate, Field(description="PodTemplateSpec of every worker.", json_schema_extra=SUSPENDED)]
    network_policy: Annotated[
        NetworkPolicy, Field(description="Who else reaches the job's pods.", json_schema_extra=SUSPENDED)
    ] = NetworkPolicy()
    run_policy: Annotated[
        RunPolicy, Field(description="How often and how long the job is tried.", json_schema_extra=ANY_TIME)
    ] = RunPolicy()

    @property
    def global_batch(self) -> int:
        """Sequences per step; where it is not given, one for each accelerator that the job may have."""
        return self.training.global_batch or self.workers.max * self.workers.accelerators_per_worker

    @property
    def has_peer_secret(self) -> bool:
        """Whether its workers need a secret: to know each other between regions, or to sign checkpoints."""
        return self.sync.may_use_wan or self.checkpoint is not None

    @property
    def ours(self) -> bool:
        """Whether this operator is the one that manages the job."""
        return self.managed_by in (None, names.CONTROLLER)
