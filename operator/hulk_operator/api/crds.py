"""Turns the kinds into CustomResourceDefinitions."""

from functools import cache
from typing import Any

from hulk_operator import names
from hulk_operator.api.kinds import KINDS, Kind
from hulk_operator.api.rules import VALIDATIONS
from hulk_operator.api.schema import Schema, change_rules, strip_marks, structural

_TOP_LEVEL = ("spec", "status")


@cache
def crds() -> tuple[dict[str, Any], ...]:
    """The CustomResourceDefinitions of all kinds."""
    return tuple(crd(kind) for kind in KINDS)


def crd(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind."""
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        **({"subresources": {"status": {}}} if "status" in kind.model.model_fields else {}),
        "additionalPrinterColumns": list(kind.columns),
        "schema": {"openAPIV3Schema": strip_marks(root_schema(kind))},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": ["hulk"],
            },
            "versions": [version],
        },
    }


def root_schema(kind: Kind) -> Schema:
    """Schema of a whole object, `Change` marks still in it; metadata is Kubernetes' own."""
    schema = structural(kind.model)
    own = {name: child for name, child in schema["properties"].items() if name in _TOP_LEVEL}
    for child in own.values():
        child.pop("default", None)
    own["spec"] = _with_change_rules(own["spec"], kind.name.removeprefix("Hulk").lower())
    identity = {
        "apiVersion": {"type": "string", "description": f"{names.API_VERSION}."},
        "kind": {"type": "string", "description": f"{kind.name}."},
        "metadata": {"type": "object"},
    }
    required = [name for name in schema["required"] if name in _TOP_LEVEL]
    return (
        {**schema, "properties": identity | own, "required": required}
        if required
        else {
            **{key: value for key, value in schema.items() if key != "required"},
            "properties": identity | own,
        }
    )


def _with_change_rules(spec: Schema, what: str) -> Schema:
    validations = [*spec.get(VALIDATIONS, ()), *change_rules(spec, what)]
    return {**spec, VALIDATIONS: validations} if validations else spec
