"""What stages send each other over silent TCP connections: how often it waits for windows to grow.

Between two steps the connections between regions are silent for longer than their retransmission timeout, and Linux
lets them begin again with ten packets each (`cost.idle`). What was sent is confirmed a round trip later, and then twice
as much may be under way, so that after k round trips 10 (2^(k+1) - 1) packets have left a connection: slow start
(RFC 5681, 3.1). A message goes in at most `MOST_PIECES` pieces at once, each over a connection of its own, and
beside each goes a packet that says what is expected in return: the gradients of these activations, the next
activations.

Measured, eight activations of 98 KB by GPipe: 80 packets on each connection, ten of them such; ten left at once, twenty
a round trip later, forty after two.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hulk_placement.compiled import inlined
from hulk_placement.cost.gloo import CUBIC
from hulk_placement.cost.idle import INITIAL_PACKETS

Floats = NDArray[np.float64]

MOST_PIECES = 8
"""Of a message, each over a connection of its own; what ranks tell each other beside takes another one."""
AT_ONCE_BYTES = 10_000
"""A message is sent in as many pieces, if these are not too many."""
PACKET_BYTES = CUBIC.packet_bytes


@inlined
def packets_of(num_bytes: float) -> float:
    """Packets on each connection that has a piece of a message, and the one beside it; 0 of an empty message.

    >>> packets_of(98e3), packets_of(2_000.0), packets_of(0.0)
    (10.0, 3.0, 0.0)
    """
    if num_bytes <= 0.0:
        return 0.0
    num_pieces = min(float(MOST_PIECES), math.ceil(num_bytes / AT_ONCE_BYTES))
    return 1.0 + math.ceil(num_bytes / num_pieces / PACKET_BYTES)


@inlined
def opened_s(
    sent: Floats, room: Floats, opened: Floats, way: int, packets: float, trip_s: float, begin_s: float
) -> float:
    """When a message of so many packets may have left a way that it is given to at `begin_s`; then where none hold it.

    Of each way, all 0 before its first message: packets that were `sent`, packets that may have left by now (`room`),
    and when the last of these could (`opened`).
    """
    if packets == 0.0:
        return begin_s
    if sent[way] == 0.0:
        room[way], opened[way] = INITIAL_PACKETS, begin_s
    sent[way] += packets
    while sent[way] > room[way]:
        room[way] = 2.0 * room[way] + INITIAL_PACKETS
        opened[way] += trip_s
    return float(opened[way])
