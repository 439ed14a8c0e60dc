"""How long a pipeline takes, alone on its links: the crate's `closed_form::pipeline`, which says how it is timed."""

from __future__ import annotations

from typing import NamedTuple

from hulk_native import least_s, pipeline_ends

from hulk_placement.cost.closed_form.arrays import Floats

__all__ = ["GPIPE", "ONE_F_ONE_B", "SCHEDULES", "Chain", "least_s", "pipeline_ends"]

GPIPE, ONE_F_ONE_B = 0, 1
SCHEDULES = {"gpipe": GPIPE, "1f1b": ONE_F_ONE_B}


class Chain(NamedTuple):
    """The stages of one replica and the ways between them, for one micro-batch.

    Seconds of the passes (P); of the transfer from stage s to s + 1 how long it keeps its way, its latency, and its
    packets on each connection, 0 where windows are open (P - 1 at least); the same from s + 1 to s.
    """

    forward_s: Floats
    backward_s: Floats
    send_s: Floats
    latency_s: Floats
    packets: Floats
    back_send_s: Floats
    back_latency_s: Floats
    back_packets: Floats
