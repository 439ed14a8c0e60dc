"""What a TCP connection costs that has been silent, or never used: its window must grow again before a burst fits it.

Linux halves the window once for each retransmission timeout of silence, down to ten packets (tcp_cwnd_restart in
net/ipv4/tcp_output.c, RFC 2861), unless net.ipv4.tcp_slow_start_after_idle is 0; the timeout is the round trip and at
least 0.2 s (RFC 6298 and Linux's TCP_RTO_MIN). Measured: after 4 s of silence an all-reduce of 2.64 s took 3.70 s with
cubic, 2.64 s with the setting off, and BBR did not suffer. So with cubic every step that computes for longer than the
timeout pays again: all of it after a few timeouts, a part before (the kernel's rule, not measured).
"""

from __future__ import annotations

import math

from hulk_native import INITIAL_PACKETS

from hulk_placement.cost.gloo import SOFTWARE_S, Gloo
from hulk_placement.topology import Link

LEAST_TIMEOUT_S = 0.2


def restart_s(link: Link, burst_bytes: float, transport: Gloo, silence_s: float) -> float:
    """Extra seconds of the first operation that sends such bursts over the link after `silence_s` of silence."""
    if transport.congestion_control != "cubic" or not transport.slow_start_after_idle:
        return 0.0
    halvings = int(silence_s / (LEAST_TIMEOUT_S + link.rtt_s + SOFTWARE_S))
    return _growing_s(link, burst_bytes, transport, halvings) if halvings else 0.0


def _growing_s(link: Link, burst_bytes: float, transport: Gloo, halvings: int) -> float:
    """R (log2(1 + w / W) - 1): round trips until a window of W bytes has doubled often enough for a burst.

    w is the burst, or what the link carries in a round trip R where that is less.
    """
    round_trip_s = link.rtt_s + SOFTWARE_S
    flow = link.one_flow_bytes_per_s
    needed_bytes = min(burst_bytes, flow * round_trip_s)
    window_bytes = max(INITIAL_PACKETS * transport.packet_bytes, needed_bytes / 2**halvings)
    return round_trip_s * max(0.0, math.log2(1 + needed_bytes / window_bytes) - 1)
