"""A HulkSweep -> its trials, and what is wrong with how they are described.

A trial's number is its place in the grid (the last parameter changes first) or in the list, so that its name never
changes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from hulk_operator import names
from hulk_operator.api import HulkSweep, HulkSweepSpec

PLACEHOLDER: Final = re.compile(r"\$\(sweep\.([^()]*)\)")
RUNTIME: Final = "hulk_runtime.sweep"  # what the workers of a shared job run
OWN_NAME: Final = "trial"  # $(sweep.trial) is the trial's own name
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")


@dataclass(frozen=True, slots=True)
class Trial:
    """One variation: `values` by the parameters' names."""

    number: int
    name: str
    values: Mapping[str, str]


def trials(sweep: HulkSweep) -> tuple[Trial, ...]:
    """All trials, by number."""
    points = _points(sweep.spec)
    return tuple(Trial(n, names.trial(sweep.metadata.name, n), values) for n, values in enumerate(points))


def _points(spec: HulkSweepSpec) -> Iterable[Mapping[str, str]]:
    if spec.parameters.list:
        return spec.parameters.list
    axes = spec.parameters.grid
    return (dict(zip([axis.name for axis in axes], point, strict=True)) for point in product(*(a.values for a in axes)))


def fill(value: Any, words: Mapping[str, str]) -> Any:
    """Text, or whatever is made of texts, with every `$(sweep.NAME)` replaced.

    >>> fill({"args": ["--rate=$(sweep.rate)", "$(HOME)"]}, {"rate": "0.1"})
    {'args': ['--rate=0.1', '$(HOME)']}
    """
    if isinstance(value, str):
        return PLACEHOLDER.sub(lambda found: words[found[1]], value)
    if isinstance(value, Mapping):
        return {key: fill(child, words) for key, child in value.items()}
    return [fill(child, words) for child in value] if isinstance(value, list | tuple) else value


def placeholders(value: Any) -> frozenset[str]:
    """The names in all placeholders of a template."""
    if isinstance(value, str):
        return frozenset(PLACEHOLDER.findall(value))
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return frozenset().union(*map(placeholders, children))


def mistakes(sweep: HulkSweep) -> Iterator[str]:
    """What is wrong with the parameters and with where they go, a sentence each."""
    spec = sweep.spec
    given = {name for values in spec.parameters.list for name in values} | {axis.name for axis in spec.parameters.grid}
    yield from _bad_names(given)
    for number, values in enumerate(spec.parameters.list):
        if missing := sorted(given - values.keys()):
            yield f"parameters.list[{number}] has no value for {', '.join(missing)}: every entry needs the same names"
    used = placeholders(spec.template.spec.template.pod_spec())
    if spec.mode == "sharp":
        yield from _not_shared(spec, used)
        return
    filled = {entry.parameter for entry in spec.fields}
    for name in sorted((used - {OWN_NAME}) - given):
        yield f"$(sweep.{name}) in the template names no parameter; there are {_listed(given)}"
    for name in sorted(filled - given):
        yield f"fields names the parameter {name}, which there is not; there are {_listed(given)}"
    for name in sorted(given - used - filled):
        yield f"parameter {name} is used nowhere: put $(sweep.{name}) into the PodSpec, or name it in fields"


def _not_shared(spec: HulkSweepSpec, used: Iterable[str]) -> Iterator[str]:
    """What a pod that trials share cannot have, or must have."""
    for name in sorted(used):
        yield f"$(sweep.{name}) in the template: in mode sharp trials share a pod; the model's function gets parameters"
    container = spec.template.spec.template.pod_spec()["containers"][0]
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not any(RUNTIME in str(word) for word in words):
        yield f"mode sharp: the first container's command must run {RUNTIME}, as in [python, -m, {RUNTIME}]"


def _bad_names(given: Iterable[str]) -> Iterator[str]:
    for name in sorted(given):
        if not _NAME.fullmatch(name):
            yield f"parameter {name!r}: a name has at most 32 letters, digits and underscores, and begins with no digit"
        if name == OWN_NAME:
            yield f"a parameter cannot be called {OWN_NAME}: $(sweep.{OWN_NAME}) is the trial's own name"


def _listed(given: Iterable[str]) -> str:
    return ", ".join(sorted(given)) or "none"
