"""The extension that native/ builds: arrays in, arrays out."""

from hulk_placement.cost.simulation.blocks import Blocks
from hulk_placement.cost.simulation.sharing import Flows
from hulk_placement.cost.simulation.sums import Sums

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
