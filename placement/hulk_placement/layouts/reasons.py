"""Why a layout was chosen, what nothing can beat, and why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.cost.layer_sums import layer_sums
from hulk_placement.cost.money import price_words
from hulk_placement.layouts.joined import missing_links
from hulk_placement.layouts.memory import lacks_memory, no_memory, with_degrees
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import LIMITS, Trials
from hulk_placement.plan import Layout, Plan
from hulk_placement.search.why import none_better
from hulk_placement.solution import Unplaced
from hulk_placement.words import counted
from hulk_placement.workload import Workload


def least_cost(trials: Trials, space: Space) -> float:
    """What nothing can beat, in the unit of the objective: seconds of a step, or its price."""
    least = least_step_s if trials.ground.workload.objective == "time" else least_price
    return least(trials, space)


def least_step_s(trials: Trials, space: Space) -> float:
    """Seconds below which no step of any layout is: all micro-batches, all machines always busy, nothing sent.

    Of layouts within one region that region's machines alone compute; of any other, data cross between two regions.
    """
    ground, least_s = trials.ground, math.inf
    crossing_s = _crossing_s(ground)
    for option in space.options:
        setting = trials.setting(option)
        seconds_M = (setting.forward_KJ[:, -1] + setting.backward_KJ[:, -1])[setting.kind_M]
        speed_R = np.zeros(len(ground.regions))
        np.add.at(speed_R, setting.region_M, setting.slots_M / seconds_M)
        share = ground.workload.global_batch / option.cell_batch
        with np.errstate(divide="ignore"):
            alone_s, together_s = float((share / speed_R).min()), float(share / speed_R.sum())
        least_s = min(least_s, alone_s, max(together_s, crossing_s))
    return least_s


def _crossing_s(ground: Ground) -> float:
    """The least seconds of a step that data are on their way between two regions, each way; infinite where none may.

    gloo's ring goes there and back. Hulk's own all-reduce goes both ways at once; local SGD does so in one step of
    several.
    """
    region_Q, sync = np.arange(len(ground.joins.flow_QQ)), ground.workload.sync
    region_Q[ground.place_M] = ground.region_M
    is_usable_QQ = (ground.joins.flow_QQ > 0) & (region_Q[:, None] != region_Q)
    latency_QQ = np.where(is_usable_QQ, ground.joins.latency_QQ, math.inf)
    both_QQ = latency_QQ + latency_QQ.T if sync.mode == "ring" else np.maximum(latency_QQ, latency_QQ.T)
    return float(both_QQ.min()) / (sync.planned_inner_steps or 1)


def least_price(trials: Trials, space: Space) -> float:
    """What no step of any layout costs less than: all sequences on the machine with most speed for its price."""
    least = math.inf
    for option in space.options:
        setting = trials.setting(option)
        seconds_K = setting.forward_KJ[:, -1] + setting.backward_KJ[:, -1]
        share = trials.ground.workload.global_batch / option.cell_batch
        least = min(least, share * float((seconds_K * setting.price_K).min()))
    return least


def sentences(trials: Trials, plan: Plan) -> tuple[str, ...]:
    """What decided the plan, in sentences with numbers."""
    prediction, layout = plan.prediction, plan.layout
    regions = list(dict.fromkeys(worker.region for worker in plan.workers))
    found = [
        *trials.ground.workload.model.notes,
        f"{counted(layout.data, 'replica')} of {counted(layout.pipeline, 'stage')} of "
        f"{counted(layout.width, 'accelerator')}{_shard_words(layout)}, in {', '.join(regions)}: the best of "
        f"{counted(trials.num_evaluations, 'layout')} evaluated.",
        f"A step computes for {prediction.compute_s:.3f} s on the cell that computes longest, fills, drains and waits "
        f"for {prediction.bubble_s:.3f} s, and then waits {prediction.communication_s:.3f} s for the replicas.",
        *_layer_words(plan, trials.ground.workload),
    ]
    if trials.ground.workload.sync.mode == "wan" and layout.data > 1 and plan.collective is None:
        found.append(
            "Hulk's own all-reduce is for regions: each stage's replicas are in one, where gloo's ring sums them."
        )
    if trials.ground.workload.goes_by_prices:
        found.append(price_words(plan, trials.ground.workload, trials.ground.topology))
    return (*found, *none_better(plan, trials.ground.workload.objective, "with every machine always busy"))


def _layer_words(plan: Plan, workload: Workload) -> Iterator[str]:
    """That nothing of these sums is hidden."""
    if sums := layer_sums(plan, workload):
        num = counted(max(map(len, sums)), "layer")
        yield f"torch sums each of {num} by itself, one after another: backward passes hide nothing of that."


def _shard_words(layout: Layout) -> str:
    return f" ({layout.shard} shards of {layout.tensor} each)" if layout.shard > 1 else ""


def impossible(trials: Trials, space: Space) -> Unplaced:
    """Why no layout is possible: memory, with the least that would do; pins; price; links; or several of these."""
    num, workload = trials.num_evaluations, trials.ground.workload
    if (most := _most_accelerators(trials, space)) < space.least:
        return Unplaced(
            "ContradictoryPlacement",
            f"Layouts{with_degrees(workload)} have at most {counted(most, 'accelerator')}, with "
            f"{counted(len(workload.model.layers), 'layer')} and a global batch of {workload.global_batch}; at least "
            f"{space.least} are asked for: the two exclude each other.",
        )
    fewest, there = space.fewest(workload.global_batch), sum(m.num_accelerators for m in trials.ground.machines)
    if not fewest:
        return Unplaced(
            "ContradictoryPlacement",
            f"No layout{with_degrees(workload)} has {_asked(space)}, where there are "
            f"{counted(len(workload.model.layers), 'layer')} and a global batch of {workload.global_batch}: they "
            "exclude each other.",
        )
    if fewest > there:
        return Unplaced(
            "NotEnoughAccelerators",
            f"Layouts{with_degrees(workload)} that have {_asked(space)} have at least {fewest}, and there are {there}.",
        )
    if lacks_memory(trials, space):
        return Unplaced("NoMemory", no_memory(trials, space))
    tried = trials.best(trials.num_kept)
    if any(trials.is_possible(trial, lifted=["pins"]) for trial in tried):
        pinned = "; ".join(pin.words for pin in workload.layer_pins)
        said = f"None of {num} layouts evaluated has every pinned layer where it must be: {pinned}."
        return Unplaced("PinsNotPossible", said + missing_links(trials.ground))
    if any(trials.is_possible(trial, lifted=["price"]) for trial in tried):
        return Unplaced(
            "PriceLimit", f"None of {num} layouts evaluated costs at most {workload.max_price_per_hour:g} an hour."
        )
    if tried and not any(trials.is_possible(trial, lifted=LIMITS) for trial in tried):
        return Unplaced(
            "OnlyUnknownLinks", f"Known links join none of {num} layouts evaluated.{missing_links(trials.ground)}"
        )
    return Unplaced("NoLayout", f"No possible layout among {num} that were evaluated: {_together(workload)}.")


def _most_accelerators(trials: Trials, space: Space) -> int:
    """Of any layout, however many machines there are: stages by layers, replicas by micro-batches."""
    pipeline = trials.ground.workload.pipeline or len(trials.ground.workload.model.layers)
    return max((space.data or trials.num_batches(option)) * pipeline * option.width for option in space.options)


def _asked(space: Space) -> str:
    """How many accelerators a layout must have."""
    numbers = f"{space.least} to {counted(space.most, 'accelerator')}"
    numbers = counted(space.most, "accelerator") if space.least == space.most else numbers
    return f"{numbers} in whole workers of {space.each}" if space.each > 1 else numbers


def _together(workload: Workload) -> str:
    """What may rule out all layouts where no single limit does."""
    each = workload.accelerators_per_worker
    limits = [
        "memory",
        *["pins"] * bool(workload.layer_pins),
        *["price"] * (workload.max_price_per_hour is not None),
        *[f"whole workers of {each} accelerators"] * (each > 1),
    ]
    return f"{' and '.join(limits)}, or degrees and numbers of workers that are asked for, exclude them together"
