"""Kubernetes' own fields of a pod template and of a network policy's rule, put into the schemas of the models.

`pod_spec.json` is made by `tools/pod_schema.py` from Kubernetes' published OpenAPI. The API server needs the fields to
compare templates (CEL does not see unknown ones), `kubectl explain` to show them, and both to refuse typing errors.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from hulk_operator.api.rules import Rule, validated_by

Schema = dict[str, Any]

KUBERNETES_KEY: Final = "x-hulk-kubernetes"  # marks a field of Kubernetes; the generator consumes it
_PUBLISHED: Final[Schema] = json.loads((Path(__file__).parent / "pod_spec.json").read_text(encoding="utf-8"))
RELEASE: Final[str] = _PUBLISHED["release"]
_TEMPLATE_META: Final[Schema] = {
    "name": {"type": "string", "description": "Ignored: pods are named after the job."},
    "generateName": {"type": "string", "description": "Ignored: pods are named after the job."},
    "namespace": {"type": "string", "description": "Ignored: pods are in the job's namespace."},
    "finalizers": {"type": "array", "items": {"type": "string"}, "description": "Finalizers of the pods."},
    # Tools write "creationTimestamp: null" into every template.
    "creationTimestamp": {"type": "string", "format": "date-time", "nullable": True, "description": "Ignored."},
}
_TYPES: Final[Schema] = {**_PUBLISHED["types"], "TemplateMeta": {"properties": _TEMPLATE_META}}


def with_fields(kind: str, rules: tuple[Rule, ...] = ()) -> Callable[[Schema], None]:
    """The `json_schema_extra` that adds a type's fields to those that a model declares, and rules on them."""

    def extend(schema: Schema) -> None:
        own = schema["properties"]
        schema["properties"] = own | {name: node for name, node in _fields(kind).items() if name not in own}
        if rules:
            schema.update(validated_by(rules))

    return extend


@cache
def _fields(kind: str) -> Schema:
    """The fields of one of Kubernetes' types, references put in place."""
    return {name: {**_whole(node), KUBERNETES_KEY: True} for name, node in _TYPES[kind]["properties"].items()}


def _whole(node: Any) -> Any:
    if isinstance(node, list):
        return [_whole(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        own = {key: value for key, value in node.items() if key != "$ref"}
        return {**_whole(_TYPES[node["$ref"]]), **own}
    return {key: _whole(child) for key, child in node.items()}
