"""The plan's ranks as a mesh: a replica's number, its stage, its shard, its tensor-parallel rank.

Ranks run (dp_replicate, pp, dp_shard, tp), the last one fastest: a rank is its place in the plan. A script asks for the
dimensions that it knows, in its own order; what the plan does not have is refused. A run by hand has what it asks for.
No import of torch.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hulk_runtime.errors import ConfigurationError

NAMES = ("dp_replicate", "pp", "dp_shard", "tp")
USUAL = ("pp", "dp_replicate", "dp_shard", "tp")
"""The order in which scripts have them."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """Some dimensions of the plan: `ranks` in row-major order of `names` and `shape`."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    ranks: tuple[int, ...]


def usual_names(degrees: Mapping[str, int]) -> tuple[str, ...]:
    """The dimensions above 1; of one rank a replica's.

    >>> usual_names({"dp_replicate": 2, "pp": 1, "dp_shard": 4, "tp": 1}), usual_names(dict.fromkeys(NAMES, 1))
    (('dp_replicate', 'dp_shard'), ('dp_replicate',))
    """
    return tuple(name for name in USUAL if degrees[name] > 1) or ("dp_replicate",)


def mesh(degrees: Mapping[str, int], names: Sequence[str], sizes: Mapping[str, int] | None = None) -> Mesh:
    """The mesh of these dimensions, all others being 1. ConfigurationError where the plan has no such mesh.

    `degrees`: those of the plan, in the order of its ranks. Two replicas of two stages, in a script's order:

    >>> mesh({"dp_replicate": 2, "pp": 2, "dp_shard": 1, "tp": 1}, ("pp", "dp_replicate")).ranks
    (0, 2, 1, 3)
    """
    has = ", ".join(f"{name} {degree}" for name, degree in degrees.items())
    for name, size in (sizes or {}).items():
        if name in degrees and degrees[name] != size:
            raise ConfigurationError(f"a mesh with {name} {size}: the plan has {has}")
    if unknown := [name for name in names if name not in degrees]:
        raise ConfigurationError(f"a mesh of {', '.join(unknown)}: the plan has {has}, and no other dimension")
    if len(set(names)) < len(names):
        raise ConfigurationError(f"a mesh of {', '.join(names)}: each dimension is there once")
    if left := [f"{name} {degree}" for name, degree in degrees.items() if degree > 1 and name not in names]:
        raise ConfigurationError(f"a mesh of {', '.join(names)} leaves ranks out: the plan also has {', '.join(left)}")
    shape = tuple(degrees[name] for name in names)
    places = (dict(zip(names, place, strict=True)) for place in itertools.product(*map(range, shape)))
    return Mesh(tuple(names), shape, tuple(_rank(degrees, place) for place in places))


def by_hand(num_ranks: int, names: Sequence[str], sizes: Mapping[str, int]) -> Mesh:
    """The same without a plan: a dimension has the size given, or 1; dp_replicate, where it has none, is the rest.

    What is the rest is to be named too: a script that does not know of its replicas would train them apart. Raises
    ConfigurationError.

    >>> by_hand(4, ("dp_replicate",), {"dp_shard": 2}).shape
    (2, 2)
    """
    asked = ", ".join(f"{name} {size}" for name, size in sizes.items())
    if unknown := [name for name in (*names, *sizes) if name not in NAMES]:
        raise ConfigurationError(f"a mesh of {', '.join(unknown)}: the dimensions are {', '.join(NAMES)}")
    if any(size < 1 for size in sizes.values()):
        raise ConfigurationError(f"a mesh of {asked}: sizes must be >= 1")
    product = math.prod(sizes.values())
    if num_ranks % product or ("dp_replicate" in sizes and product != num_ranks):
        must = "make up" if "dp_replicate" in sizes else "divide"
        raise ConfigurationError(f"a mesh of {asked}: its {product} ranks must {must} a world of {num_ranks}")
    degrees = {**dict.fromkeys(NAMES, 1), "dp_replicate": num_ranks // product, **sizes}
    named = (*names, *sizes) or usual_names(degrees)
    if (rest := degrees["dp_replicate"]) > 1 and "dp_replicate" not in named:
        has = ", ".join(f"{name} {degrees[name]}" for name in named)
        raise ConfigurationError(
            f"a mesh of {has} in a world of {num_ranks} ranks leaves dp_replicate {rest}: give sizes for all ranks, or "
            f'name it too, as in hulk.device_mesh("dp_replicate", {named[0]}={degrees[named[0]]})'
        )
    return mesh(degrees, named)


def _rank(degrees: Mapping[str, int], place: Mapping[str, int]) -> int:
    """The rank at a place of the mesh."""
    rank = 0
    for name, degree in degrees.items():
        rank = rank * degree + place.get(name, 0)
    return rank
