"""Named parameters -> fragments: whole layers, strided over the model, each about as large as the others.

A layer is what has a number in its name ("blocks.3.mlp.weight" is of layer "blocks.3"); what has none (embeddings, the
head) is a unit by itself, by the module it is in. Layers go to the fragments in turn, as in Streaming DiLoCo (Douillard
et al., arXiv 2501.18512, section 2.2), which learned slightly better so than by neighbours; the others go where least
is, the largest first:

    >>> strided({"wte.w": 8, "h.0.w": 4, "h.1.w": 4, "h.2.w": 4, "head.w": 1}, 2)
    [['h.0.w', 'h.2.w', 'head.w'], ['wte.w', 'h.1.w']]
"""

from collections.abc import Iterable, Mapping


def num_units(names: Iterable[str]) -> int:
    """Layers of these parameters: the most fragments there can be."""
    return len({_unit(name) for name in names})


def strided(sizes: Mapping[str, int], num_fragments: int) -> list[list[str]]:
    """The names of each fragment's parameters, in the order of the model. Raises ValueError with too few units."""
    units: dict[str, list[str]] = {}
    for name in sizes:
        units.setdefault(_unit(name), []).append(name)
    if num_fragments > len(units):
        raise ValueError(f"{num_fragments} fragments of a model with {len(units)} layers: {', '.join(units)}")
    layers = [unit for unit in units if _is_layer(unit)]
    fragment_of = {unit: number % num_fragments for number, unit in enumerate(layers)}
    filled = [0] * num_fragments
    values = {unit: sum(sizes[name] for name in names) for unit, names in units.items()}
    for unit, fragment in fragment_of.items():
        filled[fragment] += values[unit]
    for unit in sorted((unit for unit in units if unit not in fragment_of), key=lambda unit: -values[unit]):
        fragment_of[unit] = min(range(num_fragments), key=lambda number: filled[number])
        filled[fragment_of[unit]] += values[unit]
    return [[name for name in sizes if fragment_of[_unit(name)] == number] for number in range(num_fragments)]


def _unit(name: str) -> str:
    parts = name.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1] if numbers else parts[:-1] or parts)


def _is_layer(unit: str) -> bool:
    return unit.rpartition(".")[2].isdigit()
