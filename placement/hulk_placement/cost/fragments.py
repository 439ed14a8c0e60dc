"""Layers -> what part of a model's trained parameters each fragment has, divided as the runtime divides them, and when.

Layers of one number are one unit ("h.0.attn" and "h.0.mlp" of "h.0"), and go to the fragments in turn; what has no
number goes where least is, the largest first (`hulk_runtime.diloco.fragments`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence


def num_units(names: Iterable[str]) -> int:
    """Units of these layers: the most fragments there can be.

    >>> num_units(["wte", "h.0.attn", "h.0.mlp", "h.1.attn"])
    3
    """
    return len({_unit(name) for name in names})


def fragment_shares(sizes: Mapping[str, int], num_fragments: int) -> tuple[float, ...]:
    """Parts of all values, by fragment; equal ones with fewer units than fragments: layers are not known then.

    >>> fragment_shares({"wte": 8, "h.0.attn": 1, "h.0.mlp": 3, "h.1": 4, "h.2": 4, "head": 1}, 2)
    (0.42857142857142855, 0.5714285714285714)
    """
    units: dict[str, int] = {}
    for name, size in sizes.items():
        units[_unit(name)] = units.get(_unit(name), 0) + size
    if num_fragments > len(units) or not any(units.values()):
        return (1 / num_fragments,) * num_fragments
    layers = [size for unit, size in units.items() if _is_numbered(unit)]
    filled = [sum(layers[number::num_fragments]) for number in range(num_fragments)]
    for size in sorted((size for unit, size in units.items() if not _is_numbered(unit)), reverse=True):
        filled[filled.index(min(filled))] += size
    return tuple(size / sum(filled) for size in filled)


def begins(num_steps: int, num_fragments: int) -> list[int]:
    """The steps of a round, from 1, after which the fragments' sums begin: at even distances, the last at its end.

    >>> begins(9, 3), begins(10, 4)
    ([3, 6, 9], [2, 5, 7, 10])
    """
    return [(number + 1) * num_steps // num_fragments for number in range(num_fragments)]


def share_in_flight(num_steps: int, delay: int, shares: Sequence[float]) -> float:
    """Of all values, the largest part whose sums are under way at once; none without a delay.

    A fragment that is merged after the step after which another begins is under way beside it.

    >>> [share_in_flight(9, delay, [0.5, 0.3, 0.2]) for delay in (0, 2, 3, 8)]
    [0.0, 0.5, 0.8, 1.0]
    """
    if not delay:
        return 0.0
    begun = begins(num_steps, len(shares))
    return max(
        math.fsum(share for other, share in zip(begun, shares, strict=True) if (step - other) % num_steps <= delay)
        for step in begun
    )


def _unit(layer: str) -> str:
    """What the runtime takes the parameters of a layer, a module by its name, to belong to."""
    parts = layer.split(".")
    return ".".join(parts[: next((place for place, part in enumerate(parts, 1) if part.isdigit()), len(parts))])


def _is_numbered(unit: str) -> bool:
    return unit.rpartition(".")[2].isdigit()
