"""Greedy schedules, found at once, and made better by changing the rule that says what goes first.

No device is left idle for the sake of something better (a list schedule). Memory is given as a banker gives credit
(Dijkstra, 1965): only so that all micro-batches could still be finished one after another, the oldest first; else one
might wait for ever for memory that another holds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from hulk_native import pack

from hulk_placement.schedule.bounds import least_makespan
from hulk_placement.schedule.memory import Memory, check_enough, limit_of
from hulk_placement.schedule.operations import Operations
from hulk_placement.schedule.packing import Floats, Tables, tables_of
from hulk_placement.schedule.timing import Schedule

STEPS = (0.05, 0.2, 1.0)
"""Of the critical path: how far an operation's place in a rule is moved."""

SLOPE_CHANCE, SLOPE_STEP = 0.2, 0.3
"""How often the slope is changed as well, and by how much of the busiest resource's work."""

MOST_CHANGES = 3


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Of what can start at the same time that goes first whose `slope` x micro-batch + `offset_O` is least."""

    slope: float
    offset_O: Floats


def rules_of(operations: Operations) -> list[Rule]:
    """Whoever is nearest to its micro-batch's end, as in 1F1B; has most behind it; or has to be done soonest.

    Soonest where the busiest resource is never idle: micro-batches are due one after the other by its work.
    """
    tail_O = np.array(operations.tails())
    return [Rule(0.0, tail_O), Rule(0.0, -tail_O), Rule(operations.busiest, -tail_O)]


@dataclass(slots=True)
class Packer:
    """Packs one number of micro-batches of the same operations by many rules, and keeps the best."""

    operations: Operations
    num_micro_batches: int
    memory: Memory = math.inf
    best: Schedule | None = None
    rule: Rule | None = None
    """That of the best."""
    num_tried: int = 0
    _tables: Tables = field(init=False)
    _limit_D: Floats = field(init=False)

    def __post_init__(self) -> None:
        check_enough(self.operations, self.memory)
        self._tables = tables_of(self.operations)
        devices = range(self.operations.num_devices)
        self._limit_D = np.array([limit_of(self.memory, device) for device in devices], np.float64)

    def try_rules(self, rules: Iterable[Rule]) -> None:
        """Pack by each."""
        for rule in rules:
            self._try(rule)

    def climb(self, going_on: Callable[[], bool], seed: int) -> None:
        """Change the best rule, at random, for as long as that is no worse; nothing where the best is the optimum."""
        rng = random.Random(seed)
        least = least_makespan(self.operations, self.num_micro_batches, self.memory) * (1 + 1e-9)
        while self.best is not None and self.rule is not None and self.best.makespan > least and going_on():
            self._try(self._changed(self.rule, rng))

    def _try(self, rule: Rule) -> None:
        resources = len(self.operations.resources)
        starts_ON = pack(self._tables, self.num_micro_batches, resources, self._limit_D, rule.slope, rule.offset_O)
        self.num_tried += 1
        if starts_ON is None:
            return
        schedule = Schedule(self.operations, starts_ON)
        if self.best is None or schedule.makespan <= self.best.makespan:
            self.best, self.rule = schedule, rule

    def _changed(self, rule: Rule, rng: random.Random) -> Rule:
        offset_O, slope = rule.offset_O.copy(), rule.slope
        reach = self.operations.critical_path()
        for _ in range(rng.randint(1, MOST_CHANGES)):
            offset_O[rng.randrange(len(offset_O))] += rng.gauss(0.0, reach * rng.choice(STEPS))
        if rng.random() < SLOPE_CHANCE:
            slope = max(0.0, slope + rng.gauss(0.0, SLOPE_STEP * self.operations.busiest))
        return Rule(slope, offset_O)


def packed(operations: Operations, num_micro_batches: int, memory: Memory = math.inf) -> Schedule:
    """The shortest greedy schedule by the usual rules.

    ValueError where one micro-batch needs more memory than there is, or does so in the order of its blocks.
    """
    packer = Packer(operations, num_micro_batches, memory)
    packer.try_rules(rules_of(operations))
    if packer.best is None:
        raise ValueError(
            "one micro-batch keeps the memory only if its blocks come in another order: no greedy schedule"
        )
    return packer.best
