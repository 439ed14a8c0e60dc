"""`hulk schedule`: what it prints for people and programs, the files that it writes, and what it refuses."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hulk_operator.cli import main
from hulk_operator.cli.gantt import Gantt
from hulk_operator.cli.schedule_search import Search, Shaped, scheduled
from hulk_placement.report.schedule.rows import ScheduleView
from hulk_placement.schedule.shapes import SHAPES
from rich.console import Console

EXAMPLES = Path(__file__).parents[2] / "examples" / "planner"
FILES = ("-p", EXAMPLES / "placement.yaml", "--links", EXAMPLES / "links.yaml")
LONG = ("--seconds", 60)
"""For searches that need a hundredth of it: a busy machine must not decide a test."""

Hulk = Any


@pytest.fixture
def hulk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hulk:
    """hulk(arguments...) -> (exit code or message, standard output, standard error)."""

    def call(*arguments: object) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["hulk", "schedule", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        return caught.value.code, printed.out, printed.err

    return call


def view_of(name: str, num: int, **said: Any) -> ScheduleView:
    return scheduled(Shaped(name, **said), Search(num, "16", 60, 0))


def drawn(view: ScheduleView, width: int) -> list[str]:
    """The chart without colours, as wide as a terminal."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(Gantt(view))
    return captured.get().splitlines()


@pytest.mark.parametrize("mode", [(), ("--time-optimal",)])
def test_programs_get_figures_and_blocks(hulk: Hulk, mode: Sequence[str]) -> None:
    code, printed, _ = hulk("-p", "v", "--devices", 4, "-n", 8, "--memory", 16, *mode, *LONG, "-o", "json")
    assert code == 0
    found = json.loads(printed)
    assert (found["makespan"], found["bubbles"], found["bound"], found["proven"]) == (44, 48, 44, True)
    assert found["period"] == 4 or mode
    assert (found["pattern"] is None) == bool(mode)
    assert max(found["peak_memory"]) <= 16
    assert found["seconds"] > 0
    assert len(found["blocks"]) == 8 * 8
    keys = {"name", "kind", "stage", "devices", "micro_batch", "start", "end"}
    assert {frozenset(block) for block in found["blocks"]} == {frozenset(keys)}


def test_yaml_says_the_same_as_json(hulk: Hulk) -> None:
    asked = (*FILES, "-n", 2, "--memory", 12, *LONG)
    as_json, as_yaml = json.loads(hulk(*asked, "-o", "json")[1]), yaml.safe_load(hulk(*asked, "-o", "yaml")[1])
    assert as_json.keys() == as_yaml.keys()
    assert as_json["makespan"] == as_yaml["makespan"]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_drawn(hulk: Hulk, shape: str) -> None:
    code, printed, _ = hulk("-p", shape, "-n", 2, "--memory", 16, "--forward-span", 2, "--backward-span", 4)
    assert code == 0
    assert f"{shape}: 2 micro-batches on 4 devices, searched" in printed
    assert printed.count("device ") >= 4


def test_forward_passes_alone_and_weights_of_their_own(hulk: Hulk) -> None:
    found = json.loads(hulk("-p", "v", "-n", 3, "--forward-only", *LONG, "-o", "json")[1])
    assert (found["makespan"], {block["kind"] for block in found["blocks"]}) == (6, {"forward"})
    found = json.loads(hulk("-p", "v", "-n", 3, "--split-weights", *LONG, "-o", "json")[1])
    assert {block["kind"] for block in found["blocks"]} == {"forward", "backward", "weight"}


def test_the_chart_tells_kinds_apart_without_colour_and_says_micro_batches() -> None:
    lines = drawn(view_of("v", 1, num_devices=2), 30)
    assert lines[:2] == ["device 0 |0>        0<<<<<|", "device 1 |  0>0<<<<<      |"]
    assert lines[2].split() == ["0", "5"]


@pytest.mark.parametrize(("shape", "num"), [("v", 8), ("v", 200), ("x", 3), ("interleaved", 6)])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_chart_fits_every_terminal(shape: str, num: int, width: int) -> None:
    lines = drawn(view_of(shape, num), width)
    assert max(map(len, lines)) <= width
    assert {line[-1] for line in lines[:4]} == {"|"}
    assert [line.split("|")[0].strip() for line in lines[:4]] == [f"device {number}" for number in range(4)]


def test_a_long_schedule_is_cut_with_what_is_left_out_named() -> None:
    text = " ".join(" ".join(drawn(view_of("v", 200), 80)).split())
    found = re.search(
        r"warm-up 0 to (\d+) \| one period (\d+) to (\d+) \| ... (\d+) more periods like it \| cool-down", text
    )
    assert found is not None
    warm, begin, end, more = map(int, found.groups())
    assert (warm, end) == (begin, begin + 4)
    assert more > 150
    assert f"cool-down {end + 4 * more} to 812" in text


def test_links_have_rows_and_busy_times(hulk: Hulk) -> None:
    code, printed, _ = hulk(*FILES, "-n", 8, "--memory", 12, *LONG)
    assert code == 0
    rows = {line.split("|")[0].strip(): line for line in printed.splitlines() if "|" in line}
    assert {"link 0 > 1", "link 3 > 2", "frankfurt out", "virginia out"} < set(rows)
    assert "0~~." in rows["link 0 > 1"]
    table = printed[printed.index("LINK ") :]
    assert "frankfurt out  160.0 ms" in table  # 8 micro-batches, 15 and 5 ms of each
    assert "8 GiB  12 GiB" in printed


def test_pages_and_drawings_are_written(hulk: Hulk, tmp_path: Path) -> None:
    page, drawing = tmp_path / "a.html", tmp_path / "a.svg"
    code, _, notes = hulk("-p", "k", "-n", 2, "--html", page, "--svg", drawing)
    assert code == 0
    assert notes.splitlines() == [f"hulk: note: wrote {page}", f"hulk: note: wrote {drawing}"]
    assert "<title>Schedule of k</title>" in page.read_text()
    assert drawing.read_text().startswith("<svg xmlns=")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("-p nope -n 2", "--placement nope: neither a file nor one of v, interleaved, wave, x, m, nn, k"),
        ("-p v -n 0", "--micro-batches 0: must be >= 1"),
        ("-p v -n 2 --mode best", "--mode best: none of searched, optimal, fast, "),
        ("-p v -n 2 --mode fast --time-optimal", "--time-optimal is --mode optimal: it does not go with --mode fast"),
        ("-p interleaved -n 6 --mode interleaved", "interleaved 1F1B needs a multiple of 4 micro-batches, not 6"),
        ("-p v -n 200000", "200000 micro-batches of 8 blocks and transfers are 1600000: at most 200000"),
        ("-p v -n 2 --devices 0", "--devices 0: must be >= 1"),
        ("-p k -n 2 --devices 1", "placement k needs 2 devices or more, not 1"),
        ("-p v -n 2 --memory 0.5", "device 0: one micro-batch alone holds 1 of memory, and there is 0.5: 0.5 too"),
        ("-p v -n 2 --memory 0.5 --time-optimal", "device 0: one micro-batch alone holds 1 of memory"),
        ("-p v -n 2 --memory 1,1,0.25,1", "device 2: one micro-batch alone holds 1 of memory, and there is 0.25"),
        ("-p v -n 2 --memory 1,2", "--memory 1,2: 2 figures for 4 devices"),
        ("-p v -n 2 --memory much", "--memory much: one figure, or one for each device"),
        ("-p v -n 2 --memory -1", "--memory -1: must be >= 0 and finite"),
        ("-p v -n 2 --memory nan", "--memory nan: must be >= 0 and finite"),
        ("-p v -n 2 --memory 8,inf,8,8", "--memory 8,inf,8,8: must be >= 0 and finite"),
        ("-p v -n 2 --forward-span -1", "--forward-span -1: must be >= 0 and finite"),
        ("-p v -n 2 --backward-span inf", "--backward-span inf: must be >= 0 and finite"),
        ("-p v -n 2 --forward-span 0 --backward-span 0", "v: all 8 blocks have span 0"),
        ("-p v -n 2 --seconds 0", "--seconds 0.0: must be > 0 and finite"),
        ("-p v -n 2 --seed -1", "--seed -1: must be >= 0 and <= 2147483647"),
        ("-p v -n 2 --seed 2147483648", "--seed 2147483648: must be >= 0 and <= 2147483647"),
        ("-p v -n 2 --forward-only --split-weights", "--forward-only leaves no backward blocks"),
        ("-p EXAMPLES/placement.yaml -n 2 --devices 3", "--devices 3: EXAMPLES/placement.yaml is of 4"),
        ("-p EXAMPLES/placement.yaml -n 2 --forward-span 3", "--forward-span 3 is of ready-made placements"),
        ("-p EXAMPLES/placement.yaml -n 2 --memory 2.25", "device 1: one micro-batch alone holds 2.5 of memory"),
        ("-p EXAMPLES/topology.yaml -n 2", 'kind "Topology": expected Placement'),
        ("-p v -n 2 --links EXAMPLES/links.yaml", "times of links have units, and spans of blocks have none"),
        ("-p v -n 2 --links EXAMPLES/none.yaml", "No such file"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(hulk: Hulk, asked: str, message: str) -> None:
    code, printed, _ = hulk(*asked.replace("EXAMPLES", str(EXAMPLES)).split())
    assert message.replace("EXAMPLES", str(EXAMPLES)) in code
    assert code.startswith("hulk: ")
    assert printed == ""


def test_a_placement_that_needs_itself_is_refused_with_its_blocks(hulk: Hulk, tmp_path: Path) -> None:
    blocks = [{"name": n, "devices": [0], "span": 1, "after": [a]} for n, a in (("a", "c"), ("b", "a"), ("c", "b"))]
    said = {"apiVersion": "hulk.dev/files/v1", "kind": "Placement", "devices": 1, "blocks": blocks}
    path = tmp_path / "cyclic.yaml"
    path.write_text(yaml.safe_dump(said))
    code, _, _ = hulk("-p", path, "-n", 2)
    assert code == f"hulk: {path}: blocks need each other: a after c after b after a"
