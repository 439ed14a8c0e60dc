"""What a workload document says of moving to another plan -> `Moving`; what it does not say is assumed."""

from __future__ import annotations

from hulk_placement.files.workload import MovingPart
from hulk_placement.restart import Moving, Restart


def to_moving(document: MovingPart | None) -> Moving:
    """The figures of a move."""
    if document is None:
        return Moving()
    said = {
        "stop_s": document.stop_seconds,
        "image_s": document.image_seconds,
        "start_s": document.start_seconds,
        "rendezvous_s": document.rendezvous_seconds,
        "first_step_s": document.first_step_seconds,
    }
    return Moving(
        restart=Restart(**{name: seconds for name, seconds in said.items() if seconds is not None}),
        checkpoint_bytes=document.checkpoint_bytes,
        store_region=document.store_region,
        repeated_steps=(document.checkpoint_every_steps or 0) / 2,
    )
