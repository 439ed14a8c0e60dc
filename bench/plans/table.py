"""The recorded table: what was planned for each case, and by which commit."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hulk_placement import wire
from hulk_placement.cost.foresee import foresee
from hulk_placement.cost.memory import fits
from hulk_placement.cost.money import judged
from hulk_placement.plan import Plan
from hulk_placement.solve import solve

from bench.plans.cases import Asked, Question

RECORDED = Path(__file__).parent / "recorded.json"


@dataclass(frozen=True, slots=True)
class Row:
    """A case's answer: its jobs' plans in their order (base64 of `wire`'s bytes), none where one job has no plan.

    `cpu_s`: processor seconds of the one process that planned.
    """

    group: str
    name: str
    is_proven: bool
    cpu_s: float
    layouts: str
    plans: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Price:
    """What a case's plans cost by today's predictor, the geometric mean over jobs: seconds of a step, or its price.

    Infinite where a job has no plan. `fits`: whether today's memory estimate lets them run.
    """

    cost: float
    fits: bool


def answered(question: Question, asked: Asked) -> Row:
    """Plan a case that was drawn."""
    started_s = time.process_time()
    starts = {plan.key: plan for plan in asked.running}
    found = solve(asked.jobs, [], asked.topology, asked.budget, time.process_time, starts)
    cpu_s = time.process_time() - started_s
    if len(found.plans) < len(asked.jobs):
        reasons = ", ".join(unplaced.reason for unplaced in found.unplaced.values())
        return Row(question.group, question.name, False, cpu_s, reasons, ())
    return row_of(question, asked, [found.plans[job.key] for job in asked.jobs], cpu_s)


def row_of(question: Question, asked: Asked, plans: Sequence[Plan], cpu_s: float) -> Row:
    """The row of plans that were found."""
    metas = [wire.Meta.of(job, operator_version="", steps=1) for job in asked.jobs]
    blobs = [wire.encode(plan, meta) for plan, meta in zip(plans, metas, strict=True)]
    return Row(
        question.group,
        question.name,
        all(plan.optimality_gap == 0.0 for plan in plans),
        cpu_s,
        " + ".join(f"{p.layout.data}x{p.layout.pipeline}x{p.layout.tensor} {p.algorithm}" for p in plans),
        tuple(base64.b64encode(blob).decode() for blob in blobs),
    )


def priced(row: Row, asked: Asked) -> Price:
    """What the plans cost by today's predictor, whichever planner found them."""
    if not row.plans:
        return Price(math.inf, True)
    costs, is_room = [], True
    for text, job in zip(row.plans, asked.jobs, strict=True):
        plan, _ = wire.decode(base64.b64decode(text))
        plan = replace(plan, prediction=foresee(plan, job, asked.topology))
        costs.append(judged(plan, job))
        is_room = is_room and fits(plan, job, asked.topology)
    return Price(math.exp(sum(map(math.log, costs)) / len(costs)), is_room)


def read(path: Path = RECORDED) -> tuple[str, dict[str, Row]]:
    """The commit, and the rows by group and name."""
    table = json.loads(path.read_text())
    rows = [Row(**{**row, "plans": tuple(row["plans"])}) for row in table["rows"]]
    return table["commit"], {f"{row.group}: {row.name}": row for row in rows}


def write(rows: list[Row], commit: str, path: Path = RECORDED) -> None:
    """A line a row."""
    lines = ",\n".join("  " + json.dumps(asdict(row)) for row in rows)
    path.write_text(f'{{"commit": {json.dumps(commit)}, "rows": [\n{lines}\n]}}\n')
