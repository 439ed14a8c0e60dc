"""`python -m bench.diloco.question [--model 10m] [--steps 2000] [--seeds 3] [--outer]`: one table of losses.

Every rank is a process with one thread, and a replica; sums are gloo's. All modes read the same sequences: a replica
has a part of the batch of every step. The learning rate rises and falls as a cosine. Rows that build/bench has are not
trained again, so that a run that was broken off goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean

from hulk_lab.builds.python import build_packages
from rich.console import Console
from rich.table import Table

from bench.diloco.modes import MODES, OUTER, TRAINED, Mode, Trained
from bench.raw import Raw

NO_BREAK = "\N{NO-BREAK SPACE}"
LOOKS = (0.1, 0.25, 0.5, 1.0)
"""Of all steps."""


@dataclass(frozen=True, slots=True)
class Run:
    """One training; `losses` after so many steps, by their number as text."""

    trained: str
    mode: Mode
    seed: int
    num_steps: int
    losses: dict[str, float]
    seconds: float
    num_values: int
    of: dict[str, object]
    """What was trained."""


def run(short: bool) -> None:
    """As `python -m bench diloco`."""
    if short:
        table("small", 100, 1, MODES)
    else:
        for name in ("10m", "llama"):
            table(name, 2000, 3, MODES)


def table(name: str, num_steps: int, num_seeds: int, modes: Sequence[Mode]) -> None:
    """Train what is missing, and print."""
    console, raw, trained = Console(highlight=False, width=140), Raw("diloco", fresh=False), TRAINED[name]
    looks = [round(part * num_steps) for part in LOOKS]
    known = {(row.trained, row.mode, row.seed, row.num_steps): row for row in _read(raw) if row.of == asdict(trained)}
    for seed in range(num_seeds):
        for mode in modes:
            if (name, mode, seed, num_steps) not in known:
                row = _train(trained, mode, seed, looks)
                raw.add(row)
                known[name, mode, seed, num_steps] = row
    rows = {mode: [known[name, mode, seed, num_steps] for seed in range(num_seeds)] for mode in modes}
    console.print(
        f"{trained.says}, {rows[modes[0]][0].num_values / 1e6:.2f} M parameters, {trained.num_ranks} replicas x "
        f"{trained.share} sequences of {trained.model.sequence_length} bytes a step, AdamW {trained.learning_rate:g}, "
        f"{num_seeds} orders of the data"
    )
    console.print("loss in nats per byte on other text; kB a rank sends a step; seconds with all ranks on this machine")
    console.print(_table(rows, trained, looks))


def _table(rows: dict[Mode, list[Run]], trained: Trained, looks: list[int]) -> Table:
    """Means over the seeds; beside the first row: the mean of what the same seeds differ by, and the most of it."""
    found = Table("mode", "kB a step", *[f"{step:,}" for step in looks], "beside", "from", "to", "s a step")
    last, first = str(looks[-1]), next(iter(rows.values()))
    for mode, runs in rows.items():
        beside = [one.losses[last] - every.losses[last] for one, every in zip(runs, first, strict=True)]
        found.add_row(
            mode.name.replace(" ", NO_BREAK),
            f"{mode.sent_bytes(runs[0].num_values, trained.num_ranks, looks[-1]) / 1e3:.1f}",
            *[f"{mean(one.losses[str(step)] for one in runs):.3f}" for step in looks],
            *[f"{value:+.3f}" for value in (mean(beside), min(beside), max(beside))],
            f"{mean(one.seconds for one in runs) / looks[-1]:.3f}",
        )
    return found


def _train(trained: Trained, mode: Mode, seed: int, looks: list[int]) -> Run:
    order = json.dumps({"trained": trained.name, "mode": asdict(mode), "seed": seed, "looks": looks})
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(trained.num_ranks)}
    if trained.is_llama:
        shared["PYTHONPATH"] = os.pathsep.join(
            filter(None, (os.environ.get("PYTHONPATH"), str(build_packages("trainers"))))
        )
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.diloco.rank", order],
            env={**os.environ, **shared, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(trained.num_ranks)
    ]
    said = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError(f"{mode.name}: ranks ended with {[rank.returncode for rank in ranks]}")
    found = json.loads(said[0].splitlines()[-1])
    return Run(trained.name, mode, seed, looks[-1], **found, of=asdict(trained))


def _read(raw: Raw) -> list[Run]:
    rows = [json.loads(line) for line in raw.path.read_text().splitlines()]
    return [Run(**{**row, "mode": Mode(**row["mode"])}) for row in rows if "of" in row]


def main() -> None:
    """The table, of any length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=TRAINED, default="10m")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--outer", action="store_true", help="outer steps and inner rates in place of fragments")
    options = parser.parse_args()
    modes = (*MODES[:3], *OUTER) if options.outer else MODES
    table(options.model, options.steps, options.seeds, modes)


if __name__ == "__main__":
    main()
