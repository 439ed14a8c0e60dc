"""Whether it is memory that no layout is possible for, and what would do, in sentences with the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hulk_placement.accelerators.framework_memory import framework_memory
from hulk_placement.cost.closed_form.evaluate import memory_bytes
from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.cost.closed_form.shares import num_batches
from hulk_placement.layouts.fewest import Fit, fewest_machines
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape, Trial, Trials
from hulk_placement.search.would_fit import parameters_words, tokens_words, would_fit
from hulk_placement.words import counted, gib
from hulk_placement.workload import Workload


def lacks_memory(trials: Trials, space: Space) -> bool:
    """Whether a layout that was tried would be possible with more memory; or none was tried for want of any hope.

    Layouts are without hope whose accelerators together hold less than the model's state.
    """
    tried = trials.best(trials.num_kept)
    if tried:
        return any(trials.is_possible(trial, lifted=["memory"]) for trial in tried)
    smallest = (space.smallest(option, num) for option in space.options for num in space.pipelines)
    return any(_has_room(trials, space, shape) for shape in smallest)


def _has_room(trials: Trials, space: Space, shape: Shape) -> bool:
    num_cells = int(trials.setting(shape.option).slots_M.sum())
    is_few = shape.data <= trials.num_batches(shape.option) and shape.data * shape.pipeline <= num_cells
    return is_few and space.admits(shape)


def no_memory(trials: Trials, space: Space) -> str:
    """What the model takes and what there is, and the fewest of the largest machines that would do."""
    ground = trials.ground
    least = min(float(trials.setting(option).held_J[-1]) * option.width for option in space.options)
    there = sum(machine.memory_bytes * machine.num_accelerators for machine in ground.machines)
    is_all_known = all(machine.memory_bytes for machine in ground.machines)
    each = ground.workload.accelerators_per_worker
    which = f"all accelerators for workers of {each}" if each > 1 else "all accelerators"
    which += "" if is_all_known else " whose memory is known"
    state = (
        f"Parameters, gradients and optimizer state of {parameters_words(ground.workload.model)} take "
        f"{gib(round(least))}; {which} together have {gib(there)}."
    )
    return " ".join((state, *_nearest(trials), _would_do(trials, space)))


def _nearest(trials: Trials) -> Iterator[str]:
    """Of the layouts that memory alone rules out, the one that lacks least."""
    lacking = [trial for trial in trials.best(trials.num_kept) if trials.is_possible(trial, lifted=["memory"])]
    if not lacking:
        return
    nearest = min(lacking, key=lambda trial: trials.excess(trial).max())
    shape, layout = nearest.shape, nearest.layout
    replica, stage = np.unravel_index(trials.excess(nearest).argmax(), layout.machine_DP.shape)
    machine = trials.ground.machines[layout.machine_DP[replica, stage]]
    first, last = layout.first_P[stage : stage + 2]
    setting, workload = trials.setting(shape.option), trials.ground.workload
    need = memory_bytes(setting, first, last, int(stage), shape.pipeline, num_batches(setting, layout, int(replica)))
    overhead = workload.overhead(framework_memory(machine.product), shape.option.tensor, shard=shape.option.shard)
    size = f"micro-batches of {shape.option.micro_batch}{tokens_words(workload)}"
    yield (
        f"None of {trials.num_evaluations} layouts evaluated fits: the one that lacks least, {shape.words} (data x "
        f"pipeline x tensor), needs "
        f"{gib(round(overhead.total(need)))} of an accelerator of {machine.name} with {gib(machine.memory_bytes)}, "
        f"activations of {size} and buffers included{overhead.words(need)}."
    )
    smaller = would_fit(workload, lambda asked: _fits(trials, nearest, asked))
    if smaller:
        yield smaller


def _fits(trials: Trials, trial: Trial, workload: Workload) -> bool:
    """Whether a layout fits its machines with a workload of smaller micro-batches or shorter sequences."""
    ground = replace(trials.ground, workload=workload)
    option = trial.shape.option
    option = replace(option, micro_batch=min(option.micro_batch, workload.micro_batch or option.micro_batch))
    setting, layout = ground.setting(option), trial.layout
    for replica, stage in np.ndindex(layout.machine_DP.shape):
        first, last = layout.first_P[stage : stage + 2]
        num = num_batches(setting, layout, replica)
        memory = setting.memory_K[setting.kind_M[layout.machine_DP[replica, stage]]]
        if memory_bytes(setting, first, last, stage, trial.shape.pipeline, num) > memory:
            return False
    return True


def _would_do(trials: Trials, space: Space) -> str:
    """The smallest cluster of the machine with most memory that would do, or what none would do for."""
    ground = trials.ground
    largest = max(ground.machines, key=lambda machine: (machine.memory_bytes, machine.num_accelerators))
    each = f"{gib(largest.memory_bytes)} ({largest.product})"
    found = fewest_machines(ground, space, largest)
    if isinstance(found, Fit):
        num = largest.num_accelerators
        several = f"{counted(found.num_machines, 'machine')} of {num} accelerators"
        several = several if num > 1 else counted(found.num_machines, "accelerator")
        return f"At least {several} of {each} would do.{_over(ground, found.shape.num_accelerators)}"
    if found is not None:
        beside_bytes = found.overhead.total(0.0)
        if beside_bytes > largest.memory_bytes:
            taken = f"the framework alone takes {gib(round(beside_bytes))} of one"
            return f"No number of accelerators of {each} would do: {taken}, before any tensor."
        name = ground.workload.model.layers[found.layer].name
        split = f", split among {found.tensor}" if found.tensor > 1 else ""
        return (
            f"No number of accelerators of {each} would do: layer {found.layer} ({name}) alone needs "
            f"{gib(round(found.need_bytes))} of one{split}{found.overhead.words(found.tensor_bytes)}."
        )
    return f"No number of accelerators of {each} would do{with_degrees(ground.workload)}."


def with_degrees(workload: Workload) -> str:
    """The degrees that are asked for, like " with data 2, tensor 1"; "" where none is."""
    asked = {"data": workload.data, "pipeline": workload.pipeline, "tensor": workload.tensor}
    asked |= {"shard": workload.shard} if workload.shard != 1 else {}
    degrees = ", ".join(f"{name} {degree}" for name, degree in asked.items() if degree is not None)
    return f" with {degrees}" if degrees else ""


def _over(ground: Ground, needs: int) -> str:
    """That so many accelerators are more than the workload may have, where that is not just all that there are."""
    workload, there = ground.workload, sum(machine.num_accelerators for machine in ground.machines)
    most, each = workload.max_workers * workload.accelerators_per_worker, workload.accelerators_per_worker
    if needs <= most or most == there:
        return ""
    of_workers = f" ({counted(workload.max_workers, 'worker')} of {each})" if each > 1 else ""
    return f" The workload may have {counted(most, 'accelerator')}{of_workers}, and this takes {needs}."
