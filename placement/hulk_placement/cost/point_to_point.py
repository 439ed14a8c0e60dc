"""What it takes to hand a tensor to the next stage of a pipeline by gloo's send and receive."""

from __future__ import annotations

import math

from hulk_placement.cost.gloo import SOFTWARE_S
from hulk_placement.topology import Link


def send_receive_s(
    link: Link, num_bytes: float, receive_posted_s: float = -math.inf, num_sharing: float = 1.0
) -> float:
    """Seconds from "tensor ready" (at 0) to "received"; the sender's call blocks until then.

    The receiver's ready message needs a one-way delay to the sender: with the receive posted at least that much earlier
    the tensor leaves at once and takes one way + bytes / bandwidth, else it waits for the message: a round trip +
    bytes / bandwidth after a receive that is posted when the tensor is ready.
    """
    there_s = link.latency_s + SOFTWARE_S / 2
    back_s = link.rtt_s + SOFTWARE_S - there_s
    bytes_per_s = min(link.bandwidth_bytes_per_s / num_sharing, link.flow_bytes_per_s or math.inf)
    return max(0.0, receive_posted_s + back_s) + there_s + num_bytes / bytes_per_s
