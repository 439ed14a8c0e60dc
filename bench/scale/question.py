"""`python -m bench scale`: how the operator grows with nodes, pods of others, and jobs.

One operator as a process of its own, against the lab's API server as far as that carries the cluster on this machine,
and beyond that against the stub (`bench.scale.stub`). The size that both carry shows how alike they are. What the
operator asks is counted by the server, or by a gateway before it; lags and passes it tells itself; how often workers
are asked, the workers tell. See `bench.scale.phases` for what is done.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping
from typing import Final

from rich.console import Console

from bench import raw
from bench.api_server import connect
from bench.raw import Raw
from bench.scale import clusters
from bench.scale.clusters import Size
from bench.scale.curve import curve, requests, verdicts
from bench.scale.measured import Span
from bench.scale.phases import SHORT, Phases, Times
from bench.scale.supervised import supervised

SIZES: Final = (
    Size(500, 2_500, 50, "real"),
    Size(500, 2_500, 50),
    Size(2_000, 10_000, 200),
    Size(5_000, 25_000, 500),
)
SHORT_SIZES: Final = SIZES[1:2]


def run(short: bool) -> None:
    """Measure, print the growth curve, requests by verb and kind, and the verdicts."""
    console, rows = Console(highlight=False, width=150), Raw("scale")
    found = {
        size: measure(size, SHORT if short else Times(), console, rows) for size in (SHORT_SIZES if short else SIZES)
    }
    console.print(curve(found))
    for phase in ("start", "burst", "window"):
        console.print(requests(found, phase))
    console.print("\n".join(verdicts(found)), markup=False)


def measure(size: Size, times: Times, console: Console, rows: Raw) -> Mapping[str, Span]:
    """All phases of one size by name; logs stay in a folder beside the raw rows."""
    folder, begun_s = raw.FOLDER / f"scale-{size.num_nodes}-{size.server}", time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def tell(span: Span) -> None:
        rows.add(span, size=str(size))
        console.print(f"{size}, {time.monotonic() - begun_s:.0f} s: {span.phase} {span.values}", markup=False)

    async def phases() -> list[Span]:
        async with connect(cluster.other) as bare:
            return await Phases(cluster, operator, bare, times, tell).run()

    with clusters.opened(size, folder) as cluster, supervised(cluster.metered, folder / "operator.log") as operator:
        return {span.phase: span for span in asyncio.run(phases())}
