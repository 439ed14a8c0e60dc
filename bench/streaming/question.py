"""A step of each way to come together over three regions with slow links, predicted beside measured."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hulk_lab.wan.addresses import LabNetwork
from hulk_placement import wire
from hulk_placement.plan import Plan
from rich.console import Console
from rich.table import Table

from bench.allreduce.gang import Gang, lab_name, wan
from bench.conditions import Watch, one_that_counts
from bench.raw import Raw
from bench.streaming import plans
from bench.trainers.planned import INSTRUMENTED
from bench.verdicts import verdict

SCRIPT = Path(__file__).with_name("script.py")
EVERY, ONE_PIECE, *STREAMING = plans.MODES
MOST_SYNCHRONOUS, LEAST_STREAMING, MAX_ERROR = 0.2, 0.95, 0.05
WARM_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Run:
    """One gang of a mode. `step_s`: the mean of its timed steps; `sent_bytes`: of rank 0, in each.

    `busy_share`: of the processors, with what other programs had.
    """

    mode: str
    step_s: float
    sent_bytes: float
    compute_s: float
    predicted_s: float
    valid: bool
    busy_share: float

    @property
    def utilisation(self) -> float:
        """The part of a step that one takes without any sum."""
        return self.compute_s / self.step_s

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.step_s - 1


@dataclass(frozen=True, slots=True)
class Gauge:
    """What a gang runs; without a plan its ranks compute and sum nothing."""

    mode: str = "alone"
    plan: Plan | None = None
    compute_s: float = plans.COMPUTE_S

    def kind(self) -> str:
        """As the script calls it."""
        return "alone" if self.plan is None else "apart" if self.plan.inner_steps else "every"

    def num_steps(self, num_rounds: int) -> tuple[int, int]:
        """To warm up, and timed."""
        inner = self.plan.inner_steps if self.plan else None
        return (WARM_ROUNDS * inner, num_rounds * inner) if inner else (4, 5 * num_rounds)


def run(short: bool) -> None:
    """One table, then the verdicts."""
    console, raw = Console(highlight=False, width=160), Raw("streaming")
    table = Table("", "fragments", "delay", "s a step", "predicted", "error", "utilisation", "kB a step", "busy")
    runs: dict[str, Run] = {}
    with tempfile.TemporaryDirectory() as folder, wan(plans.lab(lab_name("streaming"))) as net:
        secret = Path(folder, "secret")
        secret.write_bytes(os.urandom(32))
        compute_s = _once(net, Gauge(), {}, short).step_s
        made = {mode: plans.planned(sync, compute_s) for mode, sync in plans.MODES.items()}
        chosen, _ = plans.planned(plans.CHOSEN, compute_s)
        for mode, (plan, meta) in made.items():
            blob = Path(folder, "plan.json.gz")
            blob.write_bytes(wire.encode(plan, meta))
            asked = Gauge(mode, plan, compute_s)
            found = one_that_counts(_once, net, asked, {"HULK_PLAN": str(blob), "HULK_PEER_SECRET": str(secret)}, short)
            raw.add(found)
            runs[mode] = found
            figures = [f"{found.step_s:.3f}", f"{found.predicted_s:.3f}", f"{found.error:+.1%}"]
            figures += [f"{found.utilisation:.1%}", f"{found.sent_bytes / 1e3:,.0f}", f"{found.busy_share:.0%}"]
            rounds = [str(plan.fragments), str(plan.delay_steps)] if plan.inner_steps else ["", ""]
            table.add_row(mode + ("" if found.valid else " !"), *rounds, *figures)
    console.print(
        f"{plans.NUM_LAYERS} MiB of parameters, {compute_s:.3f} s of compute a step, rounds of {plans.INNER_STEPS} "
        f"steps, {len(plans.REGIONS)} regions of one rank, links of {plans.MBIT_PER_S:g} Mbit/s; !: does not count"
    )
    console.print(table)
    console.print(next(said for said in chosen.why if said.startswith("Replicas wait")))
    _judge(console, runs, made, chosen)


def _judge(console: Console, runs: Mapping[str, Run], made: Mapping[str, tuple[Plan, object]], chosen: Plan) -> None:
    assert chosen.collective is not None
    mode = next(m for m in STREAMING if _compression(made[m][0]) == chosen.collective.compression)
    figures = {m: run for m, run in runs.items() if run.valid}
    console.print(f"left to it, the planner takes: {mode}")
    synchronous, streaming = figures.get(EVERY), figures.get(mode)
    console.print(verdict("utilisation, every step", _of(synchronous), "below", MOST_SYNCHRONOUS))
    console.print(verdict("utilisation, as the planner chose", _of(streaming), "at least", LEAST_STREAMING))
    worst = max((abs(run.error) for run in figures.values()), default=None)
    console.print(verdict("prediction, largest error", worst, "at most", MAX_ERROR))


def _compression(plan: Plan) -> str:
    return "none" if plan.collective is None else plan.collective.compression


def _of(run: Run | None) -> float | None:
    return None if run is None else run.utilisation


def _once(net: LabNetwork, asked: Gauge, variables: Mapping[str, str], short: bool) -> Run:
    figures, watch, conditions = dict[str, float](), None, None
    steps = asked.num_steps(2 if short else 6)
    arguments = (asked.kind(), *map(str, (plans.NUM_LAYERS, plans.WIDTH, plans.COMPUTE_S, *steps)))
    with Gang(net, INSTRUMENTED, str(SCRIPT), *arguments, env={**variables, "HULK_INSTRUMENTATION": "auto"}) as gang:
        for line in gang.lines():
            what, _, figure = line.partition(" ")
            if what == "begin":
                watch = Watch(net)
            elif what in ("step", "sent"):
                figures[what] = float(figure)
                if watch is not None and conditions is None:
                    conditions = watch.conditions()
        gang.wait()
    assert conditions is not None
    predicted_s = asked.plan.prediction.step_s if asked.plan else asked.compute_s
    return Run(
        mode=asked.mode,
        step_s=figures["step"],
        sent_bytes=figures["sent"],
        compute_s=asked.compute_s,
        predicted_s=predicted_s,
        valid=conditions.valid,
        busy_share=conditions.busy_share,
    )
