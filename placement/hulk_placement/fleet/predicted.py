"""Step times of live jobs: the one evaluator's, corrected by what was observed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hulk_placement.cost.compute import share_out
from hulk_placement.cost.predict import step_seconds
from hulk_placement.fleet.room import workers
from hulk_placement.fleet.types import Job, Mapped, Observed
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class PredictedStepTimes:
    """By `cost.predict`, each job's ring along the machines of a mapping, regions together.

    Where a job was observed, that stands for the mapping that it was observed on, and other mappings' predictions are
    off by the same factor. What the planner will do with the same machines can only be quicker: this is one plan of
    theirs. Keep the object between decisions while the topology stays: it remembers.
    """

    topology: Topology
    observed: Mapping[str, Observed] = field(default_factory=dict)
    _known: dict[tuple[object, ...], float] = field(default_factory=dict, repr=False, compare=False)
    _alikes: dict[str, tuple[Workload, int]] = field(default_factory=dict, repr=False, compare=False)
    """Of each job that was asked for its workload, and the number of all that take as long on the same machines."""
    _kinds: list[Workload] = field(default_factory=list, repr=False, compare=False)
    """One of each number, without what decides no step."""

    def step_s(self, job: Job, mapping: Mapped) -> float:
        """Seconds of a step; inf for a number of workers that no layout of the job's has."""
        seen = self.observed.get(job.key)
        if seen is None:
            return self._predicted_s(job, mapping)
        if dict(seen.mapping) == dict(mapping):
            return seen.step_s
        before_s = self._predicted_s(job, seen.mapping)
        factor = seen.step_s / before_s if math.isfinite(before_s) else 1.0
        return factor * self._predicted_s(job, mapping)

    def with_observed(self, observed: Mapping[str, Observed]) -> PredictedStepTimes:
        """The same, with what is known, and other observations."""
        return replace(self, observed=observed)

    def _predicted_s(self, job: Job, mapping: Mapped) -> float:
        workload = job.workload
        if workload is None:
            raise ValueError(f"job {job.key}: a step is predicted of its workload, and it has none")
        try:
            alike = self._alike(workload, mapping)
        except KeyError:
            return math.inf  # it was observed on a machine that is gone
        key = (self._kind(workload), *alike)
        if key not in self._known:
            plan = plan_on(workload, self.topology, mapping)
            self._known[key] = math.inf if plan is None else step_seconds(plan, workload, self.topology)
        return self._known[key]

    def _kind(self, workload: Workload) -> int:
        """The number that workloads share whose steps are equally long on the same machines, as those of a sweep."""
        seen = self._alikes.get(workload.key)
        if seen is None or seen[0] is not workload:
            bare = replace(
                workload,
                key="any/any",
                candidates={},
                min_workers=1,
                max_workers=1,
                attempt=1,
                created_s=0.0,
                priority=0,
                kept={},
            )
            if bare not in self._kinds:
                self._kinds.append(bare)
            seen = self._alikes[workload.key] = workload, self._kinds.index(bare)
        return seen[1]

    def _alike(self, workload: Workload, mapping: Mapped) -> Sequence[object]:
        """What of a mapping decides its step: machines themselves, or only their kinds where no pair differs."""
        machines = [(self.topology.machine(name), count) for name, count in mapping.items()]
        if self.topology.node_links or workload.flops_per_s or workload.likely_flops_per_s:
            return sorted((machine.name, count) for machine, count in machines)
        return sorted(
            (
                machine.region,
                machine.product,
                machine.flops_per_s or 0.0,
                machine.memory_bytes,
                machine.keeps_windows,
                count,
            )
            for machine, count in machines
        )


def plan_on(workload: Workload, topology: Topology, mapping: Mapped) -> Plan | None:
    """A plan of the workload on a mapping, of the degrees that it asks for, else one; None where they do not divide it.

    Its stages are as equal in layers as can be, its shares equal, its gradients summed by gloo's ring.
    """
    pipeline, tensor = workload.pipeline or 1, workload.tensor or 1
    ranks = workers(mapping) * workload.accelerators_per_worker
    layout = Layout(1, pipeline, tensor, workload.shard or 1)
    data, rest = divmod(ranks, layout.num_ranks)
    if rest or not 1 <= data <= workload.global_batch or workload.data not in (None, data):
        return None
    names = sorted(mapping, key=topology.turn)
    shares = share_out(workload.global_batch, [1.0] * data)
    num_layers = len(workload.model.layers)
    if num_layers < pipeline:
        return None
    cuts = [stage * num_layers // pipeline for stage in range(pipeline + 1)]
    return Plan(
        key=workload.key,
        attempt=workload.attempt,
        workers=tuple(
            WorkerSlot(name, topology.machine(name).region, workload.accelerators_per_worker)
            for name in names
            for _ in range(mapping[name])
        ),
        shares=shares,
        micro_batch=min(workload.micro_batch or 1, max(shares))
        if pipeline > 1 or workload.micro_batch
        else max(shares),
        num_buckets=1,
        prediction=NOT_PREDICTED,
        layout=replace(layout, data=data),
        stages=tuple(first for first, _ in pairwise(cuts)),
    )
