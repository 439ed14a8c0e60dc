"""What the compiled searches read and change, as arrays: one workload on its machines, and one layout of it.

Letters of shapes: M machines, K kinds of machine (alike in every figure), R regions, Q places, L layers, J = L + 1
(prefix sums: entry j is the sum over layers 0 .. j - 1), D replicas, P stages, W visits of a tour, T tied layers.
A *place* is what has links of its own: a region, or a machine that links were measured or declared for. A *cell* is one
stage of one replica: the ranks that share its layers, or shard them, on one machine or on several alike ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hulk_native import Cache
from numpy.typing import NDArray

__all__ = ["Bools", "Cache", "Floats", "Ints", "Layout", "Setting"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Setting(NamedTuple):
    """Everything that a layout's cost depends on but the layout itself; of one micro-batch size and width of cells.

    Bytes and seconds of layers are of one micro-batch and, where ranks share them, of one rank.
    """

    kind_M: Ints
    region_M: Ints
    place_M: Ints
    slots_M: Ints
    """Cells that a machine has room for, those of whole workers."""
    worker_cells: int
    """A machine's cells are whole workers where they are a multiple of this."""
    memory_K: Floats
    """Bytes of one accelerator; infinite where unknown."""
    price_K: Floats
    """Of one cell for a second."""
    is_cold_K: Bools
    """Whether windows of its TCP connections close while they are silent."""
    nic_K: Floats
    """Bytes a second that leave a machine, or enter it, over all its links; infinite where no limit is known."""
    forward_KJ: Floats
    backward_KJ: Floats
    held_J: Floats
    """Bytes held whatever the schedule: parameters, gradients, optimizer state, buckets."""
    gradient_J: Floats
    """Bytes that an all-reduce of the gradients reduces."""
    kept_J: Floats
    """Bytes of activations kept for the backward pass."""
    input_J: Floats
    """Bytes of the layers' inputs: what recomputation keeps instead."""
    peak_GL: Floats
    """Bytes of a layer's activations while they are recomputed: row g has the most of 2^g layers from each on."""
    output_L: Floats
    """Bytes that a layer of a cell gives to the next one."""
    ties_T2: Ints
    """Layers that use parameters of an earlier one: (layer, earlier layer); of an earlier one that with most first."""
    tied_held_T: Floats
    tied_gradient_T: Floats
    """As `held_J` and `gradient_J`, of those parameters."""
    latency_QQ: Floats
    """Seconds, one way."""
    flow_QQ: Floats
    """Bytes a second of one flow; 0: must not be used."""
    own_QQ: Floats
    """Bytes a second of all flows that two machines have to themselves: on a link of their own, or inside a region.

    Infinite where they have but their regions' link.
    """
    is_wire_QQ: Bools
    """Whether what two machines have to themselves is all that they share: no region's link, uplink, nor NIC."""
    inside_latency_K: Floats
    inside_flow_K: Floats
    """Between two cells on one machine."""
    latency_RR: Floats
    round_trip_RR: Floats
    flow_RR: Floats
    """As of places, typical of the machines of a region pair."""
    capacity_RR: Floats
    """Bytes a second of all flows of a region pair that have no link of their own; inside a region, of two machines."""
    carried_RR: Floats
    """Bytes a second of all flows of a region pair together."""
    uplink_R: Floats
    egress_RR: Floats
    """Price of a byte."""
    banned_MJ: Floats
    """Prefix sums of a number for every layer that must not be on a machine; (M, 1) where all may."""
    price_limit: float
    """Of all cells for a second."""
    global_batch: int
    """Sequences of a step, of all replicas together."""
    micro_batch: int
    """Sequences of a micro-batch, at most, of all shards of a cell together."""
    tensor: int
    """Ranks of a cell."""
    schedule: int
    overlap: bool
    recompute: bool
    transports: int
    """Bits: 1 gloo's ring, 2 Hulk's own all-reduce."""
    wire_share: float
    """Bytes that Hulk's own sends between regions, compressed, by bytes that it sums."""
    inner_steps: int
    """Steps of which each bears its part of one all-reduce; 1: each has its own."""
    sums_by_layer: bool
    """Whether a stage sums each layer by itself, one after another (`cost.layer_sums`); of the mean layer's bytes."""
    is_money: bool
    """Whether the price of a step is to be least, not its time."""
    is_equal: bool
    """Whether all replicas have as many sequences, but for what does not divide."""


class Layout(NamedTuple):
    """Who does what. Arrays may be longer than what is used: the first `size` entries (replicas, stages, visits)."""

    machine_DP: Ints
    first_P: Ints
    """First layer of each stage; entry P is the number of layers."""
    shares_D: Ints
    """Sequences of each replica: as many micro-batches as they fill, all of one size (`num_batches`, `filled`)."""
    tour_W: Ints
    """The closed walk over regions that all rings follow, in the direction of the data. A region may come twice."""
