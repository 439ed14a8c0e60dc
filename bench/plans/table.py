"""The recorded table: what was planned for each case, and by which commit."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from hulk_placement.cost.money import judged
from hulk_placement.solve import solve

from bench.plans.cases import Question

RECORDED = Path(__file__).parent / "recorded.json"


@dataclass(frozen=True, slots=True)
class Row:
    """A case's answer: geometric means over its jobs; infinite where one has no plan.

    `step_s`: the predicted step. `cost`: what the plan was judged by, a step's seconds or its price. `cpu_s`: processor
    seconds of the one process that planned.
    """

    group: str
    name: str
    step_s: float
    cost: float
    is_proven: bool
    cpu_s: float
    layouts: str


def answered(question: Question) -> Row:
    """Plan a case."""
    asked = question.draw()
    started_s = time.process_time()
    starts = {plan.key: plan for plan in asked.running}
    found = solve(asked.jobs, [], asked.topology, asked.budget, time.process_time, starts)
    cpu_s = time.process_time() - started_s
    if len(found.plans) < len(asked.jobs):
        reasons = ", ".join(unplaced.reason for unplaced in found.unplaced.values())
        return Row(question.group, question.name, math.inf, math.inf, False, cpu_s, reasons)
    plans = [(found.plans[job.key], job) for job in asked.jobs]
    steps = [plan.prediction.step_s for plan, _ in plans]
    return Row(
        question.group,
        question.name,
        _geometric_mean(steps),
        _geometric_mean([judged(plan, job) for plan, job in plans]),
        all(plan.optimality_gap == 0.0 for plan, _ in plans),
        cpu_s,
        " + ".join(f"{p.layout.data}x{p.layout.pipeline}x{p.layout.tensor} {p.algorithm}" for p, _ in plans),
    )


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def read(path: Path = RECORDED) -> tuple[str, dict[str, Row]]:
    """The commit, and the rows by group and name."""
    table = json.loads(path.read_text())
    return table["commit"], {f"{row['group']}: {row['name']}": Row(**row) for row in table["rows"]}


def write(rows: list[Row], commit: str, path: Path = RECORDED) -> None:
    """A line a row."""
    lines = ",\n".join("  " + json.dumps(asdict(row)) for row in rows)
    path.write_text(f'{{"commit": {json.dumps(commit)}, "rows": [\n{lines}\n]}}\n')
