"""One job while machines are divided: what its step takes on a share of every pool, by the shapes that suit it.

Of the many shapes a layout may have, a job keeps a menu of those that were best on some share, and a share is priced by
the menu alone. `scan` looks for better shapes by changing one choice at a time. The first price of a share is as good
as the menu was then, and may be that of shapes that it has no room for: a share that is asked about often, as where
there are few, is priced anew, by the menu as it has become and by what differs in one choice from its own best shape.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats, Ints, Setting
from hulk_placement.cost.closed_form.setting import Ground, Option
from hulk_placement.layouts import starts
from hulk_placement.layouts.space import Space, space_of
from hulk_placement.split.estimate import ALIGNED, COLUMNS, ROWS, TOO_FEW, WAYS, estimate
from hulk_placement.split.pools import Pools
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

MENU = 6
"""Shapes by which a share is priced."""

NUM_FEW = 5
"""Numbers of stages that stand for all of them."""

NUM_DESCENTS = 2
"""Shapes from which a scan goes down."""

HOPELESS = 0.1
"""A shape that has been worse by so much is not priced for a while."""

FORGET = 0.97

OFTEN = 16
"""For the so manieth time that a share is asked about, and then for twice as many each time, it is priced anew."""

EIGHTHS = (8, 6, 4)

CHOICES = ("micro_batch", "tensor", "recompute")
"""Of an option."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A shape that follows from what there is room for: stages, eighths of all replicas, one of WAYS."""

    option: Option
    pipeline: int
    eighths: int = 8
    way: int = ROWS


@dataclass
class Job:
    """A workload on pools; values are logarithms of the cost of a step, above 100 where no layout is possible."""

    workload: Workload
    pools: Pools
    number: int
    ground: Ground = field(repr=False)
    """One machine of each pool."""
    space: Space
    menu: dict[Draft, float] = field(default_factory=dict)
    """By how much each has been worse than the best of late."""
    num_evaluations: int = 0
    _chance: random.Random = field(default_factory=lambda: random.Random(0), repr=False)
    _next: dict[Option, list[Option]] = field(default_factory=dict, repr=False)
    _settings: dict[Option, Setting] = field(default_factory=dict, repr=False)
    _values: dict[bytes, tuple[float, Draft]] = field(default_factory=dict, repr=False)
    """Of each share the best shape known, with its value."""
    _learned: dict[bytes, float] = field(default_factory=dict, repr=False)
    """Of shares that were laid out: the value of the best layout found, which may be none of the menu's."""
    _times_asked: Counter[bytes] = field(default_factory=Counter, repr=False)

    @classmethod
    def of(cls, workload: Workload, pools: Pools, number: int, topology: Topology) -> Job:
        """The job of that number of the pools."""
        ground = Ground.of(workload, topology, [members[0] for members in pools.machines])
        space = space_of(ground, int(pools.total_P.sum()))
        return cls(workload, pools, number, ground, replace(space, options=space.usual))

    @property
    def most_P(self) -> Ints:
        """Accelerators of each pool that the job may have."""
        return np.asarray(self.pools.most_JP[self.number])

    def value(self, counts_P: Ints) -> float:
        """The logarithm of the cost of a step with so many accelerators of each pool."""
        key = counts_P.tobytes()
        self._times_asked[key] += 1
        if key not in self._values:
            self._first_price(counts_P)
        elif self._times_asked[key] >= OFTEN and self._times_asked[key].bit_count() == 1:
            self._price_anew(counts_P)
        return min(self._values[key][0], self._learned.get(key, math.inf))

    def learn(self, counts_P: Ints, value: float) -> None:
        """The value of a layout that was searched for on a share."""
        key = counts_P.tobytes()
        self._learned[key] = min(value, self._learned.get(key, math.inf))

    def _first_price(self, counts_P: Ints) -> None:
        """Price a share by the menu, and by a neighbour of what has been best of late."""
        if not self.menu:
            self.scan(counts_P)
        bearable = max(HOPELESS, min(self.menu.values()))
        drafts = [draft for draft, worse in self.menu.items() if worse <= bearable]
        new = self._neighbour(min(drafts, key=lambda draft: self.menu[draft]))
        found = self._price(counts_P, [*drafts, *([] if new is None or new in self.menu else [new])])
        best = min(found.values())
        for draft, worse in self.menu.items():
            self.menu[draft] = (worse + found.get(draft, best) - best) / 2 if draft in found else FORGET * worse
        if new in found and found[new] == best:
            self._put(new)
        self._learn(counts_P, found)

    def _price_anew(self, counts_P: Ints) -> None:
        """Price a share by the menu, and by all that differ in one choice from the best shape known of it."""
        before, best = self._values[counts_P.tobytes()]
        near = [draft for choice in (self._pipelines, self._ways, self._options) for draft in choice(best)]
        self._learn(counts_P, self._price(counts_P, dict.fromkeys([*self.menu, *near])))
        value, best = self._values[counts_P.tobytes()]
        if value < before:
            self._put(best)

    def scan(self, counts_P: Ints) -> None:
        """Put the shapes that are best for a share on the menu."""
        found = self._begun(counts_P)
        beginnings: dict[tuple[Option, int], Draft] = {}
        for draft in sorted(found, key=lambda draft: found[draft]):
            beginnings.setdefault((draft.option, draft.pipeline), draft)
        for best in list(beginnings.values())[:NUM_DESCENTS]:
            before = math.inf
            while found[best] < before:
                before = found[best]
                for choice in (self._pipelines, self._ways, self._options):
                    drafts = choice(best)
                    found |= self._price(counts_P, [draft for draft in drafts if draft not in found])
                    best = min((best, *drafts), key=lambda draft: found[draft])
        for draft in sorted(found, key=lambda draft: found[draft])[: MENU // 2]:
            self._put(draft)
        self._learn(counts_P, found)

    def _learn(self, counts_P: Ints, found: dict[Draft, float]) -> None:
        key, best = counts_P.tobytes(), min(found, key=lambda draft: found[draft])
        if key not in self._values or found[best] < self._values[key][0]:
            self._values[key] = found[best], best

    def _put(self, draft: Draft) -> None:
        """Put a shape on the menu, in place of the one that has been worst."""
        self.menu[draft] = 0.0
        if len(self.menu) > MENU:
            del self.menu[max((other for other in self.menu if other != draft), key=lambda other: self.menu[other])]

    def _neighbour(self, draft: Draft) -> Draft | None:
        """The draft with one choice changed at random."""
        choice = self._chance.choice((self._pipelines, self._ways, self._options))
        others = choice(draft)
        return self._chance.choice(others) if others else None

    def probe(self, counts_P: Ints) -> int:
        """Price a few shapes all over the space for a share, and forget them: to see how long that takes; how many."""
        drafts = [Draft(option, pipeline) for option in self._probes() for pipeline in self._few_pipelines()]
        return len(self._price(counts_P, drafts))

    def asked(self) -> Iterator[Ints]:
        """The shares that were priced."""
        return (np.frombuffer(key, np.int64) for key in self._values)

    def drafts(self, counts_P: Ints) -> list[Draft]:
        """The menu, and the best shape known of a share, the best for it first."""
        if not self.menu:
            self.scan(counts_P)
        known = self._values.get(counts_P.tobytes())
        found = self._price(counts_P, [*self.menu, *([known[1]] if known and known[1] not in self.menu else [])])
        return sorted(found, key=lambda draft: found[draft])

    def _begun(self, counts_P: Ints) -> dict[Draft, float]:
        """A few shapes all over the space, or the menu where there is one; all of them where no layout is possible."""
        few = [
            Draft(option, pipeline, eighths, way)
            for option in self._probes()
            for pipeline in self._few_pipelines()
            for eighths in (8, 4)
            for way in (ROWS, ALIGNED + COLUMNS)
        ]
        found = self._price(counts_P, self.menu or few)
        if min(found.values()) >= TOO_FEW / 2:
            every = itertools.product(self.space.options, self.space.pipelines)
            found |= self._price(counts_P, [Draft(option, pipeline) for option, pipeline in every])
        return found

    def _probes(self) -> list[Option]:
        """Options with the most tensor parallelism, without recomputation, a small and a middling micro-batch."""
        widest = max(option.tensor for option in self.space.options)
        found = [option for option in self.space.options if option.tensor == widest and not option.recompute]
        found = found or [option for option in self.space.options if option.tensor == widest]
        return list(dict.fromkeys((found[0], found[min(2, len(found) - 1)])))

    def _few_pipelines(self) -> list[int]:
        """About twice as many stages each time."""
        found: list[int] = []
        for pipeline in self.space.pipelines:
            if not found or pipeline >= 2 * found[-1]:
                found.append(pipeline)
        return found[:NUM_FEW]

    def _pipelines(self, draft: Draft) -> list[Draft]:
        """Drafts with other numbers of stages."""
        return [replace(draft, pipeline=pipeline) for pipeline in self.space.pipelines if pipeline != draft.pipeline]

    def _ways(self, draft: Draft) -> list[Draft]:
        """Drafts cut in another way, or with fewer replicas or more."""
        eighths = EIGHTHS if self.space.data is None else (8,)
        shapes = itertools.product(eighths, WAYS)
        return [replace(draft, eighths=k, way=way) for k, way in shapes if (k, way) != (draft.eighths, draft.way)]

    def _options(self, draft: Draft) -> list[Draft]:
        """Drafts with the next option of one choice, with as many stages, or with as many accelerators."""
        found = []
        for option in self._next_options(draft.option):
            stages = {draft.pipeline, draft.pipeline * draft.option.width // option.width}
            found += [replace(draft, option=option, pipeline=p) for p in self.space.pipelines if p in stages]
        return found

    def _next_options(self, here: Option) -> list[Option]:
        """Options with the next smaller or larger micro-batch or tensor degree, or with the other recomputation."""
        if here not in self._next:
            found: list[Option] = []
            for name in CHOICES:
                same = [other for other in CHOICES if other != name]
                line = [o for o in self.space.options if all(getattr(o, k) == getattr(here, k) for k in same)]
                line.sort(key=operator.attrgetter(name))
                at = line.index(here)
                found += line[max(0, at - 1) : at] + line[at + 1 : at + 2]
            self._next[here] = found
        return self._next[here]

    def _price(self, counts_P: Ints, drafts: Iterable[Draft]) -> dict[Draft, float]:
        """Each draft's value."""
        by_option: dict[Option, list[Draft]] = {}
        for draft in drafts:
            by_option.setdefault(draft.option, []).append(draft)
        values: dict[Draft, float] = {}
        for option, some in by_option.items():
            shapes_S3 = np.array([(draft.pipeline, draft.eighths, draft.way) for draft in some], np.int64)
            values_S = self._values_of(counts_P, option, shapes_S3)
            values |= dict(zip(some, values_S.tolist(), strict=True))
        return values

    def _values_of(self, counts_P: Ints, option: Option, shapes_S3: Ints) -> Floats:
        self.num_evaluations += len(shapes_S3)
        limits = (self.space.least, self.space.most, self.space.data or 0)
        usable_P = self.pools.usable_JP[self.number]
        return estimate(self.setting(option), self.both_RR, counts_P, usable_P, self.first_P, shapes_S3, limits)

    def setting(self, option: Option) -> Setting:
        """The arrays of an option for all machines of all pools."""
        if option.recompute:
            return self.setting(replace(option, recompute=False))._replace(recompute=True)
        if option not in self._settings:
            small = self.ground.setting(option)
            size_P = [len(members) for members in self.pools.machines]
            self._settings[option] = small._replace(
                kind_M=np.repeat(small.kind_M, size_P),
                region_M=np.repeat(small.region_M, size_P),
                place_M=np.repeat(small.region_M, size_P),
                slots_M=np.repeat(small.slots_M, size_P),
                banned_MJ=np.repeat(small.banned_MJ, size_P, axis=0),
            )
        return self._settings[option]

    @cached_property
    def first_P(self) -> Ints:
        """The first machine of each pool."""
        return np.cumsum([0, *(len(members) for members in self.pools.machines[:-1])])

    @cached_property
    def both_RR(self) -> Floats:
        """Seconds of the gradient between regions, the worse way."""
        setting = self.setting(self.space.options[0])
        seconds_RR = starts.edge_seconds(setting, 1)
        return np.maximum(seconds_RR, seconds_RR.T)
