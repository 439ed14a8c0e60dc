"""Every search over divisions side by side at equal time on the same jobs, and what no division can beat."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from hulk_placement.cost.closed_form.arrays import Floats
from hulk_placement.solution import Budget
from hulk_placement.solve.together import DIVISION_SHARE, divide, divisions_of, work_on
from hulk_placement.split.division import Divisions
from hulk_placement.split.job import Job
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

from bench.divisions import SEARCHES

UNLIMITED = 10**15
"""Evaluations: the seconds end a search, and nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one search found: the geometric mean of what the jobs' steps cost by the closed form.

    `cost`: of seconds, or of prices, as the objective of all jobs says; infinite: no plan for all. `num_accelerators`
    of each job, in the order of the comparison's keys. `is_time_over`: the time ended the search, not that it had
    nothing left to try. `is_proven`: no division is better; of an infinite mean that there is none.
    """

    search: str
    cost: float
    num_accelerators: tuple[int, ...]
    num_divisions: int
    num_evaluations: int
    seconds: float
    is_proven: bool
    is_time_over: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows, and the geometric mean below which that of no division is."""

    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    least: float


def compare(
    workloads: Sequence[Workload],
    topology: Topology,
    seconds: float,
    clock: Callable[[], float],
    names: Iterable[str] = tuple(SEARCHES),
    seed: int = 0,
) -> Comparison:
    """Divide by each search, for so many seconds with all layouts; among jobs of one objective."""
    divisions = divisions_of(workloads, topology)
    rows = tuple(_row(workloads, topology, name, seconds, clock, seed) for name in names)
    least = least_step_s if workloads[0].objective == "time" else least_price
    return Comparison(tuple(job.workload.key for job in divisions.jobs), rows, least(divisions))


def _row(
    workloads: Sequence[Workload], topology: Topology, name: str, seconds: float, clock: Callable[[], float], seed: int
) -> Row:
    start_s = clock()
    divisions = divisions_of(workloads, topology)
    work = work_on(divisions, Budget(iterations=UNLIMITED, seconds=seconds, num_waiting=0), clock)
    final = divide(work, SEARCHES[name], seed)
    return Row(
        search=name,
        cost=math.inf if final is None else math.exp(final.value / len(final.jobs)),
        num_accelerators=() if final is None else tuple(final.counts[:-1].sum(axis=1).tolist()),
        num_divisions=divisions.num_divisions,
        num_evaluations=divisions.num_evaluations + work.num_arranged,
        seconds=clock() - start_s,
        is_proven=(math.inf if final is None else final.value) == divisions.proven,
        is_time_over=work.done() >= DIVISION_SHARE,
    )


def least_step_s(divisions: Divisions) -> float:
    """Seconds below which no division's geometric mean is: all accelerators always busy, nothing sent.

    Jobs j have x_jk of the n_k accelerators of pool k, each worth v_jk sequences a second. For all prices p of a pool

        max sum_j log(sum_k v_jk x_jk)  <=  sum_j (log max_k (v_jk / p_k) - 1) + sum_k p_k n_k

    (Lagrange's dual). Prices are what the jobs together have of an accelerator, as parts of all: sum_k p_k n_k = J, and
    the bound is exact where pools are worth the same to all jobs in proportion: each step J times as long as alone.
    """
    total_P = divisions.pools.total_P
    speed_JP = np.array([_speeds(job) for job in divisions.jobs])
    price_P = (speed_JP / (speed_JP @ total_P)[:, None]).sum(axis=0)
    with np.errstate(invalid="ignore"):
        worth_J = np.nanmax(speed_JP / price_P, axis=1)
    batch_J = np.array([job.workload.global_batch for job in divisions.jobs])
    return float(np.exp(np.log(batch_J / worth_J).mean()))


def least_price(divisions: Divisions) -> float:
    """What no division's geometric mean of prices is less than: each job where speed costs least, nothing sent."""
    return math.exp(sum(math.log(_least_price(job)) for job in divisions.jobs) / len(divisions.jobs))


def _least_price(job: Job) -> float:
    speed_P, per_hour_P = _speeds(job), np.array([machine.price_per_hour for machine in job.ground.machines])
    may_P = speed_P > 0
    return job.workload.global_batch / 3600 * float((per_hour_P[may_P] / speed_P[may_P]).min())


def _speeds(job: Job) -> Floats:
    """Sequences a second of one accelerator of each pool, by whichever option is fastest."""
    best_P = np.zeros(len(job.first_P))
    for option in job.space.options:
        setting = job.setting(option)
        seconds_P = (setting.forward_KJ[:, -1] + setting.backward_KJ[:, -1])[setting.kind_M[job.first_P]]
        best_P = np.maximum(best_P, option.micro_batch / (seconds_P * option.tensor))
    return np.where(job.most_P > 0, best_P, 0.0)
