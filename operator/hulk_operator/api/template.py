"""The user's pod template: the fields that rules need are declared here, Kubernetes' others are in its schema.

The schema is closed: an unknown field is refused or dropped by the API server. CEL cannot see unknown fields, so a
template that changes by one of them would be taken for the same. What the user wrote is kept as it is: there are no
defaults, and the API server checks values when it is asked for a pod.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from hulk_operator import names
from hulk_operator.api import rules
from hulk_operator.api.base import Resource
from hulk_operator.api.pod_schema import RELEASE, with_fields
from hulk_operator.api.rules import validated_by

# Bounds that CEL's cost estimate needs; far above what pods use.
MAX_CONTAINERS = 16
MAX_ENV = 256
MAX_KEYS = 64


class EnvVar(Resource):
    """One environment variable; its value is kept as given."""

    model_config = ConfigDict(extra="allow", json_schema_extra=with_fields("V1EnvVar"))

    name: Annotated[str, Field(min_length=1, max_length=253, description="Name of the variable.")]


class Container(Resource):
    """One container; Hulk adds its environment, plan and accelerators to the first one, the worker."""

    model_config = ConfigDict(extra="allow", json_schema_extra=with_fields("V1Container"))

    name: Annotated[str, Field(min_length=1, max_length=63, description="Name of the container.")]
    env: Annotated[
        tuple[EnvVar, ...], Field(max_length=MAX_ENV, description="Environment; the names Hulk sets are refused.")
    ] = ()


class PodTemplateSpecSpec(Resource):
    """A PodSpec, in which the fields that Hulk decides are refused."""

    model_config = ConfigDict(extra="allow", json_schema_extra=with_fields("V1PodSpec", rules.POD_SPEC))

    containers: Annotated[
        tuple[Container, ...],
        Field(min_length=1, max_length=MAX_CONTAINERS, description="Containers; the first one is the worker."),
    ]
    restart_policy: Annotated[str | None, Field(max_length=16, description="Never, or absent.")] = None
    node_name: Annotated[str | None, Field(max_length=253, description="Refused: the plan names the node.")] = None
    scheduler_name: Annotated[
        str | None,
        Field(
            max_length=253,
            description="Who binds the pods, default-scheduler if absent; it must keep to required node affinity.",
        ),
    ] = None
    hostname: Annotated[str | None, Field(max_length=63, description="Refused: the pod's name is used.")] = None
    subdomain: Annotated[str | None, Field(max_length=63, description="Refused: the attempt's Service is used.")] = None
    priority_class_name: Annotated[
        str | None, Field(max_length=253, description="Refused: use spec.priorityClassName.")
    ] = None


class TemplateMeta(Resource):
    """Labels and annotations of the job's pods."""

    model_config = ConfigDict(extra="allow", json_schema_extra=with_fields("TemplateMeta"))

    labels: Annotated[
        dict[str, Annotated[str, Field(max_length=63)]],
        Field(
            max_length=MAX_KEYS,
            description=f"Labels; keys under {names.RESERVED_PREFIX} are refused.",
            json_schema_extra=validated_by(rules.LABELS),
        ),
    ] = Field(default_factory=dict)
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=65_536)]],
        Field(
            max_length=MAX_KEYS,
            description=f"Annotations; keys under {names.RESERVED_PREFIX} are refused.",
            json_schema_extra=validated_by(rules.ANNOTATIONS),
        ),
    ] = Field(default_factory=dict)


class PodTemplate(Resource):
    """A PodTemplateSpec, kept as the user wrote it."""

    metadata: Annotated[TemplateMeta, Field(description="Labels and annotations of the pods.")] = TemplateMeta()
    spec: Annotated[
        PodTemplateSpecSpec,
        Field(
            description=(
                f"The PodSpec, with all fields of Kubernetes {RELEASE} (`kubectl explain hulkjob.spec.template.spec`)."
            )
        ),
    ]

    def pod_spec(self) -> dict[str, Any]:
        """The PodSpec as the user wrote it, absent fields left out."""
        return self.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
