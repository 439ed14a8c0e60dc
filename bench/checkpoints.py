"""`python -m bench checkpoints`: what digest and signature add to saving a state and to resuming from it.

Each state is saved and resumed from several times, in turn with what its parts take alone: writing and reading the
bytes, their SHA-256, signing a manifest. The folder is on this machine's disk; a save is done when its bytes are there.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hulk_runtime.checkpoints.fenced_checkpoints import Checkpoints
from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.checkpoints.signing import Owner
from rich.console import Console
from rich.table import Table

from bench.raw import Raw

MIB = 1 << 20
SIZES_MIB = (64, 512, 2048)
NUM_TIMES = 7
SIGNED = Owner.of_job("team/demo", "u-1", bytes(32), trusts_store=False, committed_step=0)
CONTENT: dict[str, str | int | float] = {"parameters": 1, "optimizer": "sgd", "lossScale": 1.0}


@dataclass(slots=True)
class Times:
    """Seconds of each repetition, by what was timed."""

    num_bytes: int
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def time(self, name: str, do: Callable[[], object]) -> None:
        """Once more."""
        started_s = time.perf_counter()
        do()
        self.seconds.setdefault(name, []).append(time.perf_counter() - started_s)

    def median_s(self, name: str) -> float:
        """Of all repetitions."""
        return statistics.median(self.seconds[name])

    def rate(self, name: str) -> str:
        """GB/s."""
        return f"{self.num_bytes / self.median_s(name) / 1e9:.2f}"


def run(short: bool = False) -> None:
    """Print GB/s by size, and what is added."""
    console, raw = Console(highlight=False, width=120), Raw("checkpoints")
    table = Table(
        "state, MiB", "write", "SHA-256", "save", "save / write", "read", "resume", "resume / read", "signing, us"
    )
    for size in SIZES_MIB[: 2 if short else None]:
        times = measured(size * MIB)
        raw.add(times)
        added = [f"{times.median_s(whole) / times.median_s(part):.2f}" for whole, part in PAIRS]
        rates = [times.rate(name) for name in ("write", "digest", "save", "read", "resume")]
        signing = f"{1e6 * times.median_s('sign'):.0f}"
        table.add_row(str(size), *rates[:3], added[0], *rates[3:], added[1], signing)
    console.print(table)
    console.print("GB/s, medians. A save writes the state and three small objects; a resume reads two and the state.")


PAIRS = (("save", "write"), ("resume", "read"))


def measured(num_bytes: int, num_times: int = NUM_TIMES) -> Times:
    """What a state of that size takes."""
    state, times = os.urandom(MIB) * (num_bytes // MIB), Times(num_bytes)
    with tempfile.TemporaryDirectory(prefix="hulk-bench-") as folder:
        store, alone = Store(f"file://{folder}/run"), Path(folder, "alone")
        for attempt in range(1, num_times + 1):
            checkpoints = Checkpoints(store, attempt, 1, SIGNED)
            checkpoints.begin()
            times.time("write", partial(_write, alone, state))
            times.time("digest", partial(hashlib.sha256, state))
            times.time("save", partial(checkpoints.commit, attempt, state, CONTENT))
            times.time("read", alone.read_bytes)
            times.time("resume", Checkpoints(store, attempt, 1, SIGNED).begin)
            manifest = store.read(f"latest-{attempt:08d}") or b""
            times.time("sign", partial(SIGNED.signed, "latest", manifest))
    return times


def _write(path: Path, content: bytes) -> None:
    """To the disk, without a digest."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
