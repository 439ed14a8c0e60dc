"""`python -m bench scale`: how the operator grows with nodes, pods of others, and jobs.

One operator as a process of its own, against the lab's API server as far as that carries the cluster on this machine,
and beyond that against the stub (`bench.scale.stub`). The size that both carry shows how alike they are. What the
operator asks is counted by the server, or by a gateway before it; lags and passes it tells itself; how often workers
are asked, the workers tell. See `bench.scale.phases` for what is done.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench import raw
from bench.api_server import connect
from bench.raw import Raw
from bench.scale import clusters
from bench.scale.clusters import Size
from bench.scale.curve import Spans, curve, requests, verdicts
from bench.scale.measured import Span
from bench.scale.phases import SHORT, Phases, Times
from bench.scale.supervised import supervised

QUESTION: Final = "scale"
SIZES: Final = (
    Size(500, 2_500, 50, "real"),
    Size(500, 2_500, 50, "stub"),
    Size(2_000, 10_000, 200, "stub"),
    Size(5_000, 25_000, 500, "stub"),
)
SHORT_SIZES: Final = SIZES[1:2]
SHOWN: Final = ("start", "burst", "window")
"""Phases whose requests are printed by verb and kind."""


def run(short: bool) -> None:
    """Measure, print the growth curve, requests by verb and kind, and the verdicts."""
    rows = Raw(QUESTION)
    sizes, times = (SHORT_SIZES, SHORT) if short else (SIZES, Times())
    for size in sizes:
        measure(size, times, rows)
    show(read(rows.path))


def show(found: dict[Size, Spans]) -> None:
    """Print what is known of the sizes that are measured whole."""
    console = Console(highlight=False, width=150)
    console.print(curve(found))
    for phase in SHOWN:
        console.print(requests(found, phase))
    console.print("\n".join(verdicts(found)), markup=False)


def measure(size: Size, times: Times, rows: Raw) -> None:
    """All phases of one size; logs stay in a folder beside the raw rows."""
    folder, begun_s = raw.FOLDER / f"{QUESTION}-{size.num_nodes}-{size.server}", time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    console = Console(highlight=False, width=150)

    def tell(span: Span) -> None:
        rows.add(span, nodes=size.num_nodes, pods=size.num_pods, running=size.num_running, server=size.server)
        console.print(f"{size}, {time.monotonic() - begun_s:.0f} s: {span.phase} {span.values}", markup=False)

    async def phases() -> None:
        async with connect(cluster.other) as bare:
            await Phases(cluster, operator, bare, times, tell).run()

    with clusters.opened(size, folder) as cluster, supervised(cluster.metered, folder / "operator.log") as operator:
        asyncio.run(phases())


def read(path: Path) -> dict[Size, Spans]:
    """The spans of each size in a file of raw rows; the last one of a phase counts."""
    found: dict[Size, dict[str, Span]] = {}
    for line in path.read_text().splitlines():
        row: dict[str, Any] = json.loads(line)
        size = Size(*(row.pop(name) for name in ("nodes", "pods", "running", "server")))
        found.setdefault(size, {})[row["phase"]] = Span(**row)
    return {size: found[size] for size in sorted(found, key=lambda size: (size.num_nodes, size.server))}


def only(names: Sequence[str]) -> list[Size]:
    """The sizes of these names: `500-real`, `5000-stub`."""
    return [size for size in SIZES if f"{size.num_nodes}-{size.server}" in names]
