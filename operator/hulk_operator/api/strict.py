"""Parses objects that people wrote into models, refusing what the API server would refuse.

The models alone are lenient, because the API server has checked what is stored, and it may be newer than the operator.
In a file an unknown field is a typing error, and numbers as text, broken rules and entries that are there twice would
only come to light when it is applied.
"""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hulk_operator import names
from hulk_operator.api.base import DECIMAL_PATTERN
from hulk_operator.api.elsewhere import NONE, here
from hulk_operator.api.kinds import KINDS, HulkJob, HulkSweep, HulkTopology, NodeProfile
from hulk_operator.api.rules import PREDICATES, VALIDATIONS
from hulk_operator.api.schema import Schema, structural
from hulk_operator.api.sweep_rules import SWEEP_RULES

_KINDS = {kind.name: kind for kind in KINDS}
_HOLDS = PREDICATES | {entry.cel: entry.holds for entry in SWEEP_RULES}


def parse(document: Any) -> HulkJob | HulkSweep | HulkTopology | NodeProfile:
    """The object in a YAML or JSON document. ValueError with one line per mistake, each with its field."""
    if not isinstance(document, Mapping) or document.get("kind") not in _KINDS:
        found = document.get("kind") if isinstance(document, Mapping) else type(document).__name__
        raise ValueError(f"kind {found!r}: expected one of {', '.join(_KINDS)}")
    if document.get("apiVersion") != names.API_VERSION:
        raise ValueError(f"apiVersion {document.get('apiVersion')!r}: expected {names.API_VERSION}")
    try:
        text = json.dumps(document, default=str)
    except TypeError as error:
        raise ValueError(f"not an object of texts, numbers, lists and maps: {error}") from error
    schema = _schema(document["kind"])
    mistakes = list(_unknown(schema, document, ""))
    try:
        # From JSON, where strict means what it means to the API server: a list is a list, and "4" is no number.
        parsed = _KINDS[document["kind"]].model.model_validate_json(text, strict=True)
        mistakes += _broken(schema, parsed.wire(), "")
    except ValidationError as error:
        mistakes += [f"{'.'.join(map(str, entry['loc']))}: {_words(entry)}" for entry in error.errors()]
    if mistakes:
        raise ValueError("\n".join(mistakes))
    assert isinstance(parsed, HulkJob | HulkSweep | HulkTopology | NodeProfile)
    return parsed


@cache
def _schema(kind: str) -> Schema:
    """The kind's schema; metadata is Kubernetes' own and not checked."""
    schema = structural(_KINDS[kind].model)
    metadata = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {**schema, "properties": schema["properties"] | {"metadata": metadata}}


def _unknown(schema: Schema, value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list) and "items" in schema:
        for number, entry in enumerate(value):
            yield from _unknown(schema["items"], entry, f"{path}[{number}]")
    if not isinstance(value, Mapping) or "properties" not in schema:
        return
    known = schema["properties"]
    for name, child in value.items():
        here = f"{path}.{name}" if path else str(name)
        if name in known:
            yield from _unknown(known[name], child, here)
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{here}: unknown field{_suggestion(str(name), list(known))}"


def _words(mistake: ErrorDetails) -> str:
    """What a value must be. Numbers that are text, as they may be too fine for a float, are most often mistaken."""
    given, expected = mistake["input"], mistake["msg"]
    is_number = mistake["type"] == "string_type" and isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number and mistake.get("ctx", {}).get("pattern") != DECIMAL_PATTERN:
        return expected
    if mistake["loc"][-2:] == ("trainable", "share"):
        words = "a share as quoted text, above 0 and at most 1: trainable% divided by 100"
        return f'{words}, such as "0.0052", not {given!r}'
    return f'must be quoted text: "{given}"' if is_number else f'a number as quoted text, such as "0.5", not {given!r}'


def _broken(schema: Schema, value: Any, path: str) -> Iterator[str]:
    """Rules that do not hold and entries that are there twice, each with its field; `value` fits the schema."""
    for validation in schema.get(VALIDATIONS, ()):
        if not _HOLDS[validation["rule"]](value):
            where = f"{path}{validation.get('fieldPath', '')}".lstrip(".")
            yield f"{where}: {validation['message']}" if where else validation["message"]
    if isinstance(value, list):
        yield from (f"{path}[{number}]: Duplicate value: {entry}" for number, entry in _twice(schema, value))
        for number, entry in enumerate(value):
            yield from _broken(schema["items"], entry, f"{path}[{number}]")
    if isinstance(value, Mapping):
        for name, child in schema.get("properties", {}).items():
            if name in value:
                yield from _broken(child, value[name], f"{path}.{name}".lstrip("."))


def _twice(schema: Schema, entries: list[Any]) -> Iterator[tuple[int, str]]:
    """Entries of a set, or of a map by its keys, that an earlier one equals."""
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys", ())
    seen = set()
    for number, entry in enumerate(entries if kind in ("set", "map") else ()):
        said = ", ".join(f"{key} {entry[key]}" for key in keys if key in entry) if keys else str(entry)
        if said in seen:
            yield number, said
        seen.add(said)


def _suggestion(name: str, known: list[str]) -> str:
    if field := here(name):
        has_none = field.startswith(NONE)
        return f"; Hulk has no such field: {field.removeprefix(NONE)}" if has_none else f"; here it is {field}"
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
