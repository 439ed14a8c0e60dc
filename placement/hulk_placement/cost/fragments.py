"""Layers -> what part of a model's trained parameters each fragment has, divided as the runtime divides them.

Layers with a number in their names go to the fragments in turn, the others where least is, the largest first
(`hulk_runtime.diloco.fragments`).
"""

from __future__ import annotations

from collections.abc import Mapping


def fragment_shares(sizes: Mapping[str, int], num_fragments: int) -> tuple[float, ...]:
    """Parts of all values, by fragment; equal ones with fewer layers than fragments: layers are not known then.

    >>> fragment_shares({"wte": 8, "h.0": 4, "h.1": 4, "h.2": 4, "head": 1}, 2)
    (0.42857142857142855, 0.5714285714285714)
    """
    if num_fragments > len(sizes) or not any(sizes.values()):
        return (1 / num_fragments,) * num_fragments
    layers = [size for name, size in sizes.items() if _is_numbered(name)]
    filled = [sum(layers[number::num_fragments]) for number in range(num_fragments)]
    for size in sorted((size for name, size in sizes.items() if not _is_numbered(name)), reverse=True):
        filled[filled.index(min(filled))] += size
    return tuple(size / sum(filled) for size in filled)


def _is_numbered(name: str) -> bool:
    return name.rpartition(".")[2].isdigit()
