"""Figures in a workload document against its model and machines: degrees, batches and money that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from hulk_placement.cost.money import LIMIT_ROUNDING, least_per_hour
from hulk_placement.files.workload import WorkloadFile
from hulk_placement.fit import layer_words
from hulk_placement.model import Model
from hulk_placement.topology import Machine
from hulk_placement.workload import heads_words, replicas_words, wan_words


def wishes(document: WorkloadFile, model: Model, allowed: list[Machine]) -> Iterator[str]:
    """A sentence for every wish that these machines (at least one) cannot meet, or that another one excludes."""
    yield from _degrees(document, model, allowed)
    yield from _workers(document, allowed)
    yield from _batches(document)
    yield from _prices(document, allowed)


def affordable(document: WorkloadFile, allowed: list[Machine]) -> list[Machine]:
    """The machines with a price, where a wish is about money; else all."""
    if document.objective == "time" and document.constraints.max_price_per_hour is None:
        return allowed
    return [machine for machine in allowed if machine.price_per_hour > 0]


def _degrees(document: WorkloadFile, model: Model, allowed: list[Machine]) -> Iterator[str]:
    """Degrees that the model or the machines do not have."""
    degrees = document.parallelism
    if degrees.pipeline is not None and degrees.pipeline > model.num_layers:
        yield f"parallelism.pipeline: {degrees.pipeline} stages, but the model has {layer_words(model)}"
    if degrees.tensor is not None and not model.shares_heads(degrees.tensor):
        yield f"parallelism.tensor: {heads_words(model, degrees.tensor)}"
    if document.sync.mode == "wan" and (degrees.pipeline or 1) > 1:
        yield f"parallelism: {wan_words(degrees.pipeline or 1)}"
    largest = max(allowed, key=lambda machine: machine.num_accelerators)
    if degrees.tensor is not None and degrees.tensor > largest.num_accelerators:
        yield (
            f"parallelism.tensor: {degrees.tensor} accelerators of one machine; the largest, {largest.name}, has "
            f"{largest.num_accelerators}"
        )


def _workers(document: WorkloadFile, allowed: list[Machine]) -> Iterator[str]:
    """Numbers of workers that exclude each other, or the degrees."""
    degrees, workers = document.parallelism, document.workers
    each, num_free = workers.accelerators_per_worker, sum(machine.num_accelerators for machine in allowed)
    fixed = (degrees.data or 1) * (degrees.pipeline or 1) * (degrees.tensor or 1) * degrees.shard
    if fixed > max(1, num_free):
        yield f"parallelism: {fixed} accelerators at least, and there are {num_free}"
    if workers.max is not None and workers.min > workers.max:
        yield f"workers.min {workers.min} and workers.max {workers.max} exclude each other"
    if workers.max is not None and fixed > workers.max * each:
        yield f"parallelism ({fixed} accelerators at least) and workers.max ({workers.max} x {each}) exclude each other"
    is_fixed = None not in (degrees.data, degrees.pipeline, degrees.tensor)
    if is_fixed and fixed < workers.min * each:
        yield f"parallelism ({fixed} accelerators) and workers.min ({workers.min} x {each}) exclude each other"
    if is_fixed and fixed % each:
        yield f"parallelism ({fixed} accelerators) is no whole number of workers of {each} (acceleratorsPerWorker)"
    pinned = document.constraints.worker_machines
    if pinned is not None and not workers.min <= len(pinned) <= (workers.max or len(pinned)):
        yield f"constraints.workerMachines has {len(pinned)} workers, workers asks for {workers.min} to {workers.max}"


def _batches(document: WorkloadFile) -> Iterator[str]:
    """Batches that are too small, and intervals of a synchronisation that has none."""
    training, degrees = document.training, document.parallelism
    batch, micro_batch = training.global_batch, training.micro_batch
    if degrees.data is not None and degrees.data > batch:
        yield f"parallelism.data {degrees.data} is more than training.globalBatch {batch}, and each replica needs one"
    elif words := replicas_words(degrees.data, micro_batch, batch):
        yield f"parallelism.data {degrees.data} and training.microBatch {micro_batch} exclude each other: {words}"
    if micro_batch is not None and micro_batch > batch:
        yield f"training.microBatch {micro_batch} is more than training.globalBatch {batch}"
    sync = document.sync
    for key, value in (
        ("innerSteps", sync.inner_steps),
        ("fragments", sync.fragments),
        ("delaySteps", sync.delay_steps),
        ("warmupSteps", sync.warmup_steps),
    ):
        if value is not None and sync.mode != "local":
            yield f"sync.{key} is for sync.mode local, not for {sync.mode}"


def _prices(document: WorkloadFile, allowed: list[Machine]) -> Iterator[str]:
    """Wishes about money that the prices do not allow, or that have no prices to go by."""
    limit = document.constraints.max_price_per_hour
    wish = "objective" if document.objective != "time" else "constraints.maxPricePerHour"
    priced = affordable(document, allowed)
    if not priced:
        yield f"{wish}: the topology states no price"
        return
    fewest = document.workers.min * document.workers.accelerators_per_worker
    least = least_per_hour(((machine.price_per_hour, machine.num_accelerators) for machine in priced), fewest)
    if limit is not None and least > limit * LIMIT_ROUNDING:
        yield (
            f"constraints.maxPricePerHour {limit:g} and workers.min exclude each other: {fewest} accelerators cost "
            f"{least:g} an hour at least"
        )
