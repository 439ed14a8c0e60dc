"""Jobs of a table, one a row: what `hulk fleet simulate --jobs` reads.

Columns, all but the first two with a default: job, samples, arrives_s, min_workers, max_workers, accelerators,
namespace, priority, restart_s, watts, memory_bytes, step_s (of one worker's step), samples_per_step (of one worker),
gradient_bytes, reserved_bytes_per_s, utility, weight, steepness, midpoint, scale, deadline_s, late_share, power_price.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hulk_placement.fleet.types import Job, Ring
from hulk_placement.fleet.utility import Utility, UtilityKind

NEEDED = ("job", "samples")
WHOLE = {"min_workers", "max_workers", "accelerators", "priority", "memory_bytes"}
LARGEST = 1 << 53
"""Of whole numbers: what a float holds to the last digit."""
OF_UTILITY = ("weight", "steepness", "midpoint", "scale", "deadline_s", "late_share", "power_price")
FIGURES = {
    "samples",
    "arrives_s",
    "restart_s",
    "watts",
    "step_s",
    "samples_per_step",
    "gradient_bytes",
    "reserved_bytes_per_s",
    *WHOLE,
    *OF_UTILITY,
}
WORDS = {"job", "namespace", "utility"}


def read_jobs(lines: Iterable[str]) -> list[Job]:
    """The jobs of a CSV table with a heading; ValueError that names the line and the column."""
    rows = csv.DictReader(lines)
    columns = rows.fieldnames or []
    unknown = [name for name in columns if name not in FIGURES | WORDS]
    missing = [name for name in NEEDED if name not in columns]
    twice = sorted(name for name, count in Counter(columns).items() if count > 1)
    if unknown or missing or twice:
        raise ValueError(f"jobs: unknown columns {unknown}, missing columns {missing}, columns named twice {twice}")
    jobs: dict[str, tuple[int, Job]] = {}
    for row in rows:
        try:
            job = _job(_figures(row, len(columns)))
            if job.key in jobs:
                raise ValueError(f"job {job.key} is there twice; the first is in line {jobs[job.key][0]}")
        except ValueError as error:
            raise ValueError(f"jobs line {rows.line_num}: {error}") from None
        jobs[job.key] = rows.line_num, job
    if not jobs:
        raise ValueError("jobs: the table has a heading and no row")
    return [job for _, job in jobs.values()]


def _figures(row: Mapping[str | None, Any], num_columns: int) -> dict[str, Any]:
    """A row's cells as numbers, empty ones left out."""
    if None in row:
        raise ValueError(f"{num_columns + len(row[None])} cells, and the heading has {num_columns} columns")
    found: dict[str, Any] = {}
    for name, cell in row.items():
        if name is None or cell is None or not cell.strip():
            continue
        if name in WORDS:
            found[name] = cell.strip()
            continue
        try:
            found[name] = int(cell) if name in WHOLE else float(cell)
        except ValueError:
            raise ValueError(f"{name} {cell.strip()!r} must be a number") from None
        if not math.isfinite(found[name]):
            raise ValueError(f"{name} {cell.strip()!r} must be finite")
        if name in WHOLE and abs(found[name]) > LARGEST:
            raise ValueError(f"{name} {cell.strip()!r} must be at most {LARGEST}")
    for name in NEEDED:
        if name not in found:
            raise ValueError(f"{name} is empty")
    return found


def _job(figures: Mapping[str, Any]) -> Job:
    kind = figures.get("utility", UtilityKind.THROUGHPUT.value)
    if kind not in {known.value for known in UtilityKind}:
        raise ValueError(f"utility {kind!r} must be one of {', '.join(known.value for known in UtilityKind)}")
    utility = Utility(UtilityKind(kind), **{name: figures[name] for name in OF_UTILITY if name in figures})
    least, step_s = figures.get("min_workers", 1), figures.get("step_s", 1.0)
    if not step_s > 0:
        raise ValueError(f"step_s {step_s:g} must be > 0")
    ring = Ring(
        gradient_bytes=figures.get("gradient_bytes", 0.0),
        forward_s=0.0,
        samples=1,
        backward_s=step_s,
        bandwidth_bytes_per_s=figures.get("reserved_bytes_per_s", float("inf")),
    )
    return Job(
        key=figures["job"],
        utility=utility,
        total_work=figures["samples"],
        namespace=figures.get("namespace", "default"),
        priority=figures.get("priority", 0),
        min_workers=least,
        max_workers=figures.get("max_workers", least),
        accelerators_per_worker=figures.get("accelerators", 1),
        memory_bytes_per_worker=figures.get("memory_bytes", 0),
        arrived_s=figures.get("arrives_s", 0.0),
        work_per_worker_step=figures.get("samples_per_step", 1.0),
        restart_s=figures.get("restart_s", 0.0),
        watts_per_worker=figures.get("watts", 0.0),
        ring=ring,
    )
