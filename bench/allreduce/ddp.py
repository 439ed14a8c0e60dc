"""DDP step times over the emulated WAN: gloo with torch's buckets, gloo with two, Hulk's own by a hook with two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console

from bench.allreduce import case as cases
from bench.allreduce import ours
from bench.allreduce.answers import table
from bench.allreduce.case import Case, Spec
from bench.allreduce.gloo_orders import best_order
from bench.allreduce.rounds import MIB, Band, Timed, time_in_turn
from bench.raw import Raw

NUM_LAYERS = (8, 32)
"""8.4 and 33.6 MB of gradients."""
NUM_BUCKETS = 2


def run(chosen: Iterable[Case], num_layers: Sequence[int], num_runs: int) -> None:
    """One table a case."""
    console, raw = Console(highlight=False, width=160), Raw("allreduce-ddp")
    for case in chosen:
        with cases.band(case) as band:
            rows = [time_steps(case, band, count, num_runs) for count in num_layers]
        for timed in (timed for row in rows for timed in row):
            raw.add(timed, case=str(case))
        console.print(table(f"{case}: seconds of a DDP step by MiB of gradients; !: no run counts", rows))


def time_steps(case: Case, band: Band, num_layers: int, num_runs: int) -> list[Timed]:
    """All ways in turn on one model."""
    num_bytes = num_layers * MIB
    bucket_bytes = num_bytes // NUM_BUCKETS
    gloo = {"kind": "gloo", "num_layers": num_layers, "order": best_order(case.regions, case.links, bucket_bytes)}
    few = {**gloo, "cap_mb": num_layers // NUM_BUCKETS}
    method = ours.method(case.regions, case.links, [bucket_bytes])
    specs: dict[str, Spec] = {
        "gloo, torch's buckets": {**gloo, "cap_mb": None},
        f"gloo, {NUM_BUCKETS} buckets": few,
        f"{cases.OURS}, {NUM_BUCKETS} buckets": {**few, "kind": "wan", "method": method},
    }
    keys = {label: cases.key_of(spec) for label, spec in specs.items()}
    for label, spec in specs.items():
        band.make_steps(keys[label], spec)
    timed = time_in_turn(keys, num_bytes, num_runs, band.step)
    for key in keys.values():
        band.close_steps(key)
    return timed
