"""What `hulk plan` prints fits one screen; `--details` shows the rest."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hulk_operator.cli import plan_screen, tables
from hulk_operator.cli.app import app
from hulk_operator.cli.output import plain
from hulk_operator.cli.reports import PlanReport, PlanReports, PredictionRow, WorkerRow
from rich.console import RenderableType
from typer.testing import CliRunner

EXAMPLES = Path(__file__).parents[2] / "examples"


def planned(job: str = "a/b", *, calibrated: bool = True, workers: int = 200) -> PlanReport:
    rows = tuple(
        WorkerRow(worker=n, node=f"node-{n}", region=f"region-{n % 20}", accelerators=8, sequences=1)
        for n in range(workers)
    )
    found = PredictionRow(
        step_microseconds=2_250_000,
        compute_microseconds=2_000_000,
        communication_microseconds=250_000,
        calibrated=calibrated,
    )
    return PlanReport(
        job=job, planned=True, algorithm="ring", prediction=found, workers=rows, optimality_gap="0.9990",
        why=tuple("a reason with many words " * 30 for _ in range(9)),
    )  # fmt: skip


@pytest.mark.parametrize("num_jobs", [1, 2, 100])
def test_plans_fit_one_screen(num_jobs: int) -> None:
    report = PlanReports(jobs=tuple(planned(f"team/{'long' * 10}-{n}") for n in range(num_jobs)))
    lines = plain(plan_screen.plans(report)).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120
    assert any("2.25 s" in line for line in lines)


@pytest.mark.parametrize("people", [plan_screen.plans, tables.plans])
def test_assumed_speeds_prove_nothing(people: Callable[[PlanReports], RenderableType]) -> None:
    printed = plain(people(PlanReports(jobs=(planned(calibrated=False),))))
    assert "not proven: speeds are assumed until the preflight" in printed
    assert "from the best" not in printed
    assert "at most 99.9 % from the best" in plain(people(PlanReports(jobs=(planned(),))))


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        (("hulkjob.yaml",), ("bottleneck", "WORKERS", "ap-south", "why")),
        (("stages.yaml",), ("STAGE", "LAYERS", "bottleneck")),
        (("hulkjob.yaml", "plain-torch.yaml"), ("JOB", "BOTTLENECK")),
    ],
)
def test_examples_fit_one_screen_and_details_show_memory(files: tuple[str, ...], shown: tuple[str, ...]) -> None:
    jobs = [word for name in files for word in ("-f", str(EXAMPLES / name))]
    command = ["plan", *jobs, "-t", str(EXAMPLES / "topology.yaml")]
    lines = CliRunner().invoke(app, command).stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120
    assert all(any(word in line for line in lines) for word in shown)
    assert not any("MEMORY OF ONE" in line for line in lines)
    assert any("SEQUENCES" in line for line in lines) == (files == ("hulkjob.yaml",))  # each stage has all of them
    assert "MEMORY OF ONE ACCELERATOR" in CliRunner().invoke(app, [*command, "--details"]).stdout
