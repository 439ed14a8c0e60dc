"""A step of plain torch scripts over the emulated WAN: by gloo as they are, and instrumented, in turn."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hulk_lab.builds.python import build_trainers
from hulk_lab.wan.addresses import LabNetwork
from hulk_placement import wire
from hulk_placement.wire import Meta
from rich.console import Console
from rich.table import Table

from bench.allreduce import job
from bench.allreduce.case import Case
from bench.allreduce.gang import Gang, lab_name, wan
from bench.allreduce.profiles import lab_spec
from bench.allreduce.rounds import MIB
from bench.conditions import TRIES, Watch, wait_for_quiet
from bench.raw import Raw
from bench.verdicts import verdict

SCRIPT, PROGRAMS, INSTRUMENTED = (
    str(Path(__file__).with_name(name)) for name in ("script.py", "programs.py", "instrumented.py")
)
NUM_LAYERS, COMPUTE_S = 16, 0.3
KINDS = ("ddp", "hsdp", "lightning", "accelerate", "transformers", "peft-lora", "fsdp-tensor")
GLOO, HULK = "none", "auto"
WAYS = (HULK, GLOO)
"""Of HULK_INSTRUMENTATION."""
CASES = (Case("A", (2, 2, 2)), Case("B", (2, 2, 2)))
NUM_RUNS = 3
LEAST_GAIN = 3.0
MAX_ERROR = 1e-5
"""Of the weights' norm: some float32 roundings."""


@dataclass(frozen=True, slots=True)
class Run:
    """One gang. `step_s`: the median of its steps; `norm`: of its weights in the end."""

    case: str
    kind: str
    way: str
    step_s: float
    norm: float
    valid: bool


def run(short: bool) -> None:
    """One table, then the verdict."""
    raw, gains = Raw("trainers"), []
    table = Table("script", "network", "gloo s", "instrumented s", "times as fast", "predicted s")
    for case in CASES[1:] if short else CASES:
        with _up(case) as (net, variables, predicted_s):
            for kind in KINDS:
                runs = [_run(net, case, kind, way, variables) for _ in range(1 if short else NUM_RUNS) for way in WAYS]
                for each in runs:
                    raw.add(each)
                gloo_s, hulk_s = (_median_s(runs, way) for way in (GLOO, HULK))
                gains.append(gloo_s / hulk_s if gloo_s and hulk_s else None)
                predicted = f"{predicted_s:.3f}" if kind == "ddp" else "-"
                figures = [f"{figure:.3g}" if figure else "!" for figure in (gloo_s, hulk_s, gains[-1])]
                table.add_row(kind, str(case), *figures, predicted)
    console = Console(highlight=False, width=160)
    console.print(
        f"{NUM_LAYERS} MiB of gradients, {COMPUTE_S:g} s of compute a step, 6 ranks, 3 regions; !: no run counts"
    )
    console.print(table)
    least = None if None in gains else min(gain for gain in gains if gain is not None)
    console.print(verdict("step by gloo / instrumented, least", least, "at least", LEAST_GAIN))


@contextlib.contextmanager
def _up(case: Case) -> Iterator[tuple[LabNetwork, dict[str, str], float]]:
    """The network, what a pod of the planned job finds in its environment, and the predicted step."""
    num_bytes = NUM_LAYERS * MIB
    plan = job.planned(case, num_bytes, COMPUTE_S)
    meta = Meta.of(job.workload(case, num_bytes), operator_version="bench", steps=1)
    with tempfile.TemporaryDirectory() as folder, wan(lab_spec(case.profile, case.counts, lab_name("trainers"))) as net:
        blob, secret = Path(folder, "plan.json.gz"), Path(folder, "secret")
        blob.write_bytes(wire.encode(plan, meta))
        secret.write_bytes(os.urandom(32))
        yield net, {"HULK_PLAN": str(blob), "HULK_PEER_SECRET": str(secret)}, plan.prediction.step_s


def _run(net: LabNetwork, case: Case, kind: str, way: str, variables: Mapping[str, str]) -> Run:
    """One that counts, or the last of some that do not."""
    for attempt in range(TRIES):
        if attempt:
            wait_for_quiet()
        found = _once(net, case, kind, way, variables)
        if found.valid:
            break
    return found


def _once(net: LabNetwork, case: Case, kind: str, way: str, variables: Mapping[str, str]) -> Run:
    steps, norm, watch = list[float](), 0.0, None
    arguments = (SCRIPT if kind in ("ddp", "hsdp") else PROGRAMS, kind, str(NUM_LAYERS), str(COMPUTE_S))
    with Gang(net, INSTRUMENTED, *arguments, env={**variables, **packages(), "HULK_INSTRUMENTATION": way}) as gang:
        for line in gang.lines():
            what, _, figure = line.partition(" ")
            watch = watch or Watch(net)
            if what == "step":
                steps.append(float(figure))
            elif what == "norm":
                norm = float(figure)
        gang.wait()
    assert watch is not None
    return Run(str(case), kind, way, statistics.median(steps), norm, watch.conditions().valid)


def packages() -> dict[str, str]:
    """Where other projects' packages are found."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(build_trainers()))))}


def _median_s(runs: Sequence[Run], way: str) -> float | None:
    """Of the runs that count; all must have come to the same weights."""
    norms = [run.norm for run in runs]
    if max(norms) - min(norms) > MAX_ERROR * max(norms):
        raise ValueError(f"the same script came to weights of norms {norms}")
    counting = [run.step_s for run in runs if run.way == way and run.valid]
    return statistics.median(counting) if counting else None
