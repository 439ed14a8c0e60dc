"""The parts of Kubernetes' own object metadata that Hulk reads or writes, and its conditions."""

from typing import Annotated, Literal

from pydantic import Field

from hulk_operator.api.base import Count, Message, Reason, Resource, Time


class OwnerReference(Resource):
    """Who owns an object: deleted with its owner by Kubernetes, so no finalizer is needed."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Resource):
    """Metadata of an API object; a file from a user has little more than a name."""

    name: str
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()


class Condition(Resource):
    """One observed fact about a job, in Kubernetes' usual form."""

    type: Annotated[str, Field(min_length=1, max_length=64, description="What the condition is about.")]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="Whether it holds.")]
    reason: Annotated[Reason, Field(description="Why, as one PascalCase word.")]
    message: Annotated[Message, Field(description="Why, as a sentence with its numbers.")] = ""
    observed_generation: Annotated[Count, Field(description="metadata.generation that was judged.")] = 0
    last_transition_time: Annotated[Time, Field(description="When `status` last changed.")]
