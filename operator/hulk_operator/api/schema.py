"""Turns a pydantic model into a structural OpenAPI schema with CEL rules, as a CustomResourceDefinition needs it.

Pydantic's JSON schema is almost that; what differs: references are put in place, titles go, an optional value is
"absent" instead of `null`, constants become enums, integers say their width, and `Change` marks become CEL rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hulk_operator.api.base import CHANGE_KEY, Change, Resource, rule
from hulk_operator.api.pod_schema import KUBERNETES_KEY

Schema = dict[str, Any]

_CHANGE_REASON = "FieldValueForbidden"
_MARKS = (CHANGE_KEY, KUBERNETES_KEY)


def structural(model: type[Resource]) -> Schema:
    """The structural schema of `model`, `Change` marks still in it (see `strip_marks`)."""
    whole = model.model_json_schema(by_alias=True, mode="validation")
    definitions = whole.pop("$defs", {})
    schema = _flatten(whole, definitions)
    return {**schema, "description": _first_line(model.__doc__ or "")}


def _flatten(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """References put in place, and everything below made structural."""
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[-1]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    if "anyOf" in node:
        (present,) = [option for option in node["anyOf"] if option.get("type") != "null"]
        return _flatten({**present, **{key: value for key, value in node.items() if key != "anyOf"}}, definitions)
    flat = {key: value for key, value in node.items() if key not in ("title", "const", "default", "properties")}
    if "const" in node:
        flat["enum"] = [node["const"]]
    if node.get("type") == "integer":
        flat["format"] = "int64"
    if "description" in node:
        flat["description"] = _first_line(node["description"])
    if "properties" in node:
        flat["properties"] = {name: _flatten(child, definitions) for name, child in node["properties"].items()}
    if "items" in node:
        flat["items"] = _flatten(node["items"], definitions)
    if isinstance(node.get("additionalProperties"), dict):
        flat["additionalProperties"] = _flatten(node["additionalProperties"], definitions)
    elif "additionalProperties" in node:
        del flat["additionalProperties"]  # `extra="allow"`: structural schemas say x-kubernetes-preserve-unknown-fields
    return flat | _default(node, flat)


def _default(node: Schema, flat: Schema) -> Schema:
    """An object's default is `{}`, filled by its fields' own; an empty list or map stays absent."""
    if "default" not in node or node["default"] in (None, [], ()):
        return {}
    if flat.get("type") == "object":
        return {"default": {}} if "properties" in flat else {}
    return {"default": node["default"]}


def _first_line(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


@dataclass(frozen=True, slots=True)
class Field:
    """One field somewhere in a schema."""

    path: tuple[str, ...]
    schema: Schema
    parents: tuple[Schema, ...]  # outermost first, without the field itself
    required: bool

    @property
    def marked(self) -> Change | None:
        """When it may change, where it says so itself."""
        return Change(self.schema[CHANGE_KEY]) if CHANGE_KEY in self.schema else None

    @property
    def is_of_kubernetes(self) -> bool:
        """Whether it is a field of Kubernetes' own types, or inside one."""
        return any(KUBERNETES_KEY in schema for schema in (self.schema, *self.parents))

    @property
    def is_fixed(self) -> bool:
        """Whether it is inside a field that never changes."""
        return any(parent.get(CHANGE_KEY) == Change.NEVER.value for parent in self.parents)

    @property
    def changes(self) -> Change | None:
        """When it may change: its own word, or the nearest parent's."""
        for schema in (self.schema, *reversed(self.parents)):
            if CHANGE_KEY in schema:
                return Change(schema[CHANGE_KEY])
        return None


def fields(schema: Schema) -> Iterator[Field]:
    """Every field of an object schema, parents before children; fields of list entries carry `[]` in their path."""
    yield from _fields(schema, (), ())


def _fields(schema: Schema, path: tuple[str, ...], parents: tuple[Schema, ...]) -> Iterator[Field]:
    for name, child in schema.get("properties", {}).items():
        here = (*path, name)
        yield Field(here, child, (*parents, schema), name in schema.get("required", ()))
        if child.get("type") == "array":
            yield from _fields(child["items"], (*path, f"{name}[]"), (*parents, schema, child))
        else:
            yield from _fields(child, here, (*parents, schema))


def change_rules(spec: Schema, what: str = "job") -> list[dict[str, str]]:
    """CEL rules on the spec of a `what` for every field that may not change freely.

    They all stand on the spec, because a rule on an object that appears or goes away is not run. A field inside one
    that never changes needs none of its own.
    """
    return [
        _change_rule(spec, field.path, field.marked, what)
        for field in fields(spec)
        if field.marked not in (None, Change.ANY_TIME) and not field.is_fixed
    ]


def _change_rule(spec: Schema, path: tuple[str, ...], when: Change | None, what: str) -> dict[str, str]:
    name, where = ".".join(("spec", *path)), "." + ".".join(path)
    if when is Change.GROWS:
        return rule(_both(spec, path, ">="), f"{name} may only grow", where, _CHANGE_REASON)
    same = _both(spec, path, "==")
    if when is Change.SUSPENDED:
        message = f"{name} may change only while spec.suspend is true; set it in the same change, or before"
        return rule(f"oldSelf.suspend || self.suspend || ({same})", message, where, _CHANGE_REASON)
    return rule(same, f"{name} cannot change; make a new {what}", where, _CHANGE_REASON)


def _both(schema: Schema, path: tuple[str, ...], operator: str) -> str:
    """CEL that compares a field's new value with its old one, where a part of its path may be absent.

    Written with `has`: CEL's cost estimate of an equality between optionals is unbounded.

    >>> _both({"properties": {"a": {"properties": {"b": {}}, "required": ["b"]}}}, ("a", "b"), "==")
    'has(self.a) == has(oldSelf.a) && (!has(self.a) || (self.a.b == oldSelf.a.b))'
    """
    return _compare(schema, path, "", operator)


def _compare(schema: Schema, path: tuple[str, ...], reached: str, operator: str) -> str:
    if not path:
        return f"self{reached} {operator} oldSelf{reached}"
    name, *rest = path
    child, here = schema["properties"][name], f"{reached}.{name}"
    inner = _compare(child, tuple(rest), here, operator)
    if name in schema.get("required", ()) or "default" in child:
        return inner
    return f"has(self{here}) == has(oldSelf{here}) && (!has(self{here}) || ({inner}))"


def strip_marks(schema: Schema) -> Schema:
    """The schema without marks of ours, ready for the API server."""

    def strip(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: strip(value) for key, value in node.items() if key not in _MARKS}
        return [strip(value) for value in node] if isinstance(node, list) else node

    stripped: Schema = strip(schema)
    return stripped
