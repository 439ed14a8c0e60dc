"""spec.utility: what a job's work is worth where jobs compete, in the words of `hulk_placement.fleet.utility`.

Work is counted in sequences: a step does training.globalBatch of them, whatever its number of workers.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from hulk_operator.api import rules
from hulk_operator.api.base import Count, Decimal, Positive, Resource, Seconds, Time
from hulk_operator.api.rules import validated_by

_ZERO_OR_MORE = "a decimal number, at least 0"
_ABOVE_ZERO = "a decimal number above 0"


class Sigmoid(Resource):
    """Worth nearly nothing until the midpoint, nearly all beyond."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.SIGMOID))

    steepness: Annotated[Decimal, Field(description=f"How fast worth grows there, per sequence: {_ABOVE_ZERO}.")]
    midpoint: Annotated[Count, Field(description="Sequences after which half is reached.")]


class Proportional(Resource):
    """Proportional fairness: a job that has had little gains most."""

    scale: Annotated[Positive, Field(description="Sequences that count as little.")] = 1


class Energy(Resource):
    """What a worker draws, and what that costs."""

    watts_per_worker: Annotated[
        int, Field(ge=1, le=1_000_000, description="Watts of one worker while it trains; status tells the joules.")
    ]
    power_price: Annotated[
        Decimal | None,
        Field(
            description=(
                "For type energy: what one squared watt costs for a second, in what a sequence is worth: "
                f"{_ZERO_OR_MORE}. Watts are those of all workers together, so each further one costs more."
            )
        ),
    ] = None


class Deadline(Resource):
    """Worth its weight when all steps are made in time."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.DEADLINE))

    at: Annotated[Time | None, Field(description="The moment.")] = None
    after_seconds: Annotated[Seconds | None, Field(description="As long after the job's creation.")] = None
    late_share: Annotated[Decimal, Field(description="What is left of its worth when it is late, from 0 to 1.")] = "0.1"


class Utility(Resource):
    """What the job's work is worth where several jobs compete."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.UTILITY))

    type: Annotated[
        Literal["throughput", "sqrt", "sigmoid", "proportional", "energy", "deadline"],
        Field(
            description=(
                "How worth grows with the sequences x that were trained. throughput: weight x. sqrt: weight sqrt(x), "
                "so that nothing is trained to excess. sigmoid: weight / (1 + e^(-steepness (x - midpoint))). "
                "proportional: weight ln(1 + x / scale). energy: weight x, less powerPrice watts^2 a second. deadline: "
                "weight once all steps are made in time; of a late job lateShare of it, in proportion to its steps."
            )
        ),
    ] = "throughput"
    weight: Annotated[Decimal, Field(description=f"What the job counts beside others: {_ABOVE_ZERO}.")] = "1"
    sigmoid: Annotated[Sigmoid | None, Field(description="For type sigmoid.")] = None
    proportional: Annotated[Proportional | None, Field(description="For type proportional; absent = scale 1.")] = None
    energy: Annotated[
        Energy | None, Field(description="For type energy; with any other type the joules are told all the same.")
    ] = None
    deadline: Annotated[Deadline | None, Field(description="For type deadline.")] = None
