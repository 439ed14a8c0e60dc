"""A document's model -> its JSON schema, as editors and other programs read it."""

from __future__ import annotations

from typing import Any

from hulk_placement.files.part import Part


def schema(document: type[Part]) -> dict[str, Any]:
    """The JSON schema (2020-12). A key without a value is a mistake: null is nowhere but in matrices."""
    made = _tidy(document.model_json_schema())
    made["required"] = ["apiVersion", "kind", *made["required"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def _tidy(node: Any) -> Any:
    """Without titles, which repeat the keys, and without null as a value of a key."""
    if isinstance(node, list):
        return [_tidy(child) for child in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _tidy(child) for key, child in node.items() if not (key == "title" and isinstance(child, str))}
    if "properties" in kept:
        kept["properties"] = {name: _without_null(child) for name, child in kept["properties"].items()}
    return kept


def _without_null(entry: dict[str, Any]) -> dict[str, Any]:
    others = [way for way in entry.get("anyOf", []) if way != {"type": "null"}]
    if len(others) != 1 or len(entry["anyOf"]) == 1:
        return entry
    return {**others[0], **{key: value for key, value in entry.items() if key not in ("anyOf", "default")}}
