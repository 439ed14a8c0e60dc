"""Parses objects that people wrote into models, refusing every field that the schema does not know.

The models alone ignore unknown fields, because stored objects may be newer than the operator; in a file an unknown
field is a typing error, which the API server would drop or refuse as well.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import ValidationError

from hulk_operator import names
from hulk_operator.api.kinds import KINDS, HulkJob, HulkTopology, NodeProfile
from hulk_operator.api.schema import Schema, structural

_KINDS = {kind.name: kind for kind in KINDS}


def parse(document: Any) -> HulkJob | HulkTopology | NodeProfile:
    """The object in a YAML or JSON document. ValueError with one line per mistake, each with its field."""
    if not isinstance(document, Mapping) or document.get("kind") not in _KINDS:
        found = document.get("kind") if isinstance(document, Mapping) else type(document).__name__
        raise ValueError(f"kind {found!r}: expected one of {', '.join(_KINDS)}")
    if document.get("apiVersion") != names.API_VERSION:
        raise ValueError(f"apiVersion {document.get('apiVersion')!r}: expected {names.API_VERSION}")
    model = _KINDS[document["kind"]].model
    mistakes = list(_unknown(_schema(document["kind"]), document, ""))
    try:
        parsed = model.model_validate(document)
    except ValidationError as error:
        mistakes += [f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in error.errors()]
    if mistakes:
        raise ValueError("\n".join(mistakes))
    assert isinstance(parsed, HulkJob | HulkTopology | NodeProfile)
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


def _suggestion(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
