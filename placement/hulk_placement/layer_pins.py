"""Layers that are bound to places: which layers a person means, and which machines they may be on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hulk_placement.topology import Machine

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class LayerPin:
    """Layers, by their numbers in the model, and where they may be: in some regions, or on some machines."""

    layers: tuple[int, ...]
    regions: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers or not (self.regions or self.machines):
            raise ValueError(
                f"pin of {len(self.layers)} layers to {len(self.regions)} regions and {len(self.machines)} machines"
            )

    def allows(self, machine: Machine) -> bool:
        """Whether the layers may be on this machine."""
        return machine.name in self.machines or machine.region in self.regions


def layers_in(spans: str, num_layers: int) -> tuple[int, ...]:
    """The layers of ranges, both ends among them. ValueError where they are none, or beyond the model's layers.

    >>> layers_in("0-2,4", 5)
    (0, 1, 2, 4)
    """
    layers: set[int] = set()
    for span in spans.split(","):
        found = _RANGE.fullmatch(span)
        if found is None:
            raise ValueError(f"{span!r} is no range of layers; 0-5 and 7 are")
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < num_layers:
            raise ValueError(f"layers {span}, of {num_layers} from 0 to {num_layers - 1}")
        layers |= set(range(first, last + 1))
    return tuple(sorted(layers))


def as_spans(layers: Iterable[int]) -> str:
    """The text that `layers_in` reads.

    >>> as_spans([0, 1, 2, 4])
    '0-2,4'
    """
    spans: list[list[int]] = []
    for layer in sorted(layers):
        if spans and spans[-1][-1] == layer - 1:
            spans[-1].append(layer)
        else:
            spans.append([layer])
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def layers_matching(pattern: str, names: Sequence[str]) -> tuple[int, ...]:
    """The layers whose parameters a pattern means, by the layers' names; ValueError where there are none.

    `*`, `?` and `[0-3]` stand for what they do in file names. A pattern means a layer when it matches its name, or when
    the two agree part by part, as far as both go: a part of a module's parameters means the module.

    >>> names = ["model.embed", "model.layers.0", "model.layers.1", "lm_head"]
    >>> layers_matching("model.layers.[1-9].mlp.*", names), layers_matching("*embed*", names)
    ((2,), (0,))
    """
    found = tuple(number for number, name in enumerate(names) if _means(pattern, name))
    if not found:
        raise ValueError(f"{pattern!r} means none of the layers {_listed(names)}")
    return found


def _means(pattern: str, name: str) -> bool:
    parts = zip(pattern.split("."), name.split("."), strict=False)
    return fnmatchcase(name, pattern) or all(fnmatchcase(part, wanted) for wanted, part in parts)


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed if len(listed) <= 5 else [*listed[:2], "...", *listed[-2:]])
