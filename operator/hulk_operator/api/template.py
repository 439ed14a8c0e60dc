"""The user's pod template: only the fields that rules need are declared, everything else is kept as it is.

Copying the whole PodTemplateSpec would make the CRD 20 times larger and lag behind Kubernetes; the API server checks
the pods themselves when they are created.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from hulk_operator import names
from hulk_operator.api import rules
from hulk_operator.api.base import Resource
from hulk_operator.api.rules import validated_by

PRESERVE: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
# Bounds that CEL's cost estimate needs; far above what pods use.
MAX_CONTAINERS = 16
MAX_ENV = 256
MAX_KEYS = 64


class EnvVar(Resource):
    """One environment variable; its value is kept as given."""

    model_config = ConfigDict(extra="allow", json_schema_extra=PRESERVE)

    name: Annotated[str, Field(min_length=1, max_length=253, description="Name of the variable.")]


class Container(Resource):
    """One container; Hulk adds its environment, plan and accelerators to the first one, the worker."""

    model_config = ConfigDict(extra="allow", json_schema_extra=PRESERVE)

    name: Annotated[str, Field(min_length=1, max_length=63, description="Name of the container.")]
    env: Annotated[
        tuple[EnvVar, ...], Field(max_length=MAX_ENV, description="Environment; the names Hulk sets are refused.")
    ] = ()


class PodTemplateSpecSpec(Resource):
    """A PodSpec, in which the fields that Hulk decides are refused."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra=PRESERVE | validated_by(rules.POD_SPEC),
    )

    containers: Annotated[
        tuple[Container, ...],
        Field(min_length=1, max_length=MAX_CONTAINERS, description="Containers; the first one is the worker."),
    ]
    restart_policy: Annotated[str | None, Field(max_length=16, description="Never, or absent.")] = None
    node_name: Annotated[str | None, Field(max_length=253, description="Refused: the plan names the node.")] = None
    scheduler_name: Annotated[str | None, Field(max_length=253, description="Refused: kube-scheduler binds.")] = None
    hostname: Annotated[str | None, Field(max_length=63, description="Refused: the pod's name is used.")] = None
    subdomain: Annotated[str | None, Field(max_length=63, description="Refused: the attempt's Service is used.")] = None
    priority_class_name: Annotated[
        str | None, Field(max_length=253, description="Refused: use spec.priorityClassName.")
    ] = None


class TemplateMeta(Resource):
    """Labels and annotations of the job's pods."""

    model_config = ConfigDict(extra="allow", json_schema_extra=PRESERVE)

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
    spec: Annotated[PodTemplateSpecSpec, Field(description="The PodSpec; unknown fields are kept.")]

    def pod_spec(self) -> dict[str, Any]:
        """The PodSpec as the user wrote it, absent fields left out."""
        return self.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
