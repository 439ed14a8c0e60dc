"""Profile and node counts -> LabSpec: the WANs that all-reduces are timed on.

A and B are the lab's own files. C and D are tables of one-way milliseconds and Mbit/s of link rate, headers included; a
lab's file wants TCP payload, 1448 / 1500 of that. E is drawn by a seed: four regions, every direction its own. So is
every profile `REGIONS@SEED`, as `5@7`.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from hulk_lab.spec import HEADER_BYTES, LabSpec, LinkSpec, NodeSpec, RegionSpec, load

MTU = 1500
SEED = 4
MOST_NODES, MOST_DRAWN_NODES = 3, 2
"""A region of profile E, and of those drawn by other seeds, has 1 to so many nodes, unless counts are given."""

Table: TypeAlias = Mapping[tuple[str, str], tuple[float, float]]

_FILES = Path(__file__).resolve().parents[2] / "lab"
_C: Table = {
    ("p", "o"): (70, 120),
    ("o", "p"): (70, 60),
    ("o", "t"): (50, 50),
    ("t", "o"): (50, 100),
    ("p", "t"): (110, 80),
    ("t", "p"): (110, 80),
}
"""The hub's links differ by direction, and the direct links are of use."""
_D: Table = {
    ("p", "o"): (20, 40),
    ("o", "p"): (20, 40),
    ("o", "t"): (25, 30),
    ("t", "o"): (25, 30),
    ("p", "t"): (30, 10),
    ("t", "p"): (30, 30),
}
"""Near and slow: bytes decide, not round trips."""


def _drawn(seed: int, regions: str = "potw") -> Table:
    draw = random.Random(seed)
    table: dict[tuple[str, str], tuple[float, float]] = {}
    for source, target in itertools.combinations(regions, 2):
        one_way_ms = draw.uniform(15, 110)
        for pair in ((source, target), (target, source)):
            table[pair] = (round(one_way_ms * draw.uniform(0.9, 1.1)), round(10 ** draw.uniform(1.2, 2.2)))
    return table


TABLES: Mapping[str, Table] = {"C": _C, "D": _D, "E": _drawn(SEED)}
PROFILES = ("A", "B", *TABLES)
DRAWN = re.compile(r"([2-8])@(\d+)")
"""A profile of so many regions, drawn by a seed."""


def lab_spec(profile: str, nodes: Sequence[int] | None, name: str) -> LabSpec:
    """The lab of a profile with these node counts, one a region; None is what the profile has by itself."""
    links = _links(profile)
    regions = list(dict.fromkeys(link.source for link in links))
    counts = default_nodes(profile) if nodes is None else tuple(nodes)
    if len(counts) != len(regions) or min(counts) < 1:
        raise ValueError(f"profile {profile} has {len(regions)} regions, got node counts {counts}, each must be >= 1")
    return LabSpec(
        name=name,
        mtu=MTU,
        links=links,
        regions=tuple(
            RegionSpec(name=region, nodes=tuple(NodeSpec(name=f"{region}{i}") for i in range(count)))
            for region, count in zip(regions, counts, strict=True)
        ),
    )


def default_nodes(profile: str) -> tuple[int, ...]:
    """Two a region; for the drawn profile 1 to MOST_NODES, drawn as well."""
    if profile == "E":
        draw = random.Random(f"nodes {SEED}")
        return tuple(draw.randint(1, MOST_NODES) for _ in "potw")
    if drawn := DRAWN.fullmatch(profile):
        draw = random.Random(f"nodes {profile}")
        return tuple(draw.randint(1, MOST_DRAWN_NODES) for _ in range(int(drawn[1])))
    return (2, 2, 2)


def node_counts(profile: str, nodes: str) -> tuple[int, ...]:
    """`6` is spread evenly over the profile's regions, `2,1,3,1` is one count a region, empty is the profile's own.

    >>> node_counts("A", "6"), node_counts("E", "2,1,3,1")
    ((2, 2, 2), (2, 1, 3, 1))
    """
    if not nodes:
        return default_nodes(profile)
    num_regions = len(default_nodes(profile))
    counts = tuple(int(word) for word in nodes.split(","))
    if len(counts) > 1:
        return counts
    if counts[0] % num_regions:
        raise ValueError(f"{counts[0]} nodes over {num_regions} regions of profile {profile}: give one count a region")
    return (counts[0] // num_regions,) * num_regions


def _table(profile: str) -> Table | None:
    if drawn := DRAWN.fullmatch(profile):
        return _drawn(int(drawn[2]), "potwvxyz"[: int(drawn[1])])
    return TABLES.get(profile)


def _links(profile: str) -> tuple[LinkSpec, ...]:
    if table := _table(profile):
        payload = (MTU - HEADER_BYTES) / MTU
        return tuple(
            LinkSpec(source=source, target=target, one_way_ms=one_way_ms, mbit_per_s=round(mbit_per_s * payload, 2))
            for (source, target), (one_way_ms, mbit_per_s) in table.items()
        )
    if profile not in PROFILES:
        raise ValueError(f"profile {profile!r} is none of {', '.join(PROFILES)} and no REGIONS@SEED such as 5@7")
    return load(_FILES / f"profile-{profile.lower()}.yaml").links
