"""`hulk plan --advise` and `--html`, and what plans and predictions print of memory, layers, money and advice."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hulk_operator.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "planner"
FILES = ("-t", EXAMPLES / "topology.yaml", "-w", EXAMPLES / "workload.yaml")
JOB, HULK_TOPOLOGY = ROOT / "examples" / "hulkjob.yaml", ROOT / "examples" / "topology.yaml"
Hulk = Any


@pytest.fixture
def hulk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hulk:
    """hulk(arguments...) -> (exit code or message, standard output, standard error)."""
    monkeypatch.setenv("KUBECONFIG", "/does/not/exist")

    def call(*arguments: object) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["hulk", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        return caught.value.code, printed.out, printed.err

    return call


def test_advice_is_a_table_and_a_page(hulk: Hulk, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    options = ("--advise", "--seconds", "0.05", "--html", page)
    code, printed, notes = hulk("plan", "-f", JOB, "-t", HULK_TOPOLOGY, *options, "--details")
    assert code == 0
    for heading in ("THE STEP GOES TO", "STAGE  LAYERS", "MEMORY OF ONE", "LINK ", "COSTS", "ONE CHANGE"):
        assert heading in printed
    assert f"wrote {page}" in notes
    text = page.read_text(encoding="utf-8")
    assert "would help most" in text
    assert "default/demo" in text


def test_a_prediction_says_what_each_machine_holds_and_what_would_help(hulk: Hulk, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    plan = EXAMPLES / "plan.yaml"
    _, printed, _ = hulk("predict", *FILES, "-p", plan, "-o", "json", "--html", page)
    found = json.loads(printed)
    details = found["details"]
    assert max(row["totalBytes"] for row in details["memory"]) == found["memoryBytes"]
    assert all(row["fits"] and row["missingBytes"] == 0 for row in details["memory"])
    assert sum(row["microseconds"] for row in details["step"]) == pytest.approx(found["stepMicroseconds"], abs=5)
    assert [(row["firstLayer"], row["lastLayer"]) for row in details["stages"]] == [(0, 26), (27, 49)]
    assert details["stages"][0]["pins"] == ["layer 0 to frankfurt"]
    assert details["price"]["perStep"] == found["pricePerStep"]
    shares = [row["share"] for row in details["advice"]["rows"]]
    assert shares == sorted(shares, reverse=True)
    assert "optimalityGap" not in details  # nobody searched
    text = page.read_text(encoding="utf-8")
    assert "Regions by their coordinates" in text  # those of the topology file
    _, table, _ = hulk("predict", *FILES, "-p", plan)
    assert "layer 0 to frankfurt" in table


def test_too_little_memory_is_said_with_what_is_missing(hulk: Hulk, tmp_path: Path) -> None:
    small = (
        (EXAMPLES / "topology.yaml").read_text().replace("accelerators: 4", "accelerators: 4\n    memoryGigabytes: 16")
    )
    topology = tmp_path / "topology.yaml"
    topology.write_text(small)
    files = ("-t", topology, "-w", EXAMPLES / "workload.yaml", "-p", EXAMPLES / "plan.yaml")
    _, printed, _ = hulk("predict", *files)
    assert "missing" in printed
    assert "ONE CHANGE WOULD MAKE IT FIT" in printed
    _, as_json, _ = hulk("predict", *files, "-o", "json")
    fullest = json.loads(as_json)["details"]["memory"][0]
    assert fullest["missingBytes"] == fullest["totalBytes"] - 16_000_000_000 > 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("plan", "-f", JOB, "-t", HULK_TOPOLOGY, "--advise", "--seconds", "0"),
            "--seconds 0.0 must be > 0 and finite",
        ),
        (
            ("plan", "-f", JOB, "-t", HULK_TOPOLOGY, "--advise", "--seconds", "nan"),
            "--seconds nan must be > 0 and finite",
        ),
        (
            ("plan", "-f", JOB, "-t", HULK_TOPOLOGY, "--advise", "--seconds", "inf"),
            "--seconds inf must be > 0 and finite",
        ),
    ],
)
def test_mistakes_are_named(hulk: Hulk, arguments: tuple[object, ...], expected: str) -> None:
    code, _, _ = hulk(*arguments)
    assert expected in str(code)


def test_a_page_without_a_plan_is_not_written(hulk: Hulk, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB.read_text().replace("min: 5", "min: 7").replace("max: 6", "max: 8"))
    page = tmp_path / "report.html"
    alone = hulk("plan", "-f", job, "-t", HULK_TOPOLOGY, "--details")[1]
    code, printed, _ = hulk("plan", "-f", job, "-t", HULK_TOPOLOGY, "--html", page, "--details")
    assert "no job has a plan" in str(code)
    assert "NotEnoughAccelerators" in printed
    assert printed == alone
    assert not page.exists()
