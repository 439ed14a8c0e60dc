"""YAML (or JSON, which is YAML) -> a document's values -> the document, with every mistake by its place and value.

YAML 1.1, which PyYAML reads, takes `1e9` for a text and lets a later key silently replace an earlier one; here the
first is a number and the second a mistake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hulk_placement.files.part import API_VERSION, NAME_PATTERN

M = TypeVar("M", bound=BaseModel)
_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_LONGEST_SHOWN = 60
YAML_ERRORS = (yaml.YAMLError, RecursionError, LookupError, AttributeError)
"""What PyYAML raises for a text that is no YAML; the last two where a tag does not fit its value, like `!!int ""`."""
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Reader(_Loader):  # type: ignore[misc]
    """Keys once, floats as in YAML 1.2."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        found: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in found and key_node.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is there twice", key_node.start_mark)
            found.add(key)
        return dict(super().construct_mapping(node, deep))


class _Writer(_Dumper):  # type: ignore[misc]
    """Values in full wherever they are, and texts in quotes that the reader would take for numbers."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _either in (_Reader, _Writer):
    _either.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def load(text: str) -> Any:
    """The values of a YAML text of one document, None for nothing. ValueError where it is none."""
    return _only(load_all(text))


def load_all(text: str) -> list[Any]:
    """The values of every document in a YAML text. ValueError where it is none."""
    try:
        return list(yaml.load_all(text, _Reader))
    except YAML_ERRORS as error:
        try:
            return [json.loads(text, object_pairs_hook=_once)]  # has escapes that YAML does not know
        except (ValueError, RecursionError):
            raise ValueError(f"not YAML: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def dump(values: Any) -> str:
    """The text of a document's values, in their order; `load` gives them back."""
    text: str = yaml.dump(
        values, Dumper=_Writer, sort_keys=False, width=120, allow_unicode=True, default_flow_style=None
    )
    return text


def read_values(path: Path) -> Any:
    """The values of a YAML or JSON file of one document. ValueError, with the file's name, where it is none."""
    return _only(read_all(path), f"{path}: ")


def read_all(path: Path) -> list[Any]:
    """The values of every document in a YAML file. ValueError, with the file's name, where it holds none."""
    try:
        return load_all(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _only(documents: list[Any], where: str = "") -> Any:
    if len(documents) > 1:
        raise ValueError(f"{where}{len(documents)} documents, where one is read")
    return documents[0] if documents else None


def parse(model: type[M], values: Any, where: str) -> M:
    """The part in a document's values. ValueError with one line per mistake, each with its place and what is there."""
    if not isinstance(values, dict):
        raise ValueError(f"{where}: expected a map of keys, found {_shown(values)}")
    if "kind" in model.model_fields:
        _require_kind(model, values, where)
    try:
        # From JSON, where strict takes a list for a list and no text for a number.
        return model.model_validate_json(json.dumps(values, default=str), strict=True)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"{where}: not a map of texts, numbers, lists and maps: {error}") from error
    except ValidationError as error:
        schema = model.model_json_schema()
        raise mistaken(where, [_sentence(entry, schema) for entry in _causes(error.errors())]) from error


def mistaken(where: str, mistakes: list[str]) -> ValueError:
    """The error that lists the mistakes of a document."""
    return ValueError("\n  ".join([f"{where}:", *mistakes]))


def _require_kind(model: type[BaseModel], values: dict[Any, Any], where: str) -> None:
    (expected,) = get_args(model.model_fields["kind"].annotation)
    if values.get("kind") != expected:
        raise ValueError(f"{where}: kind {_shown(values.get('kind'))}: expected {expected}")
    if values.get("apiVersion") != API_VERSION:
        raise ValueError(f"{where}: apiVersion {_shown(values.get('apiVersion'))}: expected {API_VERSION}")


def _causes(entries: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without lists that are too short because of the mistakes in them."""
    places = [entry["loc"] for entry in entries]
    return [
        entry
        for entry in entries
        if entry["type"] != "too_short"
        or not any(place[: len(entry["loc"])] == entry["loc"] != place for place in places)
    ]


def _sentence(entry: ErrorDetails, schema: dict[str, Any]) -> str:
    place, kind = _place(entry["loc"]), entry["type"]
    if kind == "extra_forbidden":
        close = get_close_matches(str(entry["loc"][-1]), _keys_at(schema, entry["loc"][:-1]), n=1)
        return f"{place}: no key of this document{f'; did you mean {close[0]}?' if close else ''}"
    if kind == "missing":
        return f"{place}: missing"
    if kind == "model_type" and entry["input"] is None:
        return f"{place}: without a value: write its keys under it, or leave it out"
    if kind == "value_error":
        said = entry["msg"].removeprefix("Value error, ")
        return f"{place}: {said}" if place else said
    if kind == "string_pattern_mismatch" and entry["ctx"]["pattern"] == NAME_PATTERN:
        return f"{place}: {_shown(entry['input'])} must be a name without blanks around it"
    if kind == "string_type" and isinstance(entry["input"], bool | int | float):
        return f"{place}: {_shown(entry['input'])} must be a text: put it in quotes"
    return f"{place}: {_shown(entry['input'])} {entry['msg'][entry['msg'].find('should') :]}"


def _place(loc: tuple[int | str, ...]) -> str:
    """
    >>> _place(("links", 3, "rttMilliseconds"))
    'links[3].rttMilliseconds'
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def _keys_at(schema: dict[str, Any], loc: tuple[int | str, ...]) -> list[str]:
    """The keys that a document may have at a place.

    >>> link = {"properties": {"source": {"type": "string"}}}
    >>> _keys_at({"properties": {"links": {"items": {"$ref": "#/$defs/L"}}}, "$defs": {"L": link}}, ("links", 3))
    ['source']
    """
    parts = [schema]
    for step in loc:
        parts = [child for part in parts for child in _children(part, step, schema.get("$defs", {}))]
    return [key for part in parts for key in part.get("properties", ())]


def _children(part: dict[str, Any], step: int | str, defs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts that one step of a place leads to, in each of the forms that a value may have."""
    child = part.get("items") if isinstance(step, int) else part.get("properties", {}).get(step)
    forms = [child] if isinstance(child, dict) else []
    while forms:
        form = forms.pop()
        if "$ref" in form:
            forms.append(defs[form["$ref"].rsplit("/", 1)[-1]])
        elif "anyOf" in form:
            forms.extend(form["anyOf"])
        else:
            yield form
