"""The model of a HulkJob in one of three forms, and how it is trained."""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from hulk_operator.api import rules
from hulk_operator.api.base import ANY_TIME, GROWS, LIST_SET, NEVER, ConfigMapKey, Decimal, ObjectName, Resource
from hulk_operator.api.rules import validated_by

MAX_STEPS: Final = 1_000_000_000


class Transformer(Resource):
    """A decoder-only transformer by its dimensions."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.TRANSFORMER))

    layers: Annotated[int, Field(ge=1, le=1024, description="Number of blocks.")]
    hidden: Annotated[int, Field(ge=1, le=1_048_576, description="Width of the model.")]
    heads: Annotated[int, Field(ge=1, le=4096, description="Attention heads per block.")]
    sequence_length: Annotated[int, Field(ge=1, le=16_777_216, description="Tokens per sequence.")]
    vocabulary: Annotated[int, Field(ge=2, le=16_777_216, description="Number of different tokens.")]
    feed_forward: Annotated[
        int | None, Field(ge=1, le=8_388_608, description="Width of the feed-forward layer; absent = 4 x hidden.")
    ] = None


class ConfigMapRef(Resource):
    """One key of a ConfigMap in the job's namespace."""

    config_map: Annotated[ObjectName, Field(description="Name of the ConfigMap.")]
    key: Annotated[ConfigMapKey, Field(description="Key that holds the text.")]


ParameterPattern = Annotated[str, Field(min_length=1, max_length=253)]


class Trainable(Resource):
    """Which parameters are trained; the others have no gradient, no optimizer state and no all-reduce."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.TRAINABLE))

    parameters: Annotated[
        tuple[ParameterPattern, ...] | None,
        Field(
            min_length=1,
            max_length=32,
            description=(
                "Patterns of parameters' names in the state dict, or of modules that they are in, such as lm_head or "
                "*.q_proj.weight; * goes over dots. Of a profile they are matched with the names of its layers."
            ),
            json_schema_extra=LIST_SET,
        ),
    ] = None
    share: Annotated[
        Decimal | None,
        Field(
            description=(
                "The part of all parameters, above 0 and at most 1: for LoRA what PEFT prints as trainable%, "
                "divided by 100."
            )
        ),
    ] = None


class Model(Resource):
    """The model in exactly one of three forms."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.MODEL))

    transformer: Annotated[Transformer | None, Field(description="A transformer's dimensions.")] = None
    hugging_face: Annotated[ConfigMapRef | None, Field(description="A Hugging Face config.json in a ConfigMap.")] = None
    profile: Annotated[
        ConfigMapRef | None,
        Field(description="A profile of layers (parameters, FLOPs, activation bytes) in a ConfigMap."),
    ] = None
    sequence_length: Annotated[
        int | None,
        Field(
            ge=1,
            le=16_777_216,
            description=(
                "Tokens of a training sequence, beside any form; absent = as many as the form says, of a config all of "
                "its positions."
            ),
        ),
    ] = None
    trainable: Annotated[Trainable | None, Field(description="What of it is trained; absent = all.")] = None


class Training(Resource):
    """How the model is trained."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.TRAINING))

    global_batch: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_048_576,
            description="Sequences per step, over all workers; absent = one for each accelerator of workers.max.",
            json_schema_extra=NEVER,
        ),
    ] = None
    micro_batch: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_048_576,
            description="Sequences per forward pass on one accelerator; absent = chosen by the plan.",
            json_schema_extra=ANY_TIME,
        ),
    ] = None
    shares: Annotated[
        Literal["equal", "planned"] | None,
        Field(
            description=(
                "How the global batch falls on unequal machines: equal = on each rank as many sequences as on any "
                "other; planned = more on faster ones, so that the slowest is as quick as can be. The program must "
                "then draw its rank's share and weigh gradients by sequences, as hulk_runtime's own loop does. Absent "
                "= planned where the first container runs a module of hulk_runtime.examples, else equal."
            ),
            json_schema_extra=ANY_TIME,
        ),
    ] = None
    precision: Annotated[
        Literal["fp32", "bf16", "fp16"], Field(description="Number format of compute.", json_schema_extra=NEVER)
    ] = "fp32"
    optimizer: Annotated[
        Literal["adamw", "sgd"],
        Field(description="Optimizer; decides the memory per parameter.", json_schema_extra=NEVER),
    ] = "adamw"
    steps: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_STEPS,
            description=(
                "Steps until the job is done. Raised while an attempt runs: it ends with the steps of its plan, and "
                "another attempt resumes from its checkpoint; without `checkpoint` that one begins at step 1. A job "
                "that has succeeded makes no more. Absent = until the program ends."
            ),
            json_schema_extra=GROWS,
        ),
    ] = None

    @property
    def num_steps(self) -> int:
        """Steps until the job is done; as many as there may be where nobody said."""
        return self.steps or MAX_STEPS
