"""The simulation of one training step: from its plain values to seconds, event by event.

What it knows and the closed form does not: transfers of several pipelines on one link, gradients reduced while other
stages still compute, all-reduces that begin at different times, any order of blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import hulk_native
import numpy as np
from numpy.typing import NDArray

from hulk_placement.cost.simulation.blocks import Blocks, make_blocks
from hulk_placement.cost.simulation.sharing import Flows, make_flows
from hulk_placement.cost.simulation.step import Place, Step, Way
from hulk_placement.cost.simulation.sums import Sums, all_edges, make_sums

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Use:
    """What a resource did in the step: bytes carried, seconds in use, seconds in which its flows wanted more."""

    place: Place
    num_bytes: float
    busy_s: float
    scarce_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """One simulated step, with all that happened in it.

    Where replicas reduce once in several steps, `step_s` has that part of what they wait for each other, and all of
    what stages then wait for parameters that they share, and what the events do not know of a step (`Step.held_s`,
    `Step.after_s`); the rest tells of the step in which replicas do. `ends_DP`,
    `busy_DP`: when the last backward pass of each cell ends, and how long the cell computes. `uses`: by resource, in
    the order of the step's.
    """

    step_s: float
    step: Step
    ends_DP: Floats
    busy_DP: Floats
    uses: tuple[Use, ...]
    blocks: Blocks
    sums: Sums

    @property
    def end_s(self) -> float:
        """When all of it has ended, the all-reduces too."""
        return float(max(self.ends_DP.max(), self.sums.end_S.max(initial=-math.inf)))

    @property
    def reduced_s(self) -> float:
        """When the replicas' all-reduces have ended, or all computing; what stages share is summed then."""
        of_replicas_S = ~self.sums.is_last_G[self.sums.group_S]
        return float(max(self.ends_DP.max(), self.sums.end_S[of_replicas_S].max(initial=-math.inf)))


_NO_WAY = Way((0,), 1.0, 0.0)
"""Of the channels to the next stage of the last one and back from the first: never used."""


def simulate_step(step: Step) -> Simulated:
    """Simulate one step. ValueError where its schedules wait for each other for ever."""
    channels = []
    for replica in step.replicas:
        onward, back = [forth for forth, _ in replica.ways], [back for _, back in replica.ways]
        channels += [way for both in zip([*onward, _NO_WAY], [_NO_WAY, *back], strict=True) for way in both]
    ways = channels + [edge.way for edge in all_edges(step)]
    flows = make_flows(ways, step.resources)
    blocks = make_blocks(step, channels)
    sums = make_sums(step, len(channels))
    hulk_native.run_step(blocks, flows, sums)
    return _simulated(step, blocks, flows, sums)


def _simulated(step: Step, blocks: Blocks, flows: Flows, sums: Sums) -> Simulated:
    num_blocks_C = (blocks.order_CI >= 0).sum(axis=1)
    stuck = np.flatnonzero(blocks.next_C < num_blocks_C)
    if stuck.size:
        replica, stage = divmod(int(stuck[0]), step.num_stages)
        batch, kind = divmod(int(blocks.order_CI[stuck[0], blocks.next_C[stuck[0]]]), 2)
        raise ValueError(
            f"replica {replica}, stage {stage}: the {('forward', 'backward')[kind]} pass of micro-batch {batch} never "
            "gets its input: the orders of the stages wait for each other"
        )
    ends_C = blocks.end_CI[np.arange(num_blocks_C.size), num_blocks_C - 1]
    shape = len(step.replicas), step.num_stages
    figures = zip(step.resources, flows.moved_R.tolist(), flows.busy_R.tolist(), flows.scarce_R.tolist(), strict=True)
    found = Simulated(
        step_s=math.nan,
        step=step,
        ends_DP=ends_C.reshape(shape),
        busy_DP=blocks.seconds_CI.sum(axis=1).reshape(shape),
        uses=tuple(Use(resource.place, *values) for resource, *values in figures),
        blocks=blocks,
        sums=sums,
    )
    computed_s = float(ends_C.max())
    alone_s = (found.reduced_s - computed_s) / step.num_steps_apart
    borne_s = alone_s if step.waited_s is None else step.waited_s
    besides_s = step.held_s + step.after_s
    return replace(found, step_s=computed_s + borne_s + found.end_s - found.reduced_s + besides_s)
