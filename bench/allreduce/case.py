"""A profile and node counts, up with one worker per node, and the methods that are compared on it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.allreduce.conductor import Conductor
from bench.allreduce.gang import Gang, lab_name, links_of, wan
from bench.allreduce.gloo_orders import LinkOf, best_order
from bench.allreduce.profiles import lab_spec
from bench.allreduce.rounds import Band

WORKER = Path(__file__).with_name("worker.py")
FLAT, ONE_MEMBER, ALL_MEMBERS, OURS = "gloo flat", "gloo hier.", "gloo hier. all", "wan"
GLOO = (FLAT, ONE_MEMBER, ALL_MEMBERS)

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Node counts by region of a profile."""

    profile: str
    counts: tuple[int, ...]

    @property
    def num_nodes(self) -> int:
        return sum(self.counts)

    @property
    def regions(self) -> tuple[tuple[int, ...], ...]:
        """Ranks of each region: in the lab's order, region after region."""
        firsts = [sum(self.counts[:i]) for i in range(len(self.counts))]
        return tuple(tuple(range(first, first + count)) for first, count in zip(firsts, self.counts, strict=True))

    @property
    def region_names(self) -> tuple[str, ...]:
        return tuple(region.name for region in lab_spec(self.profile, self.counts, "x").regions)

    @property
    def links(self) -> LinkOf:
        """As the lab's file says, by numbers of regions."""
        number = {name: i for i, name in enumerate(self.region_names)}
        spec = lab_spec(self.profile, self.counts, "x")
        return {(number[a], number[b]): (rate, one_way_s) for a, b, rate, one_way_s in links_of(spec)}

    def __str__(self) -> str:
        """
        >>> str(Case("A", (2, 2, 2))), str(Case("E", (2, 1, 3, 1)))
        ('A n=6', 'E n=2+1+3+1')
        """
        even = len(set(self.counts)) == 1
        return f"{self.profile} n={self.num_nodes if even else '+'.join(map(str, self.counts))}"


@contextlib.contextmanager
def band(case: Case) -> Iterator[Band]:
    """The case's lab and ranks, up; nothing of them stays."""
    name = lab_name()
    with (
        wan(lab_spec(case.profile, case.counts, name)) as net,
        contextlib.closing(Conductor(name)) as conductor,
        Gang(net, WORKER, env=conductor.env),
    ):
        conductor.await_ranks(len(net.nodes))
        yield Band(net, conductor)


def gloo_methods(case: Case, num_bytes: int) -> dict[str, Spec]:
    """gloo's ways in their best orders for this size; hierarchical ones only where a region has several nodes."""
    regions, links = case.regions, case.links
    methods: dict[str, Spec] = {FLAT: {"kind": "flat", "order": best_order(regions, links, num_bytes)}}
    if case.num_nodes > len(regions):
        methods[ONE_MEMBER] = _hierarchical(case, num_bytes, 1)
    if min(case.counts) > 1:
        methods[ALL_MEMBERS] = _hierarchical(case, num_bytes, min(case.counts))
    return methods


def _hierarchical(case: Case, num_bytes: int, members: int) -> Spec:
    one_each = [[region] for region in range(len(case.counts))]
    order = best_order(one_each, case.links, num_bytes // members)
    return {"kind": "hierarchical", "order": order, "members": members}


def key_of(spec: Spec) -> str:
    """The same for equal methods: they share connections."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


def pattern(case: Case, order: Sequence[int]) -> list[str]:
    """Regions along an order of ranks."""
    names = [name for name, count in zip(case.region_names, case.counts, strict=True) for _ in range(count)]
    return [names[rank] for rank in order]
