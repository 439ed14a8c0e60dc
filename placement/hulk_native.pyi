"""The extension that native/ builds: arrays in, arrays out."""

from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.cost.simulation.blocks import Blocks
from hulk_placement.cost.simulation.sharing import Flows
from hulk_placement.cost.simulation.sums import Sums
from hulk_placement.gnn.graphs import Figures, Graphs
from hulk_placement.gnn.weights import Single
from hulk_placement.schedule.packing import Tables

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
