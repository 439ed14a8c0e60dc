"""Label and field selectors in Kubernetes' own syntax -> whether an object matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Match = Callable[[Mapping[str, str]], bool]

_TERM = re.compile(r"\s*(?:[^,(]|\([^)]*\))+")
_SET = re.compile(r"(?P<key>\S+)\s+(?P<how>in|notin)\s+\((?P<values>[^)]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<how>!=|==?)\s*(?P<value>.*)")


class SelectorError(ValueError):
    """No selector, or of a field that cannot be selected by."""


def labels(text: str) -> Match:
    """
    >>> match = labels("app=web,tier in (a, b),!old,team")
    >>> match({"app": "web", "tier": "b", "team": "x"}), match({"app": "web", "tier": "c", "team": "x"})
    (True, False)
    >>> labels("attempt!=3")({})
    True
    """
    return _all(_label_term(term.strip()) for term in _TERM.findall(text))


def fields(text: str, known: frozenset[str]) -> Match:
    """
    >>> fields("status.phase!=Failed", frozenset({"status.phase"}))({"status.phase": "Running"})
    True
    >>> fields("spec.volumes=x", frozenset())
    Traceback (most recent call last):
    bench.scale.stub.selectors.SelectorError: field label not supported: spec.volumes
    """
    return _all(_field_term(term.strip(), known) for term in _TERM.findall(text))


def _label_term(term: str) -> Match:
    if found := _SET.fullmatch(term):
        key, values = found["key"], frozenset(value.strip() for value in found["values"].split(","))
        if found["how"] == "in":
            return lambda of: key in of and of[key] in values
        return lambda of: of.get(key) not in values
    if found := _EQUALITY.fullmatch(term):
        key, value = found["key"], found["value"].strip()
        if found["how"] == "!=":
            return lambda of: of.get(key) != value
        return lambda of: of.get(key) == value
    if term.startswith("!"):
        absent = term[1:].strip()
        return lambda of: absent not in of
    return lambda of: term in of


def _field_term(term: str, known: frozenset[str]) -> Match:
    found = _EQUALITY.fullmatch(term)
    if found is None:
        raise SelectorError(f"invalid selector: {term!r}; can't understand it")
    key, value = found["key"], found["value"].strip()
    if key not in known:
        raise SelectorError(f"field label not supported: {key}")
    if found["how"] == "!=":
        return lambda of: of.get(key, "") != value
    return lambda of: of.get(key, "") == value


def _all(terms: object) -> Match:
    matches: tuple[Match, ...] = tuple(terms)  # type: ignore[arg-type]
    if len(matches) == 1:
        return matches[0]
    return lambda of: all(match(of) for match in matches)
