"""`hulk plan --compare` and `--html`, and what plans and predictions print of memory, layers, money and advice."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hulk_operator.cli import main
from hulk_operator.cli.detail_tables import searches
from hulk_operator.cli.output import plain
from hulk_placement.layouts.searches import SEARCHES
from hulk_placement.report.rows import SearchRow, SearchRows
from hulk_placement.split.searches import SEARCHES as DIVISIONS
from rich.console import Group

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


def test_searches_are_compared_at_equal_time_with_the_bound(hulk: Hulk) -> None:
    code, printed, _ = hulk("plan", "-f", JOB, "-t", HULK_TOPOLOGY, "--compare", "--seconds", "0.3", "-o", "json")
    assert code == 0
    searches = json.loads(printed)["jobs"][0]["details"]["searches"]
    assert {row["search"] for row in searches["rows"]} == set(SEARCHES)
    assert searches["secondsEach"] == 0.3
    for row in searches["rows"]:
        assert row["evaluations"] > 0
        assert row["stepMicroseconds"] >= searches["boundMicroseconds"] > 0
        gap = 1 - searches["boundMicroseconds"] / row["stepMicroseconds"]
        assert row["gap"] == pytest.approx(gap, abs=1e-4)
    steps = [row["stepMicroseconds"] for row in searches["rows"]]
    assert steps == sorted(steps)


@pytest.mark.whole  # in short: searches for one job
def test_searches_for_all_jobs_together_are_compared(hulk: Hulk, tmp_path: Path) -> None:
    files = []
    for name in ("one", "two"):
        files.append(tmp_path / f"{name}.yaml")
        text = (EXAMPLES / "workload.yaml").read_text(encoding="utf-8").replace("name: gpt2-xl", f"name: {name}", 1)
        files[-1].write_text(text, encoding="utf-8")
    asked = ("plan", "-t", EXAMPLES / "topology.yaml", "-w", files[0], "-w", files[1], "--compare", "--seconds", "0.2")
    code, printed, _ = hulk(*asked, "-o", "json")
    assert code == 0
    together = json.loads(printed)["together"]
    assert {row["search"] for row in together["rows"]} == set(DIVISIONS)
    found = [row for row in together["rows"] if "stepMicroseconds" in row]
    assert "portfolio" in {row["search"] for row in found}
    assert all(row["stepMicroseconds"] >= together["boundMicroseconds"] > 0 for row in found)
    _, printed, _ = hulk(*asked)
    assert "SEARCH FOR ALL JOBS" in printed


def cheapest(tmp_path: Path, name: str, placement: str = "objective: throughputPerMoney") -> Path:
    """The example's job, with a placement of its own."""
    file = tmp_path / f"{name}.yaml"
    text = JOB.read_text(encoding="utf-8").replace("name: demo", f"name: {name}", 1)
    text = text.replace("min: 5", "min: 1", 1)
    file.write_text(text.replace("spec:", f"spec:\n  placement: {{{placement}}}", 1), encoding="utf-8")
    return file


def compared(hulk: Hulk, *files: Path) -> tuple[dict[str, Any], str]:
    """The comparison of jobs on the example's machines, and what was noted beside it."""
    asked = [part for file in files for part in ("-f", file)]
    code, printed, notes = hulk("plan", *asked, "-t", HULK_TOPOLOGY, "--compare", "--seconds", "0.2", "-o", "json")
    assert code == 0
    return json.loads(printed), notes


@pytest.mark.whole  # in short: searches for the fastest
def test_searches_for_the_cheapest_have_their_gaps_to_a_price(hulk: Hulk, tmp_path: Path) -> None:
    found, _ = compared(hulk, cheapest(tmp_path, "one"), cheapest(tmp_path, "two"))
    for seen in (found["together"], *(job["details"]["searches"] for job in found["jobs"])):
        bound = seen["boundPricePerStep"]
        assert bound > 0
        assert "boundMicroseconds" not in seen
        priced = [row for row in seen["rows"] if "layout" in row]
        assert priced
        assert all(row["gap"] == pytest.approx(1 - bound / row["pricePerStep"]) for row in priced)
        assert all("stepMicroseconds" not in row for row in priced)
    _, printed, _ = hulk(
        "plan", "-f", tmp_path / "one.yaml", "-t", HULK_TOPOLOGY, "--compare", "--seconds", "0.1", "--details"
    )
    assert re.search(r"by the closed form; a price of [\d.e-]+: ", printed)


def test_jobs_of_different_objectives_are_not_compared_together(hulk: Hulk, tmp_path: Path) -> None:
    found, notes = compared(hulk, cheapest(tmp_path, "one"), cheapest(tmp_path, "two", "objective: time"))
    assert "together" not in found
    assert "objectives throughput-per-money and time have no mean in common" in notes


def test_where_machines_are_given_there_is_nothing_to_search(hulk: Hulk, tmp_path: Path) -> None:
    named = cheapest(tmp_path, "named", "workerNodes: [eu-a]")
    found, notes = compared(hulk, named)
    assert "searches" not in found["jobs"][0]["details"]
    assert "default/named: no searches are compared: The machine of each of 1 worker is given." in notes
    found, _ = compared(hulk, named, cheapest(tmp_path, "one", ""), cheapest(tmp_path, "two", ""))
    layouts = [row["layout"] for row in found["together"]["rows"] if "layout" in row]
    assert layouts
    assert all(sum(map(int, re.findall(r"\d+", layout))) <= 5 for layout in layouts)


LARGE = """
apiVersion: hulk.dev/v1alpha1
kind: HulkJob
metadata: {name: large}
spec:
  workers: {min: 1, max: 4}
  model:
    transformer: {layers: 12, hidden: 768, heads: 12, sequenceLength: 64, vocabulary: 256}
  training: {globalBatch: 8, steps: 10}
  template:
    spec:
      containers:
        - {name: worker, image: hulk, command: ["/opt/hulk/bin/hulk-launch", "-m", "hulk_runtime.examples.gpt"]}
"""
SMALL_MACHINES = """
apiVersion: hulk.dev/files/v1
kind: Topology
machines:
  - {name: a, count: 4, region: r1, accelerators: 1, memoryGibibytes: 1, teraflopsPerSecond: 1}
links:
  - {source: r1, target: r1, rttMilliseconds: 0.1, bandwidthMegabitsPerSecond: 8000}
"""


def test_a_plan_that_needs_stages_is_compared_with_others_that_have_them(hulk: Hulk, tmp_path: Path) -> None:
    job, machines = tmp_path / "job.yaml", tmp_path / "topology.yaml"
    job.write_text(LARGE, encoding="utf-8")
    machines.write_text(SMALL_MACHINES, encoding="utf-8")
    code, printed, _ = hulk("plan", "-f", job, "-t", machines, "--compare", "--seconds", "0.2", "-o", "json")
    assert code == 0
    rows = json.loads(printed)["jobs"][0]["details"]["searches"]["rows"]
    assert all(row["layout"].startswith("1 x 4 x 1") for row in rows if row["search"] in ("exact", "portfolio"))


def test_a_comparison_is_a_table_and_a_page(hulk: Hulk, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    options = ("--compare", "--seconds", "0.05", "--html", page)
    code, printed, notes = hulk("plan", "-f", JOB, "-t", HULK_TOPOLOGY, *options, "--details")
    assert code == 0
    for heading in ("THE STEP GOES TO", "STAGE  LAYERS", "MEMORY OF ONE", "LINK ", "COSTS", "SEARCH ", "ONE CHANGE"):
        assert heading in printed
    assert "portfolio" in printed
    assert "The networks (gnn, hulk-gcn) divide machines among jobs" in printed
    assert f"wrote {page}" in notes
    text = page.read_text(encoding="utf-8")
    assert "What other searches find" in text
    assert "default/demo" in text


def test_a_search_without_a_plan_says_whether_its_time_ended() -> None:
    rows = (
        SearchRow(search="exact", seconds=1.0, evaluations=9, is_time_over=True),
        SearchRow(search="local", seconds=0.25, evaluations=9, is_proven=True),
    )
    found = SearchRows(rows=rows, seconds_each=1.0, bound_microseconds=1_000, bound_is_reached=False)
    exact, local = plain(Group(*searches(found, "SEARCH", "LAYOUT"))).splitlines()[1:3]
    assert exact.endswith("no plan found when the time ended, after 1.00 s")
    assert local.endswith("impossible: it has looked at everything")
    assert "proven best" not in local


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
            ("plan", "-f", JOB, "-t", HULK_TOPOLOGY, "--compare", "--seconds", "0"),
            "--seconds 0.0 must be > 0 and finite",
        ),
        (
            ("plan", "-f", JOB, "-t", HULK_TOPOLOGY, "--compare", "--seconds", "nan"),
            "--seconds nan must be > 0 and finite",
        ),
        (
            ("plan", "-f", JOB, "-t", HULK_TOPOLOGY, "--compare", "--seconds", "inf"),
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
