"""Who reaches a job's pods, beside each other and the operator."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from hulk_operator.api.base import Resource
from hulk_operator.api.pod_schema import with_fields

MAX_RULES = 16


class IngressRule(Resource):
    """A NetworkPolicyIngressRule of networking.k8s.io/v1, kept as the user wrote it."""

    model_config = ConfigDict(extra="allow", json_schema_extra=with_fields("V1NetworkPolicyIngressRule"))


class NetworkPolicy(Resource):
    """The NetworkPolicy of each attempt."""

    enabled: Annotated[
        bool,
        Field(description="False: none is made; whoever the namespace's own policies let through reaches the pods."),
    ] = True
    ingress: Annotated[
        tuple[IngressRule, ...],
        Field(
            max_length=MAX_RULES,
            description=(
                "More rules, as in a NetworkPolicy. Without any, workers of an attempt reach each other, and the "
                "operator and the namespaces of the chart's networkPolicy.prometheusNamespaces their port 9400."
            ),
        ),
    ] = ()

    def rules(self) -> list[dict[str, Any]]:
        """The user's rules as Kubernetes sees them."""
        return [rule.model_dump(mode="json", by_alias=True, exclude_none=True) for rule in self.ingress]
