"""What the status says of a job among others: its place in the queue, its share, the energy that it took."""

from typing import Annotated

from pydantic import Field

from hulk_operator import names
from hulk_operator.api.base import Attempt, Count, Decimal, Positive, Reason, Resource, Time

MAX_QUEUE_MESSAGE = 400


class QueueStatus(Resource):
    """The place of a job that waits for accelerators that others have."""

    position: Annotated[Positive, Field(description="Place among the jobs that wait; the first is 1.")]
    since: Annotated[Time, Field(description="Since when it waits.")]
    reason: Annotated[Reason, Field(description="Why, as one PascalCase word.")]
    message: Annotated[str, Field(max_length=MAX_QUEUE_MESSAGE, description="Why, in a sentence.")] = ""
    expected_start: Annotated[Time | None, Field(description="When its turn is expected; absent = not known.")] = None


class ShareStatus(Resource):
    """What a decision among competing jobs gave this one."""

    workers: Annotated[
        int, Field(ge=0, le=names.MAX_WORKERS, description="Workers that it was given; 0 = it was stopped.")
    ]
    of_cluster: Annotated[Decimal, Field(description="Their part of the accelerators that jobs can have.")]
    fair: Annotated[
        Decimal, Field(description="What its namespace's weight alone would give it, jobs of a namespace alike.")
    ]
    time: Annotated[Time, Field(description="When it was decided.")]


class EnergyStatus(Resource):
    """What training took, by utility.energy.wattsPerWorker and the observed time of steps."""

    joules: Annotated[Count, Field(description="Of all attempts together, steps that were made again included.")]
    attempt: Annotated[Attempt, Field(description="Attempt that it was last counted in.")]
    step: Annotated[Count, Field(description="Step up to which it is counted.")]
