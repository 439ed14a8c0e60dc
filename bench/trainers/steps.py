"""A step of scripts over the emulated WAN: by gloo as they are, and instrumented.

Plain torch's, and other projects' training loops at the releases that uv.lock names.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.allreduce import job
from bench.allreduce.case import Case
from bench.allreduce.gang import Gang
from bench.allreduce.rounds import MIB
from bench.conditions import Watch, one_that_counts
from bench.raw import Raw
from bench.trainers.planned import INSTRUMENTED, Planned, planned, with_packages
from bench.verdicts import verdict

NUM_LAYERS, COMPUTE_S = 16, 0.3
KINDS, INSIDE = ("ddp", "hsdp"), "fsdp"
"""INSIDE: hsdp without sums between regions."""
PROGRAMS = ("lightning", "accelerate", "transformers", "peft-lora", "fsdp-tensor")
SCRIPTS = {
    kind: str(Path(__file__).with_name(name))
    for name, kinds in (("script.py", (*KINDS, INSIDE)), ("programs.py", PROGRAMS))
    for kind in kinds
}
GLOO, HULK = "none", "auto"
WAYS = (GLOO, HULK)
"""Of HULK_INSTRUMENTATION."""
CASES = (Case("A", (2, 2, 2)), Case("B", (2, 2, 2)))
LEAST_GAIN, LEAST_GAIN_OF_PROGRAMS = 3.0, 2.0
MAX_ERROR = 1e-5
"""Of the weights' norm: some float32 roundings."""
MOST_OFF = 5.0
"""Per cent of a step, of a prediction."""


@dataclass(frozen=True, slots=True)
class Run:
    """One gang. `step_s`: the median of its steps; `norm`: of its weights in the end."""

    case: str
    kind: str
    way: str
    step_s: float
    norm: float
    valid: bool


def table(console: Console, raw: Raw, short: bool) -> None:
    """One table, then the verdicts."""
    gains, off = dict[tuple[str, str], float | None](), list[float | None]()
    table = Table("script", "network", "gloo s", "instrumented s", "times as fast", "predicted s")
    for case in CASES[1:] if short else CASES:
        with planned(case, NUM_LAYERS * MIB, COMPUTE_S) as up:
            inside = one_that_counts(_once, up, case, INSIDE, GLOO)
            raw.add(inside)
            table.add_row(INSIDE, str(case), f"{inside.step_s:.3g}" if inside.valid else "!", *["-"] * 3)
            plans = {"ddp": up, "hsdp": _sharded(up, case, inside)}
            for kind in KINDS if short or case is not CASES[-1] else (*KINDS, *PROGRAMS):
                runs = [one_that_counts(_once, plans.get(kind, up), case, kind, way) for way in WAYS]
                for each in runs:
                    raw.add(each)
                _require_equal(runs)
                gloo_s, hulk_s = (run.step_s if run.valid else None for run in runs)
                gains[kind, str(case)] = gain = gloo_s / hulk_s if gloo_s and hulk_s else None
                predicted = f"{plans[kind].step_s:.3f}" if kind in plans else "-"
                if kind in plans:
                    counts = hulk_s and (kind == "ddp" or inside.valid)
                    off.append(100 * abs(plans[kind].step_s / hulk_s - 1) if hulk_s and counts else None)
                figures = [f"{figure:.3g}" if figure else "!" for figure in (gloo_s, hulk_s, gain)]
                table.add_row(kind, str(case), *figures, predicted)
    console.print(
        f"{NUM_LAYERS} MiB of gradients, {COMPUTE_S:g} s of compute a step, 6 ranks, 3 regions; {INSIDE}: hsdp without "
        "sums between regions, from which its step is predicted; !: no run counts"
    )
    console.print(table)
    for name, kinds, bound in (("torch alone", KINDS, LEAST_GAIN), ("others", PROGRAMS, LEAST_GAIN_OF_PROGRAMS)):
        found = [gain for (kind, _), gain in gains.items() if kind in kinds]
        if found:
            least = min((gain for gain in found if gain), default=None) if None not in found else None
            console.print(verdict(f"{name}: step by gloo / instrumented, least", least, "at least", bound))
    known = [error for error in off if error is not None]
    most = max(known) if len(known) == len(off) else None
    console.print(verdict("torch alone: % that a prediction is off, most", most, "at most", MOST_OFF))


def _sharded(up: Planned, case: Case, inside: Run) -> Planned:
    """The plan of hsdp, whose step without sums between regions was timed: on processors torch hides no gather."""
    asked = NUM_LAYERS, NUM_LAYERS * MIB
    return up.having(job.sharded(case, *asked, inside.step_s), job.sharded_workload(case, *asked))


def _once(up: Planned, case: Case, kind: str, way: str) -> Run:
    steps, norm, watch = list[float](), 0.0, None
    arguments = (SCRIPTS[kind], kind, str(NUM_LAYERS), str(COMPUTE_S))
    env = {**up.variables, **(with_packages("trainers") if kind in PROGRAMS else {}), "HULK_INSTRUMENTATION": way}
    with Gang(up.net, INSTRUMENTED, *arguments, env=env) as gang:
        for line in gang.lines():
            what, _, figure = line.partition(" ")
            watch = watch or Watch(up.net)
            if what == "step":
                steps.append(float(figure))
            elif what == "norm":
                norm = float(figure)
        gang.wait()
    assert watch is not None
    return Run(str(case), kind, way, statistics.median(steps), norm, watch.conditions().valid)


def _require_equal(runs: Sequence[Run]) -> None:
    norms = [run.norm for run in runs]
    if max(norms) - min(norms) > MAX_ERROR * max(norms):
        raise ValueError(f"the same script came to weights of norms {norms}")
