"""`python -m bench checkpoints`: what digest and signature add to saving a state and to resuming from it.

Each state is saved and resumed from several times, in turn with what its parts take alone: writing and reading the
bytes, their SHA-256, signing a manifest. The folder is in memory, so that no disk hides what is added.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from hulk_runtime.checkpoints.fenced_checkpoints import Checkpoints
from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.checkpoints.signing import Owner
from rich.console import Console
from rich.table import Table

from bench.raw import Raw

MIB: Final = 1 << 20
SIZES_MIB: Final = (64, 512, 2048)
NUM_TIMES: Final = 7
MEMORY: Final = "/dev/shm"
SIGNED: Final = Owner.of_job("team/demo", "u-1", bytes(32), trusts_store=False, committed_step=0)


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

    def best_s(self, name: str) -> float:
        """Of the repetition that other programs disturbed least."""
        return min(self.seconds[name])

    def s_per_gb(self, name: str) -> str:
        """Of the best repetition."""
        return f"{1e9 * self.best_s(name) / self.num_bytes:.2f}"


def run(short: bool = False) -> None:
    """Print seconds per GB by size."""
    console, raw = Console(highlight=False, width=120), Raw("checkpoints")
    parts = ("write", "SHA-256", "save", "read", "resume")
    table = Table("state, MiB", *(f"{part}, s/GB" for part in parts), "sign, us", "verify, us")
    for size in SIZES_MIB[: 2 if short else None]:
        raw.add(times := measured(size * MIB))
        signing = (f"{1e6 * times.best_s(name):.0f}" for name in ("sign", "verify"))
        table.add_row(str(size), *map(times.s_per_gb, parts), *signing)
    console.print(table)
    console.print(f"The best of {NUM_TIMES}, in memory. A save signs one object; a resume verifies one and signs two.")


def measured(num_bytes: int, num_times: int = NUM_TIMES) -> Times:
    """What a state of that size takes."""
    state, times = os.urandom(MIB) * (num_bytes // MIB), Times(num_bytes)
    with tempfile.TemporaryDirectory(prefix="hulk-bench-", dir=MEMORY) as folder:
        store, alone = Store(f"file://{folder}/run"), Path(folder, "alone")
        for attempt in range(1, num_times + 1):
            checkpoints = Checkpoints(store, attempt, 1, SIGNED)
            checkpoints.begin()
            times.time("write", partial(alone.write_bytes, state))
            times.time("SHA-256", partial(hashlib.sha256, state))
            times.time("save", partial(checkpoints.commit, attempt, state, {}))
            times.time("read", alone.read_bytes)
            times.time("resume", Checkpoints(store, attempt, 1, SIGNED).begin)
            name = f"latest-{attempt:08d}"
            manifest = store.read(name) or b""
            times.time("sign", partial(SIGNED.signed, name, manifest))
            times.time("verify", partial(SIGNED.fault, name, manifest))
            alone.unlink()
    return times
