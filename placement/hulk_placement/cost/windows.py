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

from hulk_native import AT_ONCE_BYTES, INITIAL_PACKETS, MOST_PIECES, PACKET_BYTES, packets_of

__all__ = ["AT_ONCE_BYTES", "INITIAL_PACKETS", "MOST_PIECES", "PACKET_BYTES", "packets_of"]
