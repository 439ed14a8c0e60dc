"""Layouts tried for one workload: options and starts, the best of each kept, evaluations counted."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from hulk_native import construct_layout

from hulk_placement.cost.closed_form.arrays import Cache, Floats, Ints, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import evaluate, lacking_cells
from hulk_placement.cost.closed_form.setting import Ground, Option
from hulk_placement.plan import Layout as PlanLayout

LIMITS = ("memory", "price", "pins", "workers")
"""What a layout may lack: searches may pass through such layouts, links that must not be used they never use."""


Degrees = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """How many ways the training is split, and what else is one number for all of it."""

    option: Option
    data: int
    pipeline: int

    @property
    def degrees(self) -> Degrees:
        """Replicas, stages, ranks of a cell."""
        return self.data, self.pipeline, self.option.width

    @property
    def num_accelerators(self) -> int:
        """Of all replicas, stages and ranks of cells."""
        return math.prod(self.degrees)

    @property
    def words(self) -> str:
        """The degrees in a sentence."""
        return PlanLayout(self.data, self.pipeline, self.option.tensor, self.option.shard).words


@dataclass(order=True, slots=True)
class Trial:
    """A layout of a shape and what it costs."""

    cost: float
    number: int
    shape: Shape = field(compare=False)
    layout: Layout = field(compare=False)


@dataclass(slots=True)
class Trials:
    """What was tried on one ground; of each shape on each set of regions the best, and the best possible one, kept."""

    ground: Ground
    num_evaluations: int = 0
    is_exhausted: bool = False
    """Whether all layouts were looked at whose rings follow one tour."""
    open_cost: float = math.inf
    """What no layout costs less than whose stages' rings may as well go different ways, of those looked at."""
    cheapest: Trial | None = None
    """Of all possible layouts tried; None before the first."""
    _settings: dict[Option, Setting] = field(default_factory=dict)
    _caches: dict[tuple[int, int], Cache] = field(default_factory=dict)
    _kept: dict[tuple[Shape, bytes], Trial] = field(default_factory=dict)
    _possible: dict[tuple[Shape, bytes], Trial] = field(default_factory=dict)
    _least: dict[Degrees, float] = field(default_factory=dict)
    """What the cheapest possible one of each costs."""

    @property
    def is_proven(self) -> bool:
        """Whether the best possible layout is the optimum, or there is none."""
        return self.is_exhausted and self.open_cost >= self.best_cost

    @property
    def proven_cost(self) -> float:
        """What no possible layout costs less than; 0 where nothing is known."""
        return min(self.best_cost, self.open_cost) if self.is_exhausted else 0.0

    @property
    def knows_links(self) -> bool:
        """Whether layouts cost what their plans do: rings are not priced by machines' own links."""
        return self.ground.workload.data == 1 or not self.ground.has_own_links

    def setting(self, option: Option) -> Setting:
        """The arrays of an option, made once."""
        if option not in self._settings:
            self._settings[option] = self.ground.setting(option)
        return self._settings[option]

    def num_batches(self, option: Option) -> int:
        """Micro-batches of a step, of all replicas together."""
        return math.ceil(self.ground.workload.global_batch / option.cell_batch)

    def cache(self, shape: Shape) -> Cache:
        """Room to evaluate layouts of a shape, made once."""
        key = (shape.data, shape.pipeline)
        if key not in self._caches:
            self._caches[key] = Cache(*key, len(self.ground.regions), len(self.ground.machines))
        return self._caches[key]

    def is_hopeless(self, shape: Shape, order_N: Ints) -> bool:
        """Whether the cells, all of them always busy, would cost more than what is to be beaten, or hold too little.

        Of what a replica holds only what does not depend on the split counts.
        """
        setting = self.setting(shape.option)
        kinds = setting.kind_M[order_N[: shape.data * shape.pipeline]]
        if setting.memory_K[kinds].sum() < shape.data * setting.held_J[-1]:
            return True
        speed = (1.0 / (setting.forward_KJ[:, -1] + setting.backward_KJ[:, -1]))[kinds].sum()
        least_s = self.ground.workload.global_batch / shape.option.cell_batch / speed
        least = least_s * setting.price_K[kinds].sum() if setting.is_money else least_s
        return bool(least >= self.to_beat(shape))

    def to_beat(self, shape: Shape) -> float:
        """What a layout of a shape must cost less than to be of use: all others' costs.

        Where rings are not priced by machines' own links, those of its degrees: whether fewer replicas would be better
        is seen of plans alone.
        """
        return self.best_cost if self.knows_links else self._least.get(shape.degrees, math.inf)

    @property
    def best_cost(self) -> float:
        """Of all possible layouts tried; infinite before the first."""
        return math.inf if self.cheapest is None else self.cheapest.cost

    def build(self, shape: Shape, order_N: Ints, tour_W: Ints, by_rows: bool) -> Trial:
        """Construct and evaluate one layout, and keep it."""
        layout = Layout(
            machine_DP=np.zeros((shape.data, shape.pipeline), np.int64),
            first_P=np.zeros(shape.pipeline + 1, np.int64),
            shares_D=np.ones(shape.data, np.int64),
            tour_W=tour_W.copy(),
        )
        setting = self.setting(shape.option)
        construct_layout(setting, layout, order_N, by_rows)
        return self.keep(shape, layout, evaluate(setting, layout, self.cache(shape)))

    def keep(self, shape: Shape, layout: Layout, cost: float, num_evaluations: int = 1) -> Trial:
        """Remember a layout with its cost, as it was evaluated last of its shape."""
        self.num_evaluations += num_evaluations
        trial = Trial(cost, self.num_evaluations, shape, layout)
        used_R = np.zeros(len(self.ground.regions), np.bool_)
        used_R[self.ground.region_M[layout.machine_DP]] = True
        key = shape, used_R.tobytes()
        self._kept[key] = min(trial, self._kept.get(key, trial))
        if cost < math.inf and is_within_limits(self.setting(shape.option), layout, self.cache(shape)):
            self._possible[key] = min(trial, self._possible.get(key, trial))
            self.cheapest = min(trial, self.cheapest or trial)
            self._least[shape.degrees] = min(cost, self._least.get(shape.degrees, cost))
        return trial

    def is_possible(self, trial: Trial, lifted: Sequence[str] = ()) -> bool:
        """Whether memory, price, pinned layers, links and whole workers allow a layout; `LIMITS` may be lifted."""
        setting, cache = self.setting(trial.shape.option), self.cache(trial.shape)
        cost = evaluate(_without(setting, lifted), trial.layout, cache)
        return cost < math.inf and cost == evaluate(_without(setting, LIMITS), trial.layout, cache)

    def excess(self, trial: Trial) -> Floats:
        """What each cell lacks of its memory, as a part of that, and how many layers must not be there; (D, P)."""
        cache = self.cache(trial.shape)
        evaluate(self.setting(trial.shape.option), trial.layout, cache)
        return cache.excess_DP.copy()

    @property
    def num_kept(self) -> int:
        """Different shapes and sets of regions that were tried."""
        return len(self._kept)

    def best(self, num: int) -> list[Trial]:
        """The cheapest of different shapes and sets of regions, the cheapest first; possible or not."""
        return heapq.nsmallest(num, self._kept.values())

    def best_possible(self, num: int) -> list[Trial]:
        """The same of those that are possible (`is_possible`): some may be dearer than what lacks a little."""
        return heapq.nsmallest(num, self._possible.values())

    def best_of_degrees(self) -> list[Trial]:
        """The same, of each number of replicas, stages and tensor ranks on each set of regions one."""
        found: dict[tuple[Degrees, bytes], Trial] = {}
        for (shape, used), trial in self._possible.items():
            found[shape.degrees, used] = min(trial, found.get((shape.degrees, used), trial))
        return sorted(found.values())


def is_within_limits(setting: Setting, layout: Layout, evaluated: Cache) -> bool:
    """Whether memory, pins and price allow the layout that was evaluated last, and all its workers are whole."""
    if evaluated.excess_DP.any():
        return False
    if setting.worker_cells > 1 and lacking_cells(setting, layout):
        return False
    if setting.price_limit == math.inf:
        return True
    prices = setting.price_K[setting.kind_M[layout.machine_DP.ravel()]]
    return bool(sum(prices.tolist()) <= setting.price_limit)  # one by one, as the evaluator adds them up


def _without(setting: Setting, lifted: Sequence[str]) -> Setting:
    """The setting without some of its limits."""
    if "memory" in lifted:
        setting = setting._replace(memory_K=np.full_like(setting.memory_K, math.inf))
    if "price" in lifted:
        setting = setting._replace(price_limit=math.inf)
    if "pins" in lifted:
        setting = setting._replace(banned_MJ=np.zeros((len(setting.kind_M), 1)))
    if "workers" in lifted:
        setting = setting._replace(worker_cells=1)
    return setting


def copy_of(layout: Layout) -> Layout:
    """A layout to change."""
    return Layout(*(array.copy() for array in layout))


def degrees(most: int) -> Iterator[int]:
    """Powers of two and one and a half times powers of two up to `most`, and `most` itself.

    >>> list(degrees(10))
    [1, 2, 3, 4, 6, 8, 10]
    """
    found = {most} if most else set()
    for power in range(most.bit_length()):
        found |= {degree for degree in (1 << power, 3 << power >> 1) if 1 <= degree <= most}
    yield from sorted(found)
