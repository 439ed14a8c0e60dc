"""The commands that read the planner's own files: `hulk predict`, `hulk plan -w`, `hulk topology import`."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hulk_operator.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "planner"
JOB, HULK_TOPOLOGY = ROOT / "examples" / "hulkjob.yaml", ROOT / "examples" / "topology.yaml"
FILES = ("-t", EXAMPLES / "topology.yaml", "-w", EXAMPLES / "workload.yaml")
MEASURED = ("-t", EXAMPLES / "measured-topology.yaml", "-w", EXAMPLES / "measured-workload.yaml")
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


def test_a_given_plan_is_predicted_and_its_parts_sum_to_the_step(hulk: Hulk) -> None:
    code, printed, _ = hulk("predict", *FILES, "-p", EXAMPLES / "plan.yaml", "-o", "json")
    assert code == 0
    found = json.loads(printed)
    assert [row["part"] for row in found["breakdown"]] == [
        "compute",
        "fill and drain",
        "stage transfers",
        "synchronisation",
        "shared parameters",
    ]
    assert found["breakdown"] == found["details"]["step"]
    assert sum(row["microseconds"] for row in found["breakdown"]) == pytest.approx(found["stepMicroseconds"], abs=2)
    assert [(cell["node"], cell["firstLayer"], cell["lastLayer"]) for cell in found["cells"][:2]] == [
        ("fra-0", 0, 26),
        ("vir", 27, 49),
    ]
    assert found["pricePerHour"] == pytest.approx(2 * 2.9 + 2 * 2.5)
    assert found["training"]["hours"] == pytest.approx(20000 * found["stepMicroseconds"] / 3.6e9, rel=1e-6)
    assert found["training"]["price"] == pytest.approx(20000 * found["pricePerStep"])
    of_accelerators = found["pricePerHour"] * found["stepMicroseconds"] / 3.6e9
    assert found["pricePerStep"] == pytest.approx(of_accelerators + found["trafficPricePerStep"], rel=1e-6)
    assert found["fitsMemory"] is True


@pytest.mark.parametrize(("asked", "num_together"), [({}, 4000), ({"warmupSteps": 50}, 50), ({"warmupSteps": 0}, 0)])
def test_the_whole_training_has_the_longer_steps_of_its_warm_up(
    hulk: Hulk, tmp_path: Path, asked: dict[str, int], num_together: int
) -> None:
    def predicted(sync: dict[str, Any]) -> dict[str, Any]:
        document = yaml.safe_load((EXAMPLES / "workload.yaml").read_text())
        document["sync"] = {"compression": "none", **sync}
        workload = tmp_path / "workload.yaml"
        workload.write_text(yaml.safe_dump(document))
        _, printed, _ = hulk("predict", "-t", FILES[1], "-w", workload, "-p", given, "-o", "json")
        found: dict[str, Any] = json.loads(printed)
        return found

    given = tmp_path / "plan.yaml"
    plan = yaml.safe_load((EXAMPLES / "plan.yaml").read_text())
    given.write_text(yaml.safe_dump(plan))
    every = predicted({"mode": "ring"})
    given.write_text(yaml.safe_dump({**plan, "innerSteps": 50}))
    apart = predicted({"mode": "local", **asked})
    seconds = num_together * every["stepMicroseconds"] + (20000 - num_together) * apart["stepMicroseconds"]
    assert every["stepMicroseconds"] > 1.05 * apart["stepMicroseconds"]
    assert apart["training"]["hours"] == pytest.approx(seconds / 3.6e9, rel=1e-3)
    prices = num_together * every["pricePerStep"] + (20000 - num_together) * apart["pricePerStep"]
    assert apart["training"]["price"] == pytest.approx(prices, rel=1e-3)


def test_a_prediction_is_a_table_for_people_and_the_same_as_yaml(hulk: Hulk) -> None:
    _, table, notes = hulk("predict", *MEASURED, "-p", EXAMPLES / "measured-plan.yaml")
    for words in ("measured: 3 x 2 x 1", "gpipe", "parameter-server", "predicted = compute", "memory", "node-1", "0-4"):
        assert words in table
    assert "have a latency and no bandwidth" not in notes
    _, as_json, _ = hulk("predict", *MEASURED, "-p", EXAMPLES / "measured-plan.yaml", "-o", "json")
    _, as_yaml, _ = hulk("predict", *MEASURED, "-p", EXAMPLES / "measured-plan.yaml", "-o", "yaml")
    assert json.loads(as_json) == yaml.safe_load(as_yaml)


def test_what_is_taken_for_a_machine_that_was_not_measured_is_said_with_its_name(hulk: Hulk, tmp_path: Path) -> None:
    """With micro-batches of 4 two machines take 77.0 ms a sequence two 130.6 ms: the median speed takes 96.9 ms."""
    document = yaml.safe_load((EXAMPLES / "measured-topology.yaml").read_text())
    document["machines"][1]["product"] = "gpu-z"
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(document))
    given = ("-w", EXAMPLES / "measured-workload.yaml", "-p", EXAMPLES / "measured-plan.yaml")
    _, table, _ = hulk("predict", "-t", tmp_path / "t.yaml", *given)
    said = "not measured, and taken instead, of other (gpu-z): 96.9 ms a sequence of the whole model, like the median"
    assert said in " ".join(table.split())
    _, table, _ = hulk("predict", "-t", EXAMPLES / "measured-topology.yaml", *given)
    assert "not measured, and taken instead" not in table


@pytest.mark.parametrize("name", ["measured-plan.yaml", "measured-schedule-plan.yaml"])
def test_a_plan_is_simulated_too_and_its_links_say_where_the_step_goes(hulk: Hulk, name: str) -> None:
    _, printed, _ = hulk("predict", *MEASURED, "-p", EXAMPLES / name, "-o", "json")
    found = json.loads(printed)
    simulated = found["simulated"]
    assert sum(row["microseconds"] for row in simulated["rows"]) == pytest.approx(simulated["stepMicroseconds"], abs=9)
    _, table, _ = hulk("predict", *MEASURED, "-p", EXAMPLES / name)
    for words in ("SIMULATED, EVENT BY EVENT", "by the closed form", "link "):
        assert words in table
    closed_form_s = simulated["closedFormMicroseconds"] / 1e6
    assert found["stepMicroseconds"] == simulated["stepMicroseconds"]
    assert closed_form_s == pytest.approx(simulated["stepMicroseconds"] / 1e6, rel=0.1)


def test_the_link_that_most_of_a_step_is_spent_on_is_named_with_what_for(hulk: Hulk) -> None:
    """The embedding's matrix is the head's too: both replicas sum it over the Atlantic, without the positions."""
    _, printed, _ = hulk("predict", *FILES, "-p", EXAMPLES / "plan.yaml", "-o", "json")
    found = json.loads(printed)
    worst = found["bottleneck"]
    assert {worst["source"], worst["target"]} <= {"fra-0", "fra-1", "vir"}
    assert "vir" in (worst["source"], worst["target"])
    assert (worst["part"], worst["kind"]) == ("shared parameters", "declared")
    assert worst["share"] == max(row["share"] for row in found["breakdown"])
    over = {(row["source"], row["target"]): row for row in found["details"]["links"]}
    summed = 2 * 50_257 * 1_600 * 4
    for pair in ("frankfurt", "virginia"), ("virginia", "frankfurt"):
        assert over[pair]["syncBytes"] == summed
        assert over[pair]["kind"] == "declared"
    sent = 2 * (summed + 64 * 1_600 * 1_024 * 2)
    assert found["trafficPricePerStep"] == pytest.approx(0.02 * sent / 1e9)


def test_what_a_step_is_made_of_is_said_alike_in_the_head_and_below(hulk: Hulk, tmp_path: Path) -> None:
    for command in (("plan", *MEASURED), ("predict", *MEASURED, "-p", EXAMPLES / "measured-plan.yaml")):
        _, printed, _ = hulk(*command, "-o", "json")
        found = json.loads(printed)
        parts = (found["jobs"][0] if "jobs" in found else found)["details"]["step"]
        _, table, _ = hulk(*command)
        (head,) = [line for line in table.splitlines() if line.startswith("step ") and "predicted" in line]
        assert [part["part"] for part in parts if f" {part['part']} " in head] == [part["part"] for part in parts]
        assert "bubble" not in head


def test_what_is_odd_about_a_topology_is_a_note_beside_the_output(hulk: Hulk) -> None:
    _, printed, notes = hulk("predict", *FILES, "-p", EXAMPLES / "plan.yaml", "-o", "json")
    assert "hulk: note: 2 directed links have a latency and no bandwidth" in notes
    json.loads(printed)


def test_what_is_odd_about_a_workload_is_a_note_beside_its_plan(hulk: Hulk, tmp_path: Path) -> None:
    """Replicas divide what is sharded only where their number is given."""
    sharded = TWO_LAYERS.replace("training: {", "training: {memory: {sharded: gradients}, ")
    _, _, notes = hulk("plan", *written(tmp_path, UNLIKE, sharded))
    assert "training.memory.sharded: gradients count whole" in notes


@pytest.mark.parametrize("degrees", ["pipeline: 2", "data: 3, pipeline: 2"])
def test_a_plan_that_is_saved_is_predicted_as_it_was_planned(hulk: Hulk, tmp_path: Path, degrees: str) -> None:
    saved, workload = tmp_path / "plan.yaml", tmp_path / "workload.yaml"
    text = (EXAMPLES / "measured-workload.yaml").read_text()
    workload.write_text(text.replace("{pipeline: 2}", f"{{{degrees}}}"))
    files = (*MEASURED[:2], "-w", workload)
    code, printed, _ = hulk("plan", *files, "--save", saved, "-o", "json")
    assert code == 0
    (planned,) = json.loads(printed)["jobs"]
    _, again, _ = hulk("predict", *files, "-p", saved, "-o", "json")
    found = json.loads(again)
    assert found["stepMicroseconds"] == planned["prediction"]["stepMicroseconds"]
    said = saved.read_text().splitlines()[0]
    assert said == f"# Predicted: {found['stepMicroseconds'] / 1e6:.6g} s a step."
    assert sum(worker["sequences"] for worker in planned["workers"]) == 48 * found["pipeline"]


def small(tmp_path: Path, **changes: Any) -> Path:
    document = {
        "apiVersion": "hulk.dev/files/v1",
        "kind": "Workload",
        "name": "small",
        "model": {"transformer": {"layers": 2, "hidden": 32, "heads": 2, "sequenceLength": 16, "vocabulary": 64}},
        "training": {"globalBatch": 12},
        "parallelism": {"pipeline": 1, "tensor": 1},
        **changes,
    }
    path = tmp_path / f"{document['name']}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_workload_is_planned_on_a_hulk_topology_as_well(hulk: Hulk, tmp_path: Path) -> None:
    code, printed, _ = hulk("plan", "-w", small(tmp_path), "-t", HULK_TOPOLOGY, "-o", "json")
    assert code == 0
    assert {worker["node"] for plan in json.loads(printed)["jobs"] for worker in plan["workers"]} <= {
        "eu-a", "eu-b", "us-a", "us-b", "ap-a", "ap-b",
    }  # fmt: skip


def test_a_job_is_planned_on_the_planners_own_topology_as_well(hulk: Hulk) -> None:
    job = yaml.safe_load(JOB.read_text())
    assert job["spec"]["workers"]["max"] == 6
    code, printed, _ = hulk("plan", "-f", JOB, "-t", EXAMPLES / "topology.yaml", "-o", "json")
    assert code == 0
    (plan,) = json.loads(printed)["jobs"]
    assert {worker["region"] for worker in plan["workers"]} <= {"frankfurt", "virginia", "tokyo"}


def test_several_workloads_share_the_machines_and_one_that_does_not_fit_fails(hulk: Hulk, tmp_path: Path) -> None:
    first = small(tmp_path, name="first", workers={"min": 4, "max": 4})
    second = small(tmp_path, name="second", workers={"min": 4, "max": 4})
    code, printed, _ = hulk("plan", "-w", first, "-w", second, "-t", HULK_TOPOLOGY, "-o", "json")
    assert code == 1
    assert [(plan["job"], plan["planned"]) for plan in json.loads(printed)["jobs"]] == [
        ("first", True),
        ("second", False),
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("plan", "-t", HULK_TOPOLOGY), "give jobs with -f, or workloads with -w"),
        (("plan", "-f", JOB, *FILES), "give jobs with -f, or workloads with -w"),
        (("plan", "-w", FILES[3]), "workloads (-w) are planned on a topology: give one with -t"),
        (("plan", "-f", JOB, "-t", HULK_TOPOLOGY, "--save", "x"), "--save is for workloads (-w)"),
        (("predict", "-t", JOB, "-w", FILES[3], "-p", EXAMPLES / "plan.yaml"), "no Topology or HulkTopology in it"),
        (("predict", *FILES, "-p", EXAMPLES / "measured-plan.yaml"), "a plan of workload measured, not of gpt2-xl"),
        (("predict", *FILES, "-p", FILES[3]), 'kind "Workload": expected Plan'),
        (("predict", *MEASURED, "-p", EXAMPLES / "none.yaml"), "No such file"),
        (("topology", "import", "--hulk", "/does/not/exist"), "no node_feature.csv in /does/not/exist"),
        (("topology", "import", "--hulk", ".", "--bandwidth-mbits", "0"), "--bandwidth-mbits 0.0 must be > 0"),
    ],
)
def test_a_mistake_is_one_message(hulk: Hulk, arguments: tuple[Any, ...], expected: str) -> None:
    code, printed, _ = hulk(*arguments)
    assert str(code).startswith("hulk: ")
    assert expected in str(code)
    assert printed == ""


UNLIKE = """
apiVersion: hulk.dev/files/v1
kind: Topology
machines: [{name: a, region: ra, product: x}, {name: b, region: rb, product: x}]
links:
  - {source: ra, target: rb, rttMilliseconds: 10, bandwidthMegabitsPerSecond: 800}
"""
TWO_LAYERS = """
apiVersion: hulk.dev/files/v1
kind: Workload
name: two
model:
  profile:
    layers:
      - {name: first, parameterBytes: 2000, outputBytes: 10000000, activationBytes: 1}
      - {name: last, parameterBytes: 2000, outputBytes: 0, activationBytes: 1}
    times: [{product: x, microBatch: 1, forwardSeconds: [0.1, 0.1], backwardSeconds: [0.2, 0.2]}]
training: {globalBatch: 4, microBatch: 1}
"""
TWO_STAGES = """
apiVersion: hulk.dev/files/v1
kind: Plan
layout: {pipeline: 2}
machines: [a, b]
schedule: gpipe
"""


def written(tmp_path: Path, *documents: str) -> tuple[object, ...]:
    """The options of a topology, a workload and a plan."""
    options: list[object] = []
    for option, document in zip(("-t", "-w", "-p"), documents, strict=False):
        path = tmp_path / f"{option[1:]}.yaml"
        path.write_text(document)
        options += [option, path]
    return tuple(options)


def test_a_plan_over_a_link_of_which_nothing_is_known_is_predicted(hulk: Hulk, tmp_path: Path) -> None:
    """Back come 4 x 10 MB at 125 kB/s, then 1 s of latency, and 0.2 s.

    The first backward pass ends after 0.1 + 8.045 + 2 x 0.1 + 0.2 s: a message is 864 packets on each connection,
    so that the third and fourth leave eight round trips of 1.005 s after the first began.
    """
    code, printed, notes = hulk("predict", *written(tmp_path, UNLIKE, TWO_LAYERS, TWO_STAGES), "-o", "json")
    assert code == 0
    assert json.loads(printed)["stepMicroseconds"] == 329_745_000
    assert "the plan uses links of which nothing is known" in notes


def test_a_step_without_an_end_is_one_message(hulk: Hulk, tmp_path: Path) -> None:
    topology = UNLIKE.replace("bandwidthMegabitsPerSecond: 800", "bandwidthBytesPerSecond: 1.0e-300")
    code, printed, _ = hulk("predict", *written(tmp_path, topology, TWO_LAYERS, TWO_STAGES))
    assert printed == ""
    assert code == (
        "hulk: two: a step would take 4e+307 s, 1.2 s of them computing; its slowest link, a -> b, carries 1e-300 B/s"
    )


@pytest.mark.parametrize(
    ("gigabytes", "fits", "words"),
    [
        (("7", "1"), True, "5.6 GiB on the fullest accelerator; it fits"),
        (("7", "0.1"), False, "190.7 MiB missing on b"),
        (("5", "1"), False, "953.7 MiB missing on a"),
    ],
)
def test_memory_is_enough_where_every_machine_holds_its_own_stage(
    hulk: Hulk, tmp_path: Path, gigabytes: tuple[str, str], fits: bool, words: str
) -> None:
    """Three copies of 2 GB on a, of 0.1 GB on b, and next to nothing else: b need not hold what is on a."""
    topology = UNLIKE
    for name, size in zip("ab", gigabytes, strict=True):
        topology = topology.replace(f"{{name: {name},", f"{{name: {name}, memoryGigabytes: {size},")
    workload = TWO_LAYERS.replace("2000, outputBytes: 10000000", "2000000000, outputBytes: 10000000")
    workload = workload.replace("2000, outputBytes: 0", "100000000, outputBytes: 0")
    workload = workload.replace("microBatch: 1}\n", "microBatch: 1, optimizer: sgd}\n")
    files = written(tmp_path, topology, workload, TWO_STAGES)
    _, printed, _ = hulk("predict", *files, "-o", "json")
    found = json.loads(printed)
    assert found["fitsMemory"] == fits == all(row["fits"] for row in found["details"]["memory"])
    _, table, _ = hulk("predict", *files)
    assert words in table


def test_several_plans_are_not_saved_as_one(hulk: Hulk, tmp_path: Path) -> None:
    pair = [small(tmp_path, name=name, workers={"max": 2}) for name in ("first", "second")]
    code, _, _ = hulk(
        "plan", "-w", pair[0], "-w", pair[1], "-t", HULK_TOPOLOGY, "--save", tmp_path / "plan.yaml", "--details"
    )
    assert code == "hulk: --save writes one plan, and there are 2"


def test_where_there_is_no_plan_to_save_the_reason_is_printed(hulk: Hulk, tmp_path: Path) -> None:
    asked = ("plan", "-w", small(tmp_path, workers={"min": 64}), "-t", HULK_TOPOLOGY)
    saved = tmp_path / "plan.yaml"
    alone, saving = hulk(*asked), hulk(*asked, "--save", saved)
    assert "BatchTooSmall" in alone[1]
    assert saving[:2] == alone[:2]
    assert "there is no plan to write" in saving[2]
    assert not saved.exists()


def test_the_papers_data_become_a_topology_that_can_be_planned_on(hulk: Hulk, tmp_path: Path) -> None:
    (tmp_path / "node_feature.csv").write_text("node,City,Capability,Memory\n0,Tokyo ,8.6,80\n1,Paris,7.0,64\n")
    (tmp_path / "edge.txt").write_text("0 1 230\n0 0 1\n")
    target = tmp_path / "topology.yaml"
    code, printed, notes = hulk("topology", "import", "--hulk", tmp_path, "--bandwidth-mbits", "100", "-o", target)
    assert (code, printed) == (0, "")
    assert "hulk: note: edge.txt, line 2: 0 -> 0 1: a loop, left out" in notes
    _, same, _ = hulk("topology", "import", "--hulk", tmp_path, "--bandwidth-mbits", "100")
    assert same == target.read_text()
    code, planned, _ = hulk("plan", "-t", target, "-w", small(tmp_path), "-o", "json")
    assert code == 0
    assert json.loads(planned)["jobs"][0]["planned"]


def test_measured_links_are_still_what_topology_shows(hulk: Hulk) -> None:
    code, _, _ = hulk("topology", "-o", "json")
    assert "/does/not/exist" in str(code)
    code, printed, _ = hulk("topology", "-h")
    assert code == 0
    assert "import" in printed


def test_files_that_a_workload_names_are_beside_it(hulk: Hulk, tmp_path: Path) -> None:
    for name in ("measured-topology.yaml", "measured-plan.yaml"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    workload = yaml.safe_load((EXAMPLES / "measured-workload.yaml").read_text())
    (tmp_path / "profile.yaml").write_text(yaml.safe_dump(workload["model"]["profile"]))
    workload["model"] = {"profileFile": "profile.yaml"}
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(workload))
    beside = (
        "-t",
        tmp_path / "measured-topology.yaml",
        "-w",
        tmp_path / "w.yaml",
        "-p",
        tmp_path / "measured-plan.yaml",
    )
    inline = (*MEASURED, "-p", EXAMPLES / "measured-plan.yaml")
    assert hulk("predict", *beside, "-o", "json") == hulk("predict", *inline, "-o", "json")


def running(hulk: Hulk, tmp_path: Path) -> tuple[Path, Path]:
    """A workload of 20,000 steps, and its plan on three sites."""
    workload, plan = tmp_path / "running.yaml", tmp_path / "current.yaml"
    text = (EXAMPLES / "measured-workload.yaml").read_text()
    moving = "moving: {imageSeconds: 7, startSeconds: 9, storeRegion: site-a}\n"
    workload.write_text(text.replace("training: {", "training: {steps: 20000, ") + moving)
    code, _, _ = hulk("plan", *MEASURED[:2], "-w", workload, "--save", plan, "--details")
    assert code == 0
    return workload, plan


def topology_without(machine: str, tmp_path: Path) -> Path:
    path = tmp_path / "now.yaml"
    document = yaml.safe_load((EXAMPLES / "measured-topology.yaml").read_text())
    alike = document["machines"].pop(0)
    names = {"node-0", "node-1"} - {machine}
    document["machines"] += [{**alike, "name": name, "count": None} for name in sorted(names)]
    document["machines"] = [
        {key: value for key, value in entry.items() if value is not None}
        for entry in document["machines"]
        if entry["name"] != machine
    ]
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_running_plan_stays_where_nothing_changed(hulk: Hulk, tmp_path: Path) -> None:
    workload, plan = running(hulk, tmp_path)
    saved = tmp_path / "same.yaml"
    asked = ("plan", *MEASURED[:2], "-w", workload, "--from", plan, "--save", saved)
    code, printed, _ = hulk(*asked, "-o", "json")
    found = json.loads(printed)
    assert (code, found["verdict"]) == (0, "stay")
    assert found["reason"].startswith("No machine was lost or added, and no link drifted")
    assert found["stepMicrosecondsNow"] >= found["stepMicrosecondsNew"]
    assert saved.read_text() == plan.read_text()
    _, table, _ = hulk(*asked)
    assert "measured: stay" in table
    assert "nothing" in table


def test_a_plan_that_stays_keeps_what_it_was_made_of(hulk: Hulk, tmp_path: Path) -> None:
    """A link that has drifted for a minute is not the plan's own a minute later."""
    training = {"globalBatch": 16, "steps": 100_000}
    workload, plan = small(tmp_path, training=training, workers={"min": 2}), tmp_path / "p.yaml"
    then = write_uplinks(tmp_path / "then.yaml", 50, 10, LAN + WAN_LINK)
    assert hulk("plan", "-t", then, "-w", workload, "--save", plan, "--details")[0] == 0
    made_of = yaml.safe_load(plan.read_text())["madeOf"]
    now = write_uplinks(tmp_path / "now.yaml", 30, 10, LAN + WAN_LINK)
    asked = ("plan", "-t", now, "-w", workload, "--from", plan, "--save", plan, "-o", "json", "--held")
    for held_s in (60, 90):
        _, printed, _ = hulk(*asked, held_s)
        found = json.loads(printed)
        assert found["verdict"] == "stay"
        assert f"{held_s} s ago: only a change that lasts 120 s moves a job" in found["reason"]
        assert yaml.safe_load(plan.read_text())["madeOf"] == made_of


def test_what_changed_is_shown_of_uplinks_speeds_and_links_that_are_gone(hulk: Hulk, tmp_path: Path) -> None:
    workload, plan = tmp_path / "job.yaml", tmp_path / "plan.yaml"
    topology = write_uplinks(tmp_path / "then.yaml", 50, 10, LAN + WAN_LINK)
    workload.write_text(
        "apiVersion: hulk.dev/files/v1\nkind: Workload\nname: one\nmodel: {preset: gpt2}\n"
        "training: {globalBatch: 16, microBatch: 4, steps: 100000}\nworkers: {min: 2, max: 2}\n"
    )
    assert hulk("plan", "-t", topology, "-w", workload, "--save", plan, "--details")[0] == 0
    asked = ("plan", "-w", workload, "--from", plan)
    _, table, _ = hulk(*asked, "-t", write_uplinks(tmp_path / "slow.yaml", 20, 1, LAN + WAN_LINK))
    assert "uplink of eu: 6,250,000 -> 2,500,000 B/s (factor 2.50)" in table
    assert "speed of a: 10,000,000,000,000 -> 1,000,000,000,000 FLOP/s (factor 10.00)" in table
    assert "one flow 6.2 MB/s -> 2.5 MB/s" in " ".join(table.split())
    _, table, _ = hulk(*asked, "-t", write_uplinks(tmp_path / "gone.yaml", 50, 10, LAN))
    assert "of which nothing is known now" in " ".join(table.split())


LAN = "- {source: eu, target: eu, rttMilliseconds: 0.2, bandwidthGigabitsPerSecond: 10}\n"
WAN_LINK = "- {source: eu, target: us, symmetric: true, rttMilliseconds: 30, bandwidthMegabitsPerSecond: 400}\n"


def write_uplinks(path: Path, uplink_mbits: int, teraflops: int, links: str) -> Path:
    """Two machines in two regions; eu has an uplink, and a, which is there, a speed."""
    path.write_text(
        "apiVersion: hulk.dev/files/v1\nkind: Topology\n"
        f"regions: [{{name: eu, uplinkMegabitsPerSecond: {uplink_mbits}}}]\n"
        f"machines:\n- {{name: a, region: eu, teraflopsPerSecond: {teraflops}, memoryGigabytes: 80}}\n"
        f"- {{name: b, region: us, teraflopsPerSecond: 10, memoryGigabytes: 80}}\nlinks:\n{links}"
    )
    return path


def test_checkpoints_in_a_region_that_the_topology_lacks_are_told(hulk: Hulk, tmp_path: Path) -> None:
    """It may be lost, and then a plan is needed all the more; or mistyped."""
    workload, plan = running(hulk, tmp_path)
    asked = ("plan", *MEASURED[:2], "-w", workload, "--from", plan)
    assert hulk(*asked)[2] == ""
    workload.write_text(workload.read_text().replace("storeRegion: site-a", "storeRegion: site-x"))
    code, _, said = hulk(*asked)
    assert code == 0
    assert "moving.storeRegion: the topology has no site-x" in said


def test_a_lost_machine_moves_a_running_plan_and_the_new_one_is_saved(hulk: Hulk, tmp_path: Path) -> None:
    workload, plan = running(hulk, tmp_path)
    now, saved = topology_without("node-1", tmp_path), tmp_path / "new.yaml"
    asked = ("plan", "-t", now, "-w", workload, "--from", plan, "--step", "12000")
    code, printed, _ = hulk(*asked, "--save", saved, "-o", "json")
    found = json.loads(printed)
    assert (code, found["verdict"], found["stepsLeft"]) == (0, "move", 8000)
    assert [row["name"] for row in found["lost"]] == ["node-1"]
    assert "stepMicrosecondsNow" not in found
    assert sum(row["seconds"] for row in found["cost"]) == pytest.approx(found["costSeconds"])
    parts = {row["part"]: row["seconds"] for row in found["cost"]}
    assert parts["start of pods and processes"] == 9
    assert parts["image on new machines"] in (0, 7)
    _, again, _ = hulk("predict", "-t", now, "-w", workload, "-p", saved, "-o", "json")
    assert json.loads(again)["stepMicroseconds"] == found["stepMicrosecondsNew"]
    _, table, _ = hulk(*asked)
    for words in ("measured: move", "node-1 was lost", "node-1: 2 -> 0 accelerators", "checkpoint read"):
        assert words in table


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--step", "20001"), "the training has only 20000 steps"),
        (("-w", EXAMPLES / "workload.yaml"), "--from is of one workload"),
        (("--html", "page.html"), "--html and --advise are of new plans"),
        (("--advise",), "--html and --advise are of new plans"),
    ],
)
def test_what_cannot_be_asked_of_a_running_plan_is_one_sentence(
    hulk: Hulk, tmp_path: Path, arguments: tuple[object, ...], words: str
) -> None:
    workload, plan = running(hulk, tmp_path)
    code, _, _ = hulk("plan", *MEASURED[:2], "-w", workload, "--from", plan, *arguments, "--details")
    assert words in str(code)


def test_without_a_number_of_steps_nobody_knows_what_a_move_gains(hulk: Hulk, tmp_path: Path) -> None:
    _, plan = running(hulk, tmp_path)
    code, _, _ = hulk("plan", *MEASURED, "--from", plan, "--details")
    assert "training.steps is missing" in str(code)


def test_steps_that_were_made_are_of_a_plan_that_is_carried_out(hulk: Hulk) -> None:
    code, _, _ = hulk("plan", *MEASURED, "--step", "5", "--details")
    assert "give it with --from" in str(code)


def write_tiny(folder: Path, seconds: float) -> tuple[Path, Path, Path]:
    """One machine and a model of one layer that takes so long each way."""
    head = "apiVersion: hulk.dev/files/v1\nkind: "
    topology, workload, plan = (folder / name for name in ("t.yaml", "w.yaml", "p.yaml"))
    machine = "{name: a, region: eu, accelerators: 1, product: x, memoryGigabytes: 80}"
    topology.write_text(f"{head}Topology\nmachines: [{machine}]\n")
    layer = "{name: l, parameters: 1000, outputBytes: 1000, activationBytes: 1000}"
    times = f"{{product: x, microBatch: 1, forwardSeconds: [{seconds}], backwardSeconds: [{seconds}]}}"
    model = f"model: {{profile: {{layers: [{layer}], times: [{times}]}}}}\n"
    workload.write_text(f"{head}Workload\nname: j\n{model}training: {{globalBatch: 4, microBatch: 1}}\n")
    plan.write_text(f"{head}Plan\nlayout: {{data: 1}}\nmachines: [a]\n")
    return topology, workload, plan


def test_a_step_below_half_a_microsecond_is_shown(hulk: Hulk, tmp_path: Path) -> None:
    topology, workload, plan = write_tiny(tmp_path, 1e-8)
    assert "by the closed form" in hulk("predict", "-t", topology, "-w", workload, "-p", plan)[1]


def test_passes_that_take_no_time_to_speak_of_are_refused(hulk: Hulk, tmp_path: Path) -> None:
    topology, workload, _ = write_tiny(tmp_path, 1e-300)
    assert "must be >= 1e-12 s" in str(hulk("plan", "-t", topology, "-w", workload, "--details")[0])
