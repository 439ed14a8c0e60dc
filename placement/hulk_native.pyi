"""The crate `native/`: what the planner runs a million times a second."""

from typing import final

from hulk_placement.cost.closed_form.arrays import Bools, Floats, Ints, Layout, Setting
from hulk_placement.cost.closed_form.pipeline import Chain
from hulk_placement.cost.simulation.blocks import Blocks
from hulk_placement.cost.simulation.sharing import Flows
from hulk_placement.cost.simulation.sums import Sums
from hulk_placement.gnn.graphs import Figures, Graphs
from hulk_placement.gnn.weights import Single
from hulk_placement.schedule.packing import Tables

# closed_form

@final
class Cache:
    def __init__(self, num_replicas: int, num_stages: int, num_regions: int, num_machines: int) -> None: ...
    @property
    def ends_DP(self) -> Floats: ...
    @property
    def excess_DP(self) -> Floats: ...
    @property
    def sync_P(self) -> Floats: ...

def evaluate(setting: Setting, layout: Layout, cache: Cache) -> float: ...
def time_replicas(setting: Setting, layout: Layout, cache: Cache) -> None: ...
def memory_bytes(setting: Setting, first: int, last: int, stage: int, num_stages: int, num: int) -> float: ...
def holds_tie(setting: Setting, first: int, last: int, number: int) -> bool: ...
def tied_seconds(setting: Setting, at_ties: Setting, layout: Layout) -> float: ...
def slack_seconds(setting: Setting, layout: Layout, replica: int, early: int, late: int) -> tuple[float, float]: ...
def lacking_cells(setting: Setting, layout: Layout) -> int: ...
def ring_cut(num_bytes: float, num_ranks: int, num_buckets: int) -> tuple[int, float]: ...
def edge_seconds(hops: int, segment: float, num_buckets: int, way_s: float, flow: float, full_s: float) -> float: ...
def pipeline_ends(schedule: int, num_micro_batches: int, chain: Chain, overlap: bool) -> Floats: ...
def least_s(schedule: int, num_micro_batches: int, chain: Chain) -> float: ...

# layouts

def split_layers(setting: Setting, layout: Layout) -> None: ...
def construct_layout(setting: Setting, layout: Layout, order: Ints, by_rows: bool) -> None: ...
def stages_that_hold(setting: Setting, most_bytes: float, num_batches: int) -> Bools: ...
def anneal(
    setting: Setting,
    layout: Layout,
    cache: Cache,
    free: Ints,
    best: Layout,
    cost: float,
    best_cost: float,
    num_moves: int,
    hot: float,
    cold: float,
    seed: int,
) -> tuple[float, float]: ...
def tour_of(both: Floats, weight: Floats) -> Ints: ...
def cells_for(setting: Setting, order: Ints, num_stages: int, way: int) -> Ints: ...
def estimate(
    setting: Setting,
    both: Floats,
    counts: Ints,
    usable: Ints,
    first: Ints,
    shapes: Ints,
    limits: tuple[int, int, int],
) -> Floats: ...

# windows of silent TCP connections

INITIAL_PACKETS: float
PACKET_BYTES: float
MOST_PIECES: float
AT_ONCE_BYTES: float

def packets_of(num_bytes: float) -> float: ...

# simulation of a step

def run_step(blocks: Blocks, flows: Flows, sums: Sums) -> None:
    """Go through the step until nothing is left that can happen; results are written into the arrays of all three."""

def input_of(num_stages: int, cell: int, kind: int) -> int | None:
    """The channel that a block's input comes over."""

def output_of(num_stages: int, cell: int, kind: int) -> int | None:
    """The channel that a block's output leaves over."""

# schedules

def pack(
    tables: Tables, num: int, num_resources: int, limit_D: Floats, slope: float, offset_O: Floats
) -> Floats | None:
    """Starts (O, N) of so many micro-batches; None where memory ran out: one alone needs more than there is.

    Of operations that can start at the same time that goes first whose `slope` x micro-batch + `offset_O` is least. The
    micro-batches take every operation in turn.
    """

# cycles over regions

MOST_EXACT_REGIONS: int

def cycle_of(seconds_RR: Floats) -> list[int]:
    """A cycle whose worst edge is least, 0 first; up to `MOST_EXACT_REGIONS` regions the optimum."""

# value network

GRAPH_LIMIT: float
"""No figure is further off 0."""

def fill_graphs(figures: Figures, counts_BP: Ints, graphs: Graphs) -> None:
    """Write the figures of each graph."""

def exchange_messages(
    sent: Single, got: Single, edge: Single, weights: Single, share_BN: Single, num_B: Ints, seen: Single
) -> None:
    """Messages of all pairs of nodes (i, j), summed by shares and their maximum, into `seen` (B, N, 2 x width)."""
