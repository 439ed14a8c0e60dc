"""Writes operator/hulk_operator/api/pod_spec.json, the fields of Kubernetes' own types, from the `kubernetes` client.

The pinned client's models are made from Kubernetes' published OpenAPI. What a CRD's schema needs of them is little:
types, what is required, and the first sentence of each description for `kubectl explain`. Types stay apart and refer to
each other, so that the file is small; `api.pod_schema` puts them together. `--check` fails when the file is stale.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kubernetes.client.models import V1NetworkPolicyIngressRule, V1PodSpec

KINDS = (V1PodSpec, V1NetworkPolicyIngressRule)
TARGET = Path("operator/hulk_operator/api/pod_spec.json")
MAX_DESCRIPTION = 140
INT_OR_STRING = {"x-kubernetes-int-or-string": True}
QUANTITIES = frozenset({"limits", "requests", "overhead", "sizeLimit", "divisor"})
"""Fields that hold quantities: published as text, taken as a number as well."""
LEFT_OUT = {
    "V1PodSpec": {"ephemeralContainers"},  # are added to a pod that runs
    "V1ObjectMeta": {"managedFields", "ownerReferences", "creationTimestamp", "deletionTimestamp"},
}
Schema = dict[str, Any]


def sentence(text: str) -> str:
    """The first sentence, on one line.

    >>> sentence("Name of it. Must be a DNS label.\\n\\nMore")
    'Name of it.'
    """
    first = " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".")
    return f"{first[: MAX_DESCRIPTION - 3]}..." if len(first) >= MAX_DESCRIPTION else f"{first}."


def field(name: str, node: Schema) -> Schema:
    """One field's schema; absent is not null."""
    if "anyOf" in node:
        options = [option for option in node["anyOf"] if option.get("type") != "null"]
        shape = field(name, options[0]) if len(options) == 1 else dict(INT_OR_STRING)
    elif "$ref" in node:
        shape = {"$ref": node["$ref"].rsplit("/", 1)[-1]}
    elif node["type"] == "array":
        shape = {"type": "array", "items": field("", node["items"])}
    elif node["type"] == "object":
        shape = {"type": "object", "additionalProperties": field(name, node["additionalProperties"])}
    else:
        shape = dict(INT_OR_STRING) if name in QUANTITIES else {"type": node["type"]}
    return shape | ({"description": sentence(node["description"])} if node.get("description") else {})


def kind(name: str, node: Schema) -> Schema:
    """One type's schema."""
    properties = {
        key: field(key, child) for key, child in node["properties"].items() if key not in LEFT_OUT.get(name, ())
    }
    required = {"required": node["required"]} if "required" in node else {}
    return {"type": "object", "description": sentence(node["description"]), "properties": properties, **required}


def references(node: Any) -> set[str]:
    """Types that a schema refers to."""
    if isinstance(node, list):
        return {name for entry in node for name in references(entry)}
    if not isinstance(node, dict):
        return set()
    own = {node["$ref"]} if "$ref" in node else set()
    return own | {name for child in node.values() for name in references(child)}


def types() -> dict[str, Schema]:
    """Every type that one of `KINDS` reaches, by name."""
    published: dict[str, Schema] = {}
    for model in KINDS:
        whole = model.model_json_schema(by_alias=True)
        published |= {**whole.pop("$defs"), model.__name__: whole}
    found: dict[str, Schema] = {}
    wanted = {model.__name__ for model in KINDS}
    while missing := sorted(wanted - found.keys()):
        found |= {name: kind(name, published[name]) for name in missing}
        wanted = references(list(found.values())) | wanted
    return dict(sorted(found.items()))


def main() -> None:
    """Write, or with `--check` compare."""
    release = f"1.{version('kubernetes').split('.')[0]}"  # the client's major version is Kubernetes' minor one
    text = json.dumps({"release": release, "types": types()}, indent=1) + "\n"
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != text:
        raise SystemExit(f"stale: {TARGET}; run `python tools/pod_schema.py` and commit the result")


if __name__ == "__main__":
    main()
