"""A step of scripts over the emulated WAN: by gloo as they are, and instrumented.

Plain torch's, and other projects' training loops at the releases that uv.lock names. Each runs by the plan of a job of
its own, whose prediction stands beside what was measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hulk_placement.plan import Plan
from hulk_placement.workload import Workload
from rich.console import Console
from rich.table import Table

from bench.allreduce import job
from bench.allreduce.case import Case
from bench.allreduce.gang import Gang
from bench.allreduce.rounds import MIB
from bench.conditions import Watch, one_that_counts
from bench.raw import Raw
from bench.trainers.planned import INSTRUMENTED, MOST_OFF, Planned, off, planned, with_packages
from bench.trainers.programs import LORA_BYTES
from bench.verdicts import verdict

NUM_LAYERS, COMPUTE_S = 16, 0.3
KINDS: tuple[str, ...] = ("ddp", "hsdp")
PROGRAMS: tuple[str, ...] = ("lightning", "accelerate", "transformers", "peft-lora", "fsdp-tensor")
INSIDE = {"hsdp": "fsdp", "fsdp-tensor": "tensor"}
"""The same without sums between regions."""
SCRIPTS = {
    kind: str(Path(__file__).with_name(name))
    for name, kinds in (("script.py", (*KINDS, "fsdp")), ("programs.py", (*PROGRAMS, "tensor")))
    for kind in kinds
}
GLOO, HULK = "none", "auto"
WAYS = (GLOO, HULK)
"""Of HULK_INSTRUMENTATION."""
CASES = (Case("A", (2, 2, 2)), Case("B", (2, 2, 2)))
LEAST_GAIN, LEAST_GAIN_OF_PROGRAMS = 3.0, 2.0
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


def table(console: Console, raw: Raw, short: bool) -> None:
    """One table, then the verdicts."""
    gains, errors = dict[tuple[str, str], float | None](), list[float | None]()
    table = Table("script", "network", "gloo s", "instrumented s", "times as fast", "predicted s", "off")
    for case in CASES[1:] if short else CASES:
        kinds = KINDS if short or case is not CASES[-1] else KINDS + PROGRAMS
        with planned(case, NUM_LAYERS * MIB, COMPUTE_S) as up:
            inside = {kind: one_that_counts(_once, up, case, INSIDE[kind], GLOO) for kind in kinds if kind in INSIDE}
            for each in inside.values():
                raw.add(each)
                table.add_row(each.kind, str(case), f"{each.step_s:.3g}" if each.valid else "!", *["-"] * 4)
            for kind in kinds:
                own = up.having(*job_of(case, kind, inside[kind].step_s if kind in inside else COMPUTE_S))
                runs = [one_that_counts(_once, own, case, kind, way) for way in WAYS]
                for each in runs:
                    raw.add(each, predicted_s=own.step_s)
                _require_equal(runs)
                gloo_s, hulk_s = (run.step_s if run.valid else None for run in runs)
                gains[kind, str(case)] = gain = gloo_s / hulk_s if gloo_s and hulk_s else None
                counts = kind not in inside or inside[kind].valid
                error = off(own.step_s, hulk_s) if hulk_s and counts else None
                errors.append(error)
                figures = [f"{figure:.3g}" if figure else "!" for figure in (gloo_s, hulk_s, gain)]
                table.add_row(
                    kind, str(case), *figures, f"{own.step_s:.3f}", "!" if error is None else f"{error:+.1f} %"
                )
    console.print(
        f"{NUM_LAYERS} MiB of gradients, {COMPUTE_S:g} s of compute a step, 6 ranks, 3 regions; "
        f"{', '.join(INSIDE.values())}: {', '.join(INSIDE)} without sums between regions, from which their steps are "
        "predicted; !: no run counts"
    )
    console.print(table)
    for name, kinds, bound in (("torch alone", KINDS, LEAST_GAIN), ("others", PROGRAMS, LEAST_GAIN_OF_PROGRAMS)):
        found = [gain for (kind, _), gain in gains.items() if kind in kinds]
        if found:
            least = min((gain for gain in found if gain), default=None) if None not in found else None
            console.print(verdict(f"{name}: step by gloo / instrumented, least", least, "at least", bound))
    known = [abs(error) for error in errors if error is not None]
    most = max(known) if len(known) == len(errors) else None
    console.print(verdict("% that a prediction is off, most", most, "at most", MOST_OFF))


def job_of(case: Case, kind: str, compute_s: float) -> tuple[Plan, Workload]:
    """A program's plan, and what the planner knows of it; `compute_s` of a step without sums between regions.

    All sum what ddp sums, but for LoRA's adapters and where a replica is divided among its region's ranks: such a
    step's `compute_s` is timed, as torch hides no gather and no sum inside on processors. The map of used parameters
    that transformers' Trainer sums begins beside the last bucket and ends before it: it takes nothing.
    """
    if kind in INSIDE:
        asked, is_tensor = (NUM_LAYERS, NUM_LAYERS * MIB), kind == "fsdp-tensor"
        plan = job.divided(case, *asked, compute_s, is_tensor=is_tensor)
        return plan, job.divided_workload(case, *asked, is_tensor=is_tensor)
    num_bytes = NUM_LAYERS * (LORA_BYTES if kind == "peft-lora" else MIB)
    return job.planned(case, num_bytes, compute_s), job.workload(case, num_bytes)


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
