"""The rows that a schedule is told in, to people and to programs. Times are in the placement's unit, or in seconds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Row(BaseModel):
    """Frozen. Programs get the names as they are here: `peak_memory` is what those who compare schedules look for."""

    model_config = ConfigDict(frozen=True)


class BlockRow(Row):
    """One block of one micro-batch."""

    name: str
    kind: str
    stage: str
    devices: tuple[int, ...]
    micro_batch: int
    start: float
    end: float


class TransferRow(Row):
    """What one block sends another, of one micro-batch: on all `channels` from start to end, there when it arrives."""

    source: str
    target: str
    channels: tuple[str, ...]
    micro_batch: int
    start: float
    end: float
    arrives: float


class LinkRow(Row):
    """A link or an uplink that is used: how long it is busy, and that as a share of the makespan."""

    name: str
    busy: float
    share: float


class PatternRow(Row):
    """The pattern that was searched for: none with blocks of as few micro-batches has a period below `bound`.

    `bubbles`: idle time of the busiest device in a period. `micro_batches`: of how many it has blocks.
    """

    period: float
    bound: float
    proven: bool
    bubbles: float
    micro_batches: int


class ScheduleView(Row):
    """A schedule. `bubbles`: idle time of all devices together; `bubble_share`: of all their time.

    `period`: by how much micro-batches follow each other where the schedule repeats itself; else the pattern's, if any.

    `time_unit` and `memory_unit` are empty where the placement's figures have none. `memory`: what each device has, or
    nothing where that is not limited.
    """

    placement: str
    mode: str
    devices: int
    micro_batches: int
    time_unit: str
    memory_unit: str
    makespan: float
    period: float | None
    bubbles: float
    bubble_share: float
    bound: float
    proven: bool
    peak_memory: tuple[float, ...]
    memory: tuple[float, ...] | None
    seconds: float
    pattern: PatternRow | None
    busy: tuple[float, ...]
    links: tuple[LinkRow, ...]
    blocks: tuple[BlockRow, ...]
    transfers: tuple[TransferRow, ...]
