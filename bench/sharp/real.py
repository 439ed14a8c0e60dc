"""The ways beside each other on real devices of this machine, and on devices of stated speed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from hulk_runtime.sharp import DeviceMemoryError, HostDevice
from rich.console import Console
from rich.table import Table

from bench.raw import Raw
from bench.sharp.models import Size, trials
from bench.sharp.paced import PacedDevice
from bench.sharp.ways import Measured, Way, gpipe, model_parallel, sharp, task_parallel
from bench.verdicts import verdict

OVER_MODEL_PARALLEL = 0.9
"""Aim for SHARP: so much of as many times as there are models or devices, whichever are fewer."""

OVER_BOUND = 1.05
MOST_LATE = 0.02
"""Share of late units, of SHARP and model parallel, above which a run on devices of stated speed says nothing: the
cores were busy elsewhere."""

NUM_MICRO_BATCHES = 8
WAYS: Mapping[str, Way] = {
    "task parallel": task_parallel,
    "model parallel": model_parallel,
    "GPipe": gpipe(NUM_MICRO_BATCHES),
    "SHARP, one buffer": sharp(double_buffer=False),
    "SHARP": sharp(),
    "SHARP, first come": sharp(scheduler="fifo"),
    "SHARP, random": sharp(scheduler="random"),
}

STATED_FLOPS_PER_S = 0.1e9
STATED_LINK_BYTES_PER_S = 10e6
KINDS = {
    False: "Devices as fast as a core of this machine: two, as it has two",
    True: f"Devices of stated speed: {STATED_FLOPS_PER_S:g} operations/s, copies {STATED_LINK_BYTES_PER_S:g} bytes/s",
}


@dataclass(frozen=True, slots=True)
class Case:
    """So many models of a size on so many devices."""

    name: str
    size: Size
    num_models: int
    num_devices: int
    memory_bytes: int
    stated: bool
    fits: bool = False
    """One model on one device."""

    def devices(self) -> list[HostDevice]:
        """New ones."""
        names = [f"host-{i}" for i in range(self.num_devices)]
        if not self.stated:
            return [HostDevice(self.memory_bytes, name) for name in names]
        return [PacedDevice(self.memory_bytes, name, STATED_FLOPS_PER_S, STATED_LINK_BYTES_PER_S) for name in names]


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    case: str
    way: str
    round: int
    seconds: float
    pilot_s: float
    num_shards: int
    late_units: float


REAL = Size(width=384, depth=6, num_rows=768, steps=3)
STATED = Size(width=64, depth=8, num_rows=64, steps=3)
CASES = (
    Case("4 models that fit", REAL, 4, 2, 220_000_000, stated=False, fits=True),
    Case("4 models", REAL, 4, 2, 90_000_000, stated=False),
    Case("2 models", REAL, 2, 2, 90_000_000, stated=False),
    Case("1 model", REAL, 1, 2, 90_000_000, stated=False),
    Case("12 models that fit", STATED, 12, 8, 8_000_000, stated=True, fits=True),
    Case("12 models", STATED, 12, 8, 1_700_000, stated=True),
    Case("3 models", STATED, 3, 8, 1_700_000, stated=True),
)


def run(console: Console, raw: Raw, short: bool) -> None:
    """Print a table per case."""
    for stated in (False, True):
        console.print(KINDS[stated])
        for case in CASES:
            if case.stated == stated and not (short and case.fits):
                _compare(console, raw, case, 1 if short else 3)
    if short:
        console.print("left out: models that fit on one device, and all rounds but the first")


def _compare(console: Console, raw: Raw, case: Case, num_rounds: int) -> None:
    seconds: dict[str, list[float]] = {}
    shards: dict[str, str] = {}
    late = 0.0
    losses = set()
    for number in range(num_rounds):
        for name, way in WAYS.items():
            measured, late_units = _measure(case, way)
            if measured is None:
                shards[name] = "does not fit"
                continue
            row = Row(case.name, name, number, measured.seconds, measured.pilot_s, measured.num_shards, late_units)
            raw.add(row, stated=case.stated)
            seconds.setdefault(name, []).append(measured.seconds)
            shards[name] = str(measured.num_shards)
            if name in ("model parallel", "SHARP"):
                late = max(late, late_units)
            if name != "GPipe":  # micro-batches are summed in another order
                losses.add(measured.losses)
    assert len(losses) == 1, f"losses of {case.name} differ between ways"
    _print(console, case, seconds, shards, late)


def _measure(case: Case, way: Way) -> tuple[Measured | None, float]:
    """None where it does not fit; the share of units that were late on devices of stated speed."""
    devices = case.devices()
    try:
        measured = way(trials(case.size, case.num_models), devices)
    except DeviceMemoryError:
        return None, 0.0
    paced = [device for device in devices if isinstance(device, PacedDevice)]
    return measured, sum(d.num_late for d in paced) / max(1, sum(d.num_units for d in paced))


def _print(
    console: Console, case: Case, seconds: Mapping[str, list[float]], shards: Mapping[str, str], late: float
) -> None:
    base = seconds["model parallel"]
    cap = min(case.num_models, case.num_devices)
    bound_s = _bound_s(case, base)
    table = Table("way", "shards", "s", "model parallel / it", "s / bound")
    ratios = {}
    for name, note in shards.items():
        if name not in seconds:
            table.add_row(name, note, "", "", "")
            continue
        ratios[name] = median(a / b for a, b in zip(base, seconds[name], strict=True))
        middle = median(seconds[name])
        table.add_row(name, note, f"{middle:.2f}", f"{ratios[name]:.2f}", f"{middle / bound_s:.3f}")
    memory = f"{case.memory_bytes / 1e6:g} MB each"
    console.print(f"{case.name} on {case.num_devices} devices of {memory}, medians of {len(base)} rounds", table)
    is_valid = late <= MOST_LATE
    ratio, over = ratios["SHARP"], median(seconds["SHARP"]) / bound_s
    console.print(
        verdict("SHARP over model parallel", ratio if is_valid else None, "at least", OVER_MODEL_PARALLEL * cap)
    )
    console.print(verdict("SHARP's seconds / lower bound", over if is_valid else None, "at most", OVER_BOUND))
    if case.stated:
        console.print(f"late units: at most {late:.1%}; above {MOST_LATE:.0%} the cores were too busy for a verdict")
    console.print(f"programs that wanted one of {os.cpu_count()} cores in the last minute: {os.getloadavg()[0]:.1f}")


def _bound_s(case: Case, model_parallel_s: list[float]) -> float:
    """All computing shared evenly, and one model alone: by the stated speed, else by what model parallel took."""
    one_s = case.size.flops / STATED_FLOPS_PER_S if case.stated else median(model_parallel_s) / case.num_models
    return one_s * max(1.0, case.num_models / case.num_devices)
