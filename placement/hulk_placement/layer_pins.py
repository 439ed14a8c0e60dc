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

    @property
    def words(self) -> str:
        """Which layers must be where, like "layers 0-2 in eu or on b"."""
        places = [*(f"in {region}" for region in self.regions), *(f"on {machine}" for machine in self.machines)]
        return f"layer{'s' if len(self.layers) > 1 else ''} {as_spans(self.layers)} {' or '.join(places)}"


@dataclass(frozen=True, slots=True)
class Needed:
    """How many stages pins need at least, and the first two pins, by number, that no stage meets together."""

    num_stages: int
    apart: tuple[int, int] | None = None


def stages_needed(pins: Sequence[LayerPin], machines: Sequence[Machine]) -> Needed:
    """The fewest stages that have all pinned layers on machines where they may be.

    A stage takes layers as long as one machine may have them all. Layer 0 in eu, layers 1 and 2 in us:

    >>> machines = [Machine("a", "eu"), Machine("b", "us")]
    >>> stages_needed([LayerPin((0,), ("eu",)), LayerPin((1, 2), ("us",))], machines)
    Needed(num_stages=2, apart=(0, 1))
    """
    allowed = [frozenset(n for n, machine in enumerate(machines) if pin.allows(machine)) for pin in pins]
    num_stages, apart, stage = 1, None, frozenset(range(len(machines)))
    in_stage: list[int] = []
    for layer in sorted({layer for pin in pins for layer in pin.layers}):
        here = [number for number, pin in enumerate(pins) if layer in pin.layers]
        may = frozenset.intersection(*(allowed[number] for number in here))
        if not stage & may and in_stage:
            pairs = [(a, b) for a in in_stage for b in here if not allowed[a] & allowed[b]]
            apart = apart or (pairs or [(in_stage[-1], here[0])])[0]
            num_stages, stage, in_stage = num_stages + 1, may, []
        stage &= may
        in_stage += [number for number in here if number not in in_stage]
    return Needed(num_stages, apart)


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
