"""The rows of a schedule -> what every device and every link does, in order, as it is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hulk_placement.report import units
from hulk_placement.report.schedule.rows import BlockRow, ScheduleView, TransferRow

TRANSFER = "transfer"


@dataclass(frozen=True, slots=True)
class Bar:
    """A block or a transfer; `kind` is a block's, or `transfer`. What is sent is there when it `arrives`."""

    kind: str
    micro_batch: int
    start: float
    end: float
    arrives: float
    words: str


@dataclass(frozen=True, slots=True)
class Track:
    """One device, link or uplink."""

    name: str
    is_device: bool
    bars: tuple[Bar, ...]


def tracks(view: ScheduleView) -> tuple[Track, ...]:
    """The devices, and below them the links and uplinks that are used."""
    devices: list[list[Bar]] = [[] for _ in range(view.devices)]
    links: dict[str, list[Bar]] = {link.name: [] for link in view.links}
    for block in view.blocks:
        bar = Bar(block.kind, block.micro_batch, block.start, block.end, block.end, _block_words(block, view))
        for device in block.devices:
            devices[device].append(bar)
    for sent in view.transfers:
        bar = Bar(TRANSFER, sent.micro_batch, sent.start, sent.end, sent.arrives, _transfer_words(sent, view))
        for channel in sent.channels:
            links[channel].append(bar)
    return (
        *(Track(f"device {number}", True, tuple(bars)) for number, bars in enumerate(devices)),
        *(Track(name, False, tuple(bars)) for name, bars in links.items()),
    )


def kinds(view: ScheduleView) -> Iterator[str]:
    """What there is to tell apart, in the order of a legend."""
    there = {block.kind for block in view.blocks}
    yield from (kind for kind in ("forward", "backward", "weight") if kind in there)
    if view.links:
        yield TRANSFER


def time_words(value: float, view: ScheduleView) -> str:
    """A time as people read it: with its unit where it has one."""
    return units.duration(round(value * 1e6)) if view.time_unit and value else f"{value:g}"


def memory_words(value: float, view: ScheduleView) -> str:
    """An amount of memory as people read it."""
    return f"{value:g} {view.memory_unit}".rstrip()


def _span_words(start: float, end: float, view: ScheduleView) -> str:
    return f"{time_words(start, view)} to {time_words(end, view)}"


def _block_words(block: BlockRow, view: ScheduleView) -> str:
    where = f"device{'s' if len(block.devices) > 1 else ''} {', '.join(map(str, block.devices))}"
    stage = f", stage {block.stage}" if block.stage else ""
    return (
        f"{block.name} of micro-batch {block.micro_batch}: {block.kind}{stage}, on {where}, "
        f"{_span_words(block.start, block.end, view)}"
    )


def _transfer_words(sent: TransferRow, view: ScheduleView) -> str:
    there = f", there at {time_words(sent.arrives, view)}" if sent.arrives > sent.end else ""
    return (
        f"{sent.source} to {sent.target} of micro-batch {sent.micro_batch}: over {', '.join(sent.channels)}, "
        f"{_span_words(sent.start, sent.end, view)}{there}"
    )
