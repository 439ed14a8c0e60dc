"""What a job's status says of it among others -> lines for people."""

from collections.abc import Iterator
from datetime import datetime

from hulk_placement.words import counted
from rich.console import RenderableType

from hulk_operator.api import HulkJobStatus
from hulk_operator.cli import units
from hulk_operator.cli.table_format import sentence


def queue_state(status: HulkJobStatus, now: datetime) -> Iterator[RenderableType]:
    """Its place while it waits, what it was given, the energy that it took; nothing where none of that is known."""
    if (queue := status.queue) is not None:
        waits = f"no. {queue.position} for {units.age((now - queue.since).total_seconds())}, {queue.reason}"
        if queue.expected_start is not None:
            waits += f"; expected to start at {queue.expected_start:%Y-%m-%d %H:%M:%S} UTC"
        yield sentence("queue", f"{waits}: {queue.message}")
    if (share := status.share) is not None and share.workers:
        given, fair = units.percent(float(share.of_cluster)), units.percent(float(share.fair))
        yield sentence(
            "share", f"{counted(share.workers, 'worker')}, {given} of the accelerators; a fair share is {fair}"
        )
    if (energy := status.energy) is not None:
        yield sentence("energy", f"{energy.joules:,} J up to step {energy.step}")
