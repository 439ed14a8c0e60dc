"""A job's machines within a division, laid out: the searches over layouts, begun from the shapes on its menu."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from hulk_placement.cost.closed_form.arrays import Ints, Setting
from hulk_placement.cost.closed_form.setting import Ground, Option, whole_cells
from hulk_placement.layouts import drafts as layouts
from hulk_placement.layouts import exact, portfolio, starts
from hulk_placement.layouts.annealing import MOVES_A_CALL, annealed
from hulk_placement.layouts.space import Space, space_of
from hulk_placement.layouts.trials import Shape, Trials
from hulk_placement.split.division import Divisions
from hulk_placement.split.estimate import ALIGNED, ROWS, cells_for, tour_of
from hulk_placement.split.job import Draft, Job
from hulk_placement.split.pools import assign
from hulk_placement.topology import Topology

FEW_MOVES = 125
"""Of the first annealing."""

NUM_BEGINNINGS = 3
"""Shapes of the menu from which a descent begins."""

Going = Callable[[], bool]


@dataclass
class Arranged:
    """One job on the machines that a division gives it, and the layouts tried there."""

    job: Job
    counts_P: Ints
    topology: Topology
    trials: Trials
    space: Space
    pool_M: Ints
    num_moves: int = FEW_MOVES
    length: int = 1
    is_begun: bool = False
    num_counted: int = 0
    """Evaluations that the job counts as its own already."""

    @classmethod
    def of(
        cls, divisions: Divisions, number: int, counts_P: Ints, machines: dict[str, int] | None = None
    ) -> Arranged | None:
        """The job of a number with so many accelerators of each pool; None where it has too few."""
        job, pools = divisions.jobs[number], divisions.pools
        if machines is None:
            counts = np.zeros((len(divisions.jobs), len(counts_P)), np.int64)
            counts[number] = counts_P
            machines = assign(pools, counts)[number]
        topology = only(job.ground.topology, machines)
        if sum(machines.values()) < max(job.space.least, 1):
            return None
        ground = part_of(job, topology)
        pool_of = {machine.name: pool for pool, members in enumerate(pools.machines) for machine in members}
        pool_M = np.array([pool_of[machine.name] for machine in ground.machines])
        return cls(job, counts_P, topology, Trials(ground), space_of(ground), pool_M)

    @property
    def value(self) -> float:
        """The logarithm of the best possible layout's cost; infinite where there is none."""
        return math.log(self.trials.best_cost)

    def begin(self, going_on: Going) -> None:
        """Construct the layouts by which the division was priced; descend from those on other orders of regions."""
        drafts = self.construct()
        setting = self.trials.setting(self.space.options[0])
        other, speed_R = layouts.Drafts(self.trials, self.space), starts.speed_by_region(setting)
        regions = tuple(np.argsort(-speed_R, kind="stable").tolist())
        for draft in drafts:
            if not going_on():
                break
            by_rows = draft.way % ALIGNED == ROWS
            other.descend(layouts.Draft(regions, draft.option, draft.pipeline, draft.eighths, by_rows), going_on)
        self.is_begun = True

    def construct(self) -> list[Draft]:
        """Construct the layouts that the estimate is of, by the best of the menu; these."""
        drafts = self.job.drafts(self.counts_P)[:NUM_BEGINNINGS]
        for draft in drafts:
            self._construct(draft)
        return drafts

    def _construct(self, draft: Draft) -> None:
        """The layout that the estimate is of."""
        setting, space = self.trials.setting(draft.option), self.space
        seconds_RR = starts.edge_seconds(setting, 1)
        weight_R = np.bincount(setting.region_M, setting.slots_M, len(seconds_RR)).astype(float)
        tour_W = tour_of(np.maximum(seconds_RR, seconds_RR.T), weight_R)
        tour_W = np.concatenate([tour_W, np.flatnonzero(weight_R == 0)])
        visit_R = np.argsort(tour_W)
        order_M = np.lexsort((self.pool_M, visit_R[setting.region_M]))
        order_N = np.repeat(order_M, setting.slots_M[order_M])
        order_N = cells_for(setting, order_N, draft.pipeline, draft.way)
        most = space.most // (draft.pipeline * draft.option.width)
        room = min(len(order_N) // draft.pipeline, self.trials.num_batches(draft.option), most)
        data = space.data or max(1, space.whole(room * draft.eighths // 8, draft.pipeline * draft.option.width))
        shape = Shape(draft.option, data, draft.pipeline)
        if data <= room and space.admits(shape):
            self.trials.build(shape, order_N, tour_W, draft.way % ALIGNED == ROWS)

    def improve(self, going_on: Going, seed: int) -> None:
        """Anneal the best, then the best few, twice as long each time, while there is something to evaluate."""
        if not self.is_begun:
            self.begin(going_on)
        while self.num_moves < MOVES_A_CALL and going_on():
            for trial in self.trials.best(1):
                annealed(self.trials, trial, 1, going_on, seed + self.num_moves, self.num_moves)
            self.num_moves *= 2
        num_before = -1
        while going_on() and self.trials.num_evaluations > num_before:
            num_before = self.trials.num_evaluations
            portfolio.improve(self.trials, self.length, going_on, seed + self.length)
            self.length *= 2

    @property
    def least(self) -> float:
        """The logarithm of what no layout costs less than, as far as it is known."""
        least = self.trials.proven_cost
        return math.log(least) if least > 0.0 else -math.inf

    def prove(self, going_on: Going) -> float:
        """The logarithm of the optimum, as far as the work allows."""
        before = self.trials.num_evaluations
        exact.search(self.trials, self.space, going_on, 0)
        self.job.num_evaluations += self.trials.num_evaluations - before
        self.num_counted += self.trials.num_evaluations - before
        return self.value


@dataclass(frozen=True)
class Part(Ground):
    """Some of a job's machines: arrays of its settings are taken from those of all machines."""

    job: Job = field(kw_only=True, repr=False)
    whole_M: Ints = field(kw_only=True)
    """Their numbers among all machines of all pools."""

    def setting(self, option: Option) -> Setting:
        """The arrays of one option."""
        whole = self.job.setting(option)
        return whole._replace(
            kind_M=whole.kind_M[self.whole_M],
            region_M=self.region_M,
            place_M=self.place_M,
            slots_M=whole_cells(self.machines, option.width, whole.worker_cells),
            banned_MJ=whole.banned_MJ[self.whole_M],
            **self.joins._asdict(),
        )


def part_of(job: Job, topology: Topology) -> Ground:
    """The ground of a job's machines; machines with links of their own are looked at one by one."""
    machines, whole = topology.machines, job.ground
    if topology.node_links:
        return Ground.of(job.workload, topology, machines)
    members = [(machine.name, pool) for pool, members in enumerate(job.pools.machines) for machine in members]
    number = {name: (k, pool) for k, (name, pool) in enumerate(members)}
    whole_M, pool_M = (np.array([number[machine.name][k] for machine in machines]) for k in (0, 1))
    regions = tuple(dict.fromkeys(machine.region for machine in machines))
    whole_R = np.array([whole.regions.index(region) for region in regions])
    of = {region: n for n, region in enumerate(regions)}
    region_M = np.array([of[machine.region] for machine in machines])
    return Part(
        workload=job.workload,
        topology=topology,
        machines=machines,
        regions=regions,
        region_M=region_M,
        place_M=region_M,
        joins=whole.joins.part(whole_R),
        speeds=whole.speeds,
        figures=tuple(whole.figures[pool] for pool in pool_M.tolist()),
        job=job,
        whole_M=whole_M,
    )


def only(topology: Topology, machines: dict[str, int]) -> Topology:
    """The topology with these machines only, each with so many accelerators."""
    return replace(
        topology,
        machines=tuple(
            replace(machine, num_accelerators=machines[machine.name])
            for machine in topology.machines
            if machines.get(machine.name)
        ),
    )
