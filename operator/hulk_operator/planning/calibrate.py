"""What the ranks of a gang measured before or in its first steps -> each node's speed, and the prediction for it."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Final

from hulk_placement.cost.compute import layer_seconds
from hulk_placement.cost.known import work
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

from hulk_operator.inputs.speeds import possible
from hulk_operator.observation import Preflight
from hulk_operator.planning.inventory import Inventory, Reader
from hulk_operator.planning.process import Search
from hulk_operator.reconcile.plan_summary import prediction_summary
from hulk_operator.reconcile.types import Calibration, View

FRESH: Final = timedelta(seconds=2)
ROUNDS: Final = 4
"""Of looking for what ranks of a stage compute for: how long they wait for each other depends on it."""
LEAST_COMPUTING: Final = 0.1
"""Of what they measured."""


class Calibrator:
    """Gangs that come up together are calibrated on one picture of the cluster, which is at most FRESH old."""

    def __init__(self, reader: Reader, search: Search, clock: Callable[[], datetime]) -> None:
        self._reader = reader
        self._search = search
        self._clock = clock
        self._reading = asyncio.Lock()
        self._seen: Inventory | None = None

    async def calibrate(self, view: View, preflight: Preflight) -> Calibration | None:
        """The prediction and the speeds; None when what was measured does not fit the plan or the nodes there are."""
        plan = view.full.plan if view.full else None
        if plan is None or len(preflight.compute_s) != plan.layout.num_ranks:
            return None
        inventory = await self._inventory(view.job.spec.workers.resource_name)
        return await _calibrate(self._reader, self._search, view, plan, preflight, inventory)

    async def _inventory(self, resource: str) -> Inventory:
        """With its topology made: by the first that asks, while the others wait."""
        async with self._reading:
            if self._seen is None or self._clock() - self._seen.now >= FRESH:
                self._seen = await self._reader.inventory((), self._clock())
            await asyncio.to_thread(self._seen.topology, resource)
            return self._seen


async def _calibrate(
    reader: Reader, search: Search, view: View, plan: Plan, preflight: Preflight, inventory: Inventory
) -> Calibration | None:
    resource, now = view.job.spec.workers.resource_name, inventory.now
    whole = inventory.topology(resource)
    places = frozenset(plan.rank_machines)
    own = tuple(machine for machine in whole.machines if machine.name in places)
    if len(own) < len(places):
        return None
    topology = replace(whole, machines=own)  # of which each was measured: no other one tells anything of them
    workload = await reader.workload(view.job, inventory)
    if plan.stages[-1] >= workload.model.num_layers:
        return None
    products = inventory.products(resource)
    micro_batch = min(plan.micro_batch, *plan.shares)
    measured_s = computing_s = _rank_seconds(preflight)
    for _ in range(ROUNDS if plan.layout.width > 1 else 1):
        shown = _speeds(plan, computing_s, workload, topology)
        speeds = {machine: possible(flops_per_s, products[machine]) for machine, flops_per_s in shown.items()}
        measured = replace(
            workload,
            flops_per_s={**workload.flops_per_s, **speeds},
            measured_micro_batch={**workload.measured_micro_batch, **dict.fromkeys(speeds, micro_batch)},
        )
        foreseen = await search.foresee(plan, measured, topology)
        computing_s = _without_waiting(measured_s, computing_s, foreseen.prediction.rank_compute_s)
    return Calibration(
        attempt=plan.attempt,
        prediction=prediction_summary(foreseen.prediction, plan, "preflight", now, foreseen.transfer_s),
        workload=workload.digest,
        flops_per_s=speeds,
        micro_batch=micro_batch,
        products={machine: products[machine] for machine in speeds},
        new=frozenset(speeds.keys() - workload.flops_per_s.keys()),
    )


def _rank_seconds(preflight: Preflight) -> tuple[float, ...]:
    """What each rank takes in a step, which waits for whoever is slowest in it.

    Where that takes longer than the slowest median, because times vary, all take longer by that much: so the slowest
    machine's share takes what the slowest rank of a step really takes.
    """
    waiting = max(1.0, preflight.slowest_s / max(preflight.compute_s))
    return tuple(compute_s * waiting for compute_s in preflight.compute_s)


def _without_waiting(
    measured_s: Sequence[float], computing_s: Sequence[float], predicted_s: Sequence[float]
) -> tuple[float, ...]:
    """What the ranks of a stage, which measure together, compute for: without what they are predicted to wait besides.

    >>> _without_waiting([4.0, 4.0], [4.0, 3.0], [5.0, 4.0])
    (3.0, 3.0)
    """
    each = zip(measured_s, computing_s, predicted_s, strict=True)
    return tuple(
        max(LEAST_COMPUTING * all_s, all_s - max(0.0, with_waiting_s - own_s)) for all_s, own_s, with_waiting_s in each
    )


def _speeds(plan: Plan, computing_s: Sequence[float], workload: Workload, topology: Topology) -> dict[str, float]:
    """FLOP/s of one accelerator of each machine in this gang, over the whole model: the median over its ranks.

    The ranks of a stage compute that stage's part of the model for its replica's sequences, each as much. One whose
    layers have no FLOPs tells nothing of its machine.
    """
    parts, layout = _parts_of_model(plan, workload, topology), plan.layout
    found: dict[str, list[float]] = defaultdict(list)
    for rank, (machine, compute_s) in enumerate(zip(plan.rank_machines, computing_s, strict=True)):
        replica, stage = divmod(rank // layout.width, layout.pipeline)
        flops = plan.shares[replica] * parts[machine][stage] * work(workload) / layout.width
        if flops:
            found[machine].append(flops / compute_s)
    return {machine: median(values) for machine, values in found.items()}


def _parts_of_model(plan: Plan, workload: Workload, topology: Topology) -> dict[str, Sequence[float]]:
    """Of each machine, the share of the whole model's time that each stage takes there.

    By the curve of its product, which the prediction goes by as well; where that is not known, by the layers' FLOPs.
    """
    machines = list(dict.fromkeys(plan.rank_machines))
    if plan.layout.pipeline == 1:
        return dict.fromkeys(machines, (1.0,))
    seconds = layer_seconds(workload, topology, machines, min(plan.micro_batch, *plan.shares))
    stages = list(pairwise((*plan.stages, workload.model.num_layers)))
    rows = seconds.forward_s + seconds.backward_s
    return {
        machine: [float(row[first:end].sum() / row.sum()) for first, end in stages]
        for machine, row in zip(machines, rows, strict=True)
    }
