"""`python -m bench.fleet_simulator`: presets and files, what it prints and writes, and what it refuses."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.fleet_simulator.__main__ import main

Hulk = Any

TOPOLOGY = """\
apiVersion: hulk.dev/files/v1
kind: Topology
machines:
  - {name: a0, region: a, accelerators: 4}
  - {name: b0, region: b, accelerators: 2}
"""


@pytest.fixture
def hulk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hulk:
    """hulk(arguments...) -> (exit code or message, standard output, standard error)."""

    def call(*arguments: object) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["fleet_simulator", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        return caught.value.code, printed.out, printed.err

    return call


def test_the_published_setting_as_json(hulk: Hulk) -> None:
    code, out, _ = hulk("--preset", "gadget", "--num-jobs", 12, "--load", 1, "--policy", "gadget,drf", "-o", "json")
    assert code == 0
    found = json.loads(out)
    assert set(found["policies"]) == {"gadget", "drf"}
    assert found["policies"]["gadget"]["utility"] <= found["bound"]
    assert found["policies"]["gadget"]["utility"] >= found["policies"]["drf"]["utility"] - 1e-6
    assert found["policies"]["drf"]["makespan"] > 0
    assert found["drawn"]["offered_load"] == pytest.approx(1.0)
    assert found["drawn"]["arrivals"] == {"quiet_slots": 20.0, "busy_slots": 5.0, "factor": 8.0}
    assert hulk("--preset", "gadget", "--num-jobs", 12, "--load", 1, "--policy", "gadget,drf", "-o", "json")[1] == out


def test_published_totals_stand_beside_ours_and_no_reproduction_is_claimed(hulk: Hulk) -> None:
    code, out, _ = hulk("--preset", "gadget", "--num-jobs", 40, "--policy", "drf,srpt")
    assert code == 0
    heading, drf, srpt = out.splitlines()[:3]
    assert heading.split()[-1] == "PUBLISHED"
    assert drf.split()[-1] == "1974"
    assert srpt.split()[-1] == "-"
    assert "not a reproduction" in out
    assert "PUBLISHED" not in hulk("--preset", "gadget", "--num-jobs", 40, "--load", 1, "--policy", "drf")[1]


def test_jobs_and_machines_from_files_with_a_picture(hulk: Hulk, tmp_path: Path) -> None:
    topology, jobs, picture = tmp_path / "t.yaml", tmp_path / "jobs.csv", tmp_path / "p.svg"
    topology.write_text(TOPOLOGY)
    jobs.write_text("job,samples,max_workers,arrives_s,watts\nx,100,4,0,100\ny,60,2,10,0\n")
    code, out, err = hulk("--jobs", jobs, "-t", topology, "--policy", "fifo", "--svg", picture, "-o", "json")
    assert code == 0
    assert f"wrote {picture}" in err
    assert picture.read_text().startswith("<svg")
    found = json.loads(out)["policies"]["fifo"]
    assert (found["utility"], found["makespan"]) == (pytest.approx(160.0), pytest.approx(40.0))
    assert (found["completed"], found["mean_completion"]) == (2, pytest.approx(27.5))
    assert found["joules"] == pytest.approx(10_000.0)


def test_a_trace_says_when_jobs_arrive(hulk: Hulk, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("slot,job\n0,a\n150,b\n")
    code, out, _ = hulk("--preset", "gadget", "--trace", trace, "--policy", "fifo", "-o", "json")
    assert code == 0
    assert set(json.loads(out)["policies"]["fifo"]["jobs"]) == {"a", "b"}


def test_quotas_and_shares_of_namespaces(hulk: Hulk, tmp_path: Path) -> None:
    topology, jobs = tmp_path / "t.yaml", tmp_path / "jobs.csv"
    topology.write_text(
        TOPOLOGY.replace("accelerators: 4", "accelerators: 6").replace("accelerators: 2", "accelerators: 0")
    )
    jobs.write_text("job,samples,max_workers,namespace,utility\nx,1000,6,one,sqrt\ny,1000,6,two,sqrt\n")
    common = ("--jobs", jobs, "-t", topology, "--policy", "gadget", "--until-s", 10)
    out = hulk(*common, "--quota", "one=2", "-o", "json")[1]
    assert json.loads(out)["policies"]["gadget"]["shares"] == pytest.approx({"one": 1 / 3, "two": 2 / 3})
    even = json.loads(hulk(*common, "-o", "json")[1])["policies"]["gadget"]["shares"]
    more = json.loads(hulk(*common, "--share", "one=4", "-o", "json")[1])["policies"]["gadget"]["shares"]
    assert more["one"] > even["one"]
    assert "SHARES" in hulk(*common)[1]
    assert "--quota 'one' must be NAMESPACE=NUMBER" in str(hulk(*common, "--quota", "one")[0])


HEADING = "job,samples,utility,weight"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (f"{HEADING}\nx,nan,sqrt,1\n", "jobs line 2: samples 'nan' must be finite"),
        (f"{HEADING}\nx,5,sqrt,inf\n", "jobs line 2: weight 'inf' must be finite"),
        (
            f"{HEADING}\nx,5,sqrt,1\ny,5,sqrt,1\nx,7,sqrt,1\n",
            "jobs line 4: job x is there twice; the first is in line 2",
        ),
        ("job,samples,job\nx,5,y\n", "columns named twice ['job']"),
        ("job,samples,step_s\nx,5,0\n", "jobs line 2: step_s 0 must be > 0"),
        ("job,samples,step_s\nx,5,-1\n", "jobs line 2: step_s -1 must be > 0"),
        (f"job,samples,accelerators\nx,5,{10**23}\n", "must be at most 9007199254740992"),
        (f"{HEADING}\nx,5,sqrt,1,9,9\n", "jobs line 2: 6 cells, and the heading has 4 columns"),
    ],
)
def test_tables_of_jobs_that_make_no_sense_are_refused(hulk: Hulk, tmp_path: Path, table: str, words: str) -> None:
    topology, jobs = tmp_path / "topology.yaml", tmp_path / "jobs.csv"
    topology.write_text(TOPOLOGY)
    jobs.write_text(table)
    assert words in str(hulk("--jobs", jobs, "-t", topology, "--policy", "fifo")[0])


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--quota", "one=nan"), "--quota 'one=nan' must be NAMESPACE=NUMBER"),
        (("--quota", "one=0.5"), "--quota one=0.5 must be whole accelerators"),
        (("--quota", "=3"), "--quota '=3' must be NAMESPACE=NUMBER"),
        (("--load", "2"), "--load: of --preset gadget, and --jobs is simulated"),
        (("--share", "a=1", "--share", "a=2"), "--share: namespace a is there twice, with 1 and 2"),
        (("--until-s", "nan"), "--until-s nan must be > 0"),
        (("--slot-s", "nan"), "slot nan s must be > 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    hulk: Hulk, tmp_path: Path, option: tuple[str, ...], words: str
) -> None:
    topology, jobs = tmp_path / "topology.yaml", tmp_path / "jobs.csv"
    topology.write_text(TOPOLOGY)
    jobs.write_text(f"{HEADING}\nx,5,sqrt,1\n")
    assert words in str(hulk("--jobs", jobs, "-t", topology, "--policy", "fifo", *option)[0])


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ("slot,job\n0,a\n200,b\n", "trace: b in slot 200: the setting has slots 0 to 199"),
        ("slot,job\n0,a\n3,a\n", "trace line 3: job a arrives twice, in slots 0 and 3"),
        ("slot,job\n0,a,7\n", "trace line 2: '0,a,7' must be slot,job"),
    ],
)
def test_traces_that_make_no_sense_are_refused(hulk: Hulk, tmp_path: Path, trace: str, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(trace)
    assert words in str(hulk("--preset", "gadget", "--trace", path, "--policy", "fifo")[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--preset", "gadget", "--policy", "best"), "--policy best: must be of gadget"),
        (("--preset", "paper"), "--preset 'paper' must be one of gadget, mobihoc"),
        ((), "give jobs with --jobs and --topology, or a --preset"),
        (("--jobs", "jobs.csv"), "give them with --topology"),
        (("--preset", "gadget", "--load", "0"), "load 0.0 must be > 0"),
        (("--preset", "gadget", "--load", "nan"), "load nan must be > 0"),
        (
            ("--preset", "mobihoc", "--num-jobs", "5"),
            "--num-jobs: of --preset gadget, and --preset mobihoc",
        ),
        (("--preset", "gadget", "--quota", "one=2"), "--quota: of --jobs, and --preset gadget is simulated"),
        (("--preset", "gadget", "-t", "t.yaml"), "--topology: of --jobs, and --preset gadget is simulated"),
        (("--preset", "gadget", "--most-workers", "--until-s", "9"), "--until-s: of --jobs"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(hulk: Hulk, arguments: tuple[str, ...], words: str) -> None:
    assert words in str(hulk(*arguments)[0])
