"""The user's pod template: only the fields that rules need are declared, everything else is kept as it is.

Copying the whole PodTemplateSpec would make the CRD 20 times larger and lag behind Kubernetes; the API server checks
the pods themselves when they are created.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from hulk_operator import names
from hulk_operator.api.base import Resource, rule, rules

PRESERVE: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
# Bounds that CEL's cost estimate needs; far above what pods use.
MAX_CONTAINERS = 16
MAX_ENV = 256
MAX_KEYS = 64

_RESERVED_ENV = ", ".join(f"'{name}'" for name in names.RESERVED_ENV)


def _refuse_reserved(field: str) -> dict[str, Any]:
    return rules(
        rule(
            f"self.all(key, !key.startsWith('{names.RESERVED_PREFIX}'))",
            f"{field} under {names.RESERVED_PREFIX} belong to Hulk; remove them",
        )
    )


def _refuse_set(field: str, why: str) -> dict[str, str]:
    return rule(f"!has(self.{field}) || self.{field} == ''", why, f".{field}", "FieldValueForbidden")


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
        json_schema_extra=PRESERVE
        | rules(
            _refuse_set("nodeName", "nodes come from the plan; use spec.placement.pins"),
            _refuse_set("schedulerName", "pods are bound by kube-scheduler, as planned; remove schedulerName"),
            _refuse_set("hostname", "host names come from the plan; remove hostname"),
            _refuse_set("subdomain", "the subdomain is the attempt's Service; remove subdomain"),
            _refuse_set("priorityClassName", "set spec.priorityClassName of the HulkJob instead"),
            rule(
                "!has(self.restartPolicy) || self.restartPolicy in ['', 'Never']",
                "restartPolicy must be Never or absent: a gang is started again as a whole",
                ".restartPolicy",
            ),
            rule(
                f"!has(self.containers[0].env) || self.containers[0].env.all(e, !(e.name in [{_RESERVED_ENV}]))",
                "the first container sets an environment variable that Hulk sets "
                "(rank and rendezvous variables, HULK_*); remove it",
                ".containers",
            ),
        ),
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
            json_schema_extra=_refuse_reserved("labels"),
        ),
    ] = Field(default_factory=dict)
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=65_536)]],
        Field(
            max_length=MAX_KEYS,
            description=f"Annotations; keys under {names.RESERVED_PREFIX} are refused.",
            json_schema_extra=_refuse_reserved("annotations"),
        ),
    ] = Field(default_factory=dict)


class PodTemplate(Resource):
    """A PodTemplateSpec, kept as the user wrote it."""

    metadata: Annotated[TemplateMeta, Field(description="Labels and annotations of the pods.")] = TemplateMeta()
    spec: Annotated[PodTemplateSpecSpec, Field(description="The PodSpec; unknown fields are kept.")]

    def pod_spec(self) -> dict[str, Any]:
        """The PodSpec as the user wrote it, absent fields left out."""
        return self.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
