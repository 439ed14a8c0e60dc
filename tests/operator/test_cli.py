"""The command line without a cluster: plans from files, mistakes in files, output for people and for programs."""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hulk_operator.api import DeclaredLink, HulkJob, HulkTopology, HulkTopologySpec, LinkStatus, NodeProfile
from hulk_operator.api.crds import crds
from hulk_operator.cli import main, tables
from hulk_operator.cli.explain import with_observed
from hulk_operator.cli.output import plain
from hulk_operator.cli.plan_reports import declared_topology, plan_from_files, plan_report
from hulk_operator.cli.reports import ExplainReport, FlowRow, PlanReport, PlanReports
from hulk_operator.cli.topology import topology_report
from hulk_operator.probing.link_validation import Accepted, accept
from hulk_placement.plan import Layout, Plan, Prediction, WorkerSlot
from hulk_placement.topology import Machine

ROOT = Path(__file__).parents[2]
JOB, TOPOLOGY = ROOT / "examples" / "hulkjob.yaml", ROOT / "examples" / "topology.yaml"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Hulk = Any


@pytest.fixture
def hulk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hulk:
    """hulk(arguments...) -> (exit code or message, standard output)."""
    monkeypatch.setenv("KUBECONFIG", "/does/not/exist")

    def call(*arguments: object) -> tuple[Any, str]:
        monkeypatch.setattr(sys, "argv", ["hulk", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code, capsys.readouterr().out

    return call


def write(path: Path, *documents: Any) -> Path:
    path.write_text(yaml.safe_dump_all(documents))
    return path


def example(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(JOB.read_text())
    document["spec"] |= changes
    return document


def test_brackets_in_names_are_printed_as_they_are() -> None:
    made = tables.table("NODE", "PRODUCT")
    made.add_row("fra[a]-0", "gpu [bold]x[/nope]")
    assert plain(made).splitlines()[1].split("  ")[0] == "fra[a]-0"
    assert "gpu [bold]x[/nope]" in plain(made)


def test_a_plan_from_files_names_every_worker_its_link_and_why(hulk: Hulk) -> None:
    code, printed = hulk("plan", "-f", JOB, "--topology", TOPOLOGY, "--details")
    assert code == 0
    assert printed.startswith("default/demo: ")
    for word in ("predicted = compute", "bottleneck", "THE STEP GOES TO", "eu-a", "ap-a", "why"):
        assert word in printed
    assert not any(line.endswith(" ") for line in printed.splitlines())


def test_json_and_yaml_say_the_same(hulk: Hulk) -> None:
    arguments = ("plan", "-f", JOB, "--topology", TOPOLOGY, "-n", "research")
    (_, as_json), (_, as_yaml) = hulk(*arguments, "-o", "json"), hulk(*arguments, "-o", "yaml")
    (plan,) = json.loads(as_json)["jobs"]
    assert json.loads(as_json) == yaml.safe_load(as_yaml)
    assert plan["job"] == "research/demo"
    assert sum(worker["sequences"] for worker in plan["workers"]) == 12
    prediction = plan["prediction"]
    parts = prediction["computeMicroseconds"] + prediction["communicationMicroseconds"]
    assert abs(prediction["stepMicroseconds"] - parts) <= 1


def test_a_plan_of_hulks_own_all_reduce_shows_its_flows(hulk: Hulk) -> None:
    _, out = hulk("plan", "-f", JOB, "--topology", TOPOLOGY, "--details")
    _, as_json = hulk("plan", "-f", JOB, "--topology", TOPOLOGY, "-o", "json")
    (plan,) = json.loads(as_json)["jobs"]
    assert plan["algorithm"] == "wan"
    assert "PHYSICAL BOUND" in out
    for row in plan["flows"]:
        assert row["predictedMicroseconds"] >= row["boundMicroseconds"]
    assert any("exchange" in flow or "sums" in flow for row in plan["flows"] for flow in row["flows"])
    assert any(reason.startswith("Physics:") for reason in plan["why"])


def test_data_goes_from_each_worker_to_the_one_before_it() -> None:
    ring = example()
    ring["spec"]["sync"] = {"mode": "ring"}
    found = HulkJob.model_validate(ring)
    spec = HulkTopology.model_validate(yaml.safe_load(TOPOLOGY.read_text())).spec
    (plan,) = plan_from_files([found], spec, {})
    nodes = [worker.node for worker in plan.workers]
    assert [worker.sends_to for worker in plan.workers] == [nodes[-1], *nodes[:-1]]
    for worker in plan.workers:
        assert worker.link is not None
        assert (worker.link.source, worker.link.target) == (worker.node, worker.sends_to)


def test_two_jobs_of_one_file_do_not_share_an_accelerator(hulk: Hulk, tmp_path: Path) -> None:
    first, second = example(workers={"min": 3, "max": 3}), example(workers={"min": 3, "max": 3})
    second["metadata"] = {"name": "second"}
    _, printed = hulk("plan", "-f", write(tmp_path / "jobs.yaml", first, second), "--topology", TOPOLOGY, "-o", "json")
    used = [worker["node"] for plan in json.loads(printed)["jobs"] for worker in plan["workers"]]
    assert len(used) == len(set(used)) == 6


def test_a_job_that_fits_nowhere_says_so_with_numbers_and_fails(hulk: Hulk, tmp_path: Path) -> None:
    code, printed = hulk(
        "plan", "-f", write(tmp_path / "j.yaml", example(workers={"min": 7, "max": 8})), "-f", TOPOLOGY
    )
    assert code == 1
    assert "no plan (NotEnoughAccelerators)" in printed
    assert "7 workers" in printed
    assert "the largest has 1" in " ".join(printed.split())


def test_one_region_is_one(hulk: Hulk, tmp_path: Path) -> None:
    job = example(workers={"min": 1, "max": 2}, placement={"regions": ["eu-west"]})
    _, printed = hulk("plan", "-f", write(tmp_path / "job.yaml", job), "--topology", TOPOLOGY, "--details")
    assert "2 workers, 2 accelerators, 1 region, " in printed
    assert "2 workers in 1 region (asked for" in printed


def test_a_model_is_read_from_the_config_map_beside_the_job(hulk: Hulk) -> None:
    code, printed = hulk("plan", "-f", ROOT / "examples" / "plain-torch.yaml", "--topology", TOPOLOGY, "-o", "json")
    assert code == 0
    assert json.loads(printed)["jobs"][0]["planned"]


def test_a_missing_config_map_is_named(hulk: Hulk) -> None:
    code, printed = hulk("plan", "-f", ROOT / "examples" / "torchrun.yaml", "--topology", TOPOLOGY, "--details")
    assert code == 1
    assert "ModelNotFound" in printed
    said = " ".join(printed.split())
    assert "ConfigMap plain-torch with key profile.json of namespace default" in said
    assert "add it with another -f (kubectl create configmap plain-torch --from-file=profile.json --dry-run" in said


def test_residency_of_the_topology_holds_for_plans_from_files(hulk: Hulk, tmp_path: Path) -> None:
    topology = yaml.safe_load(TOPOLOGY.read_text())
    topology["spec"]["residency"] = [{"namespace": "default", "regions": ["eu-west"]}]
    path = write(tmp_path / "all.yaml", example(workers={"min": 1, "max": 6}), topology)
    _, printed = hulk("plan", "-f", path, "-o", "json")
    assert {worker["region"] for worker in json.loads(printed)["jobs"][0]["workers"]} == {"eu-west"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "kind: HulkJob\napiVersion: hulk.dev/v1alpha1\nmetadata: {name: a}\nspec: {worker: {}}",
            "did you mean workers?",
        ),
        ("a: [", "not YAML"),
        ("- 1", "expected Kubernetes objects"),
        ("kind: Pod", "no HulkJob in"),
        ("kind: TrainJob", "mine.yaml (it holds a TrainJob; names are compared in docs/reference/api.md)"),
    ],
    ids=["misspelt field", "not YAML", "not an object", "no job", "another project's job"],
)
def test_a_mistake_in_a_file_is_one_message_with_the_files_name(
    hulk: Hulk, tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    code, printed = hulk("plan", "-f", path, "--topology", TOPOLOGY, "--details")
    assert expected in code
    assert str(path) in code
    assert printed == ""


JOB_HEAD = "kind: HulkJob\napiVersion: hulk.dev/v1alpha1\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: ConfigMap\ndata: {}", "ConfigMap: metadata must be a map with a name"),
        ("kind: ConfigMap\nmetadata: null", "ConfigMap: metadata must be a map with a name"),
        ("kind: ConfigMap\nmetadata: {name: a}\ndata: [b]", "ConfigMap a: data must be a map of texts"),
        (f"{JOB_HEAD}metadata: demo", "HulkJob: metadata must be a map with a name"),
        (f"{JOB_HEAD}metadata: {{name: [a]}}", "HulkJob: metadata must be a map with a name"),
        (f"{JOB_HEAD}metadata: {{name: a}}\nspec: {{2026-01-02: b}}", "not an object of texts"),
        ("kind: Pod\n---\nkind: ConfigMap", "document 2: ConfigMap: metadata must be a map with a name"),
        ("kind: [Pod]", "no HulkJob in"),
        ("\xff", "not UTF-8 text"),
        ("[" * 2000, "not YAML"),
        ('kind: !!int ""', "not YAML"),
    ],
)
def test_a_broken_file_is_one_message_and_no_traceback(hulk: Hulk, tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(text.encode("latin-1"))
    code, _ = hulk("plan", "-f", path, "--details")
    assert expected in code
    assert str(path) in code


def test_a_topology_file_without_a_topology_is_refused_instead_of_asking_the_cluster(hulk: Hulk) -> None:
    code, _ = hulk("plan", "-f", JOB, "--topology", JOB.with_name("plain-torch.yaml"), "--details")
    assert code == f"hulk: {JOB.with_name('plain-torch.yaml')}: no Topology or HulkTopology in it"


@pytest.mark.parametrize(("twice", "key"), [(JOB, "HulkJob default/demo"), (TOPOLOGY, "HulkTopology")])
def test_what_is_there_twice_is_named(hulk: Hulk, twice: Path, key: str) -> None:
    code, _ = hulk("plan", "-f", JOB, "-f", twice, "--topology", TOPOLOGY, "--details")
    assert f"{key} is there twice; the first one is in {twice}" in code


def test_the_config_map_of_another_namespace_is_not_the_jobs(hulk: Hulk, tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((ROOT / "examples" / "plain-torch.yaml").read_text()))
    for document in documents:
        if document["kind"] == "ConfigMap":
            document["metadata"]["namespace"] = "other"
    code, printed = hulk("plan", "-f", write(tmp_path / "j.yaml", *documents), "--topology", TOPOLOGY, "--details")
    assert code == 1
    assert "of namespace default was not found" in printed


def test_without_a_cluster_and_without_nodes_the_message_says_what_is_missing(hulk: Hulk) -> None:
    code, _ = hulk("plan", "-f", JOB, "--details")
    assert "there is no kubeconfig /does/not/exist" in code
    assert code.endswith("or plan from files with --topology examples/topology.yaml")


def test_crds_are_printed_as_generated(hulk: Hulk) -> None:
    code, printed = hulk("crds")
    assert code == 0
    assert tuple(yaml.load_all(printed, Loader=yaml.CSafeLoader)) == crds()


def test_version_names_the_api(hulk: Hulk) -> None:
    _, printed = hulk("version", "-o", "json")
    assert json.loads(printed)["api"] == "hulk.dev/v1alpha1"


def test_a_topology_without_nodes_cannot_be_planned_on() -> None:
    with pytest.raises(ValueError, match="declares no nodes"):
        declared_topology(HulkTopology.model_validate({"metadata": {"name": "cluster"}, "spec": {}}).spec)


MARS = {"source": "mars", "target": "eu-a", "rttMicroseconds": 9, "bandwidthBytesPerSecond": 7}


@pytest.mark.parametrize(
    ("field", "entry", "expected"),
    [
        ("links", MARS, "spec.links[9]: neither a node nor a region of spec.nodes: mars"),
        ("links", MARS | {"source": "us-east"}, "spec.links[9]: us-east -> eu-a joins a node and a region"),
        ("uplinks", {"region": "mars", "bytesPerSecond": 9}, ".region: mars is no region of spec.nodes"),
        ("egress", {"source": "eu-west", "target": "mars", "perGb": "1"}, ": no region of spec.nodes: mars"),
        ("nodes", {"name": "big", "region": "eu-west", "accelerators": 10**9}, "accelerators together, at most"),
    ],
    ids=["unknown place", "node and region", "uplink", "egress", "too many"],
)
def test_what_a_topology_says_of_places_it_does_not_have_is_refused(
    hulk: Hulk, tmp_path: Path, field: str, entry: dict[str, Any], expected: str
) -> None:
    topology = yaml.safe_load(TOPOLOGY.read_text())
    topology["spec"].setdefault(field, []).append(entry)
    path = write(tmp_path / "topology.yaml", topology)
    code, _ = hulk("plan", "-f", JOB, "--topology", path, "--details")
    assert f"{path}: HulkTopology cluster:" in code
    assert expected in code


def test_a_topology_for_a_cluster_may_name_regions_that_have_no_node_yet(hulk: Hulk, tmp_path: Path) -> None:
    topology = yaml.safe_load(TOPOLOGY.read_text())
    topology["spec"] = {"links": [MARS]}
    code, _ = hulk("plan", "-f", JOB, "--topology", write(tmp_path / "topology.yaml", topology), "--details")
    assert "there is no kubeconfig" in code


@pytest.mark.parametrize(
    ("gap", "expected"),
    [(0.0, "proven best"), (0.00004, "at most 0.1 % from the best"), (0.0123, "at most 1.2 % from the best")],
)
def test_only_a_gap_of_nothing_is_proven_best(gap: float, expected: str) -> None:
    spec = HulkTopology.model_validate(yaml.safe_load(TOPOLOGY.read_text())).spec
    topology = declared_topology(spec)
    prediction = Prediction(2.0, 1.5, 0.5, None, (), 0, True)
    plan = Plan("a/b", 1, (WorkerSlot("eu-a", "eu-west", 1),), (1,), 1, 1, prediction, Layout(1), optimality_gap=gap)
    report = PlanReports(jobs=(plan_report(plan, topology),))
    assert expected in plain(tables.plans(report))


def test_a_link_between_names_that_are_region_and_node_joins_regions() -> None:
    nodes = [{"name": name, "region": name, "accelerators": 1} for name in ("a", "b")]
    link = {"source": "a", "target": "b", "rttMicroseconds": 9, "bandwidthBytesPerSecond": 7}
    spec = HulkTopologySpec.model_validate({"nodes": nodes, "links": [link]})
    assert set(declared_topology(spec).region_links) == {("a", "b")}


MACHINES = [Machine("a1", "a"), Machine("a2", "a"), Machine("b1", "b"), Machine("c1", "c")]


def profile(node: str, *links: dict[str, Any]) -> NodeProfile:
    rows = tuple(LinkStatus.model_validate({"time": NOW - timedelta(seconds=60), **link}) for link in links)
    return NodeProfile.model_validate({"metadata": {"name": node}, "status": {"links": [row.wire() for row in rows]}})


def accepted() -> Accepted:
    profiles = [
        profile(
            "a1",
            {"target": "b1", "rttP50Microseconds": 70_000, "bandwidthBytesPerSecond": 50_000_000, "streams": 4},
            {"target": "b1", "rttP50Microseconds": 400_000, "underLoad": True},
            {"target": "c1", "rttP50Microseconds": -5},
        ),
        profile("a2", {"target": "b1", "rttP50Microseconds": 72_000}),
    ]
    return accept(profiles, {machine.name for machine in MACHINES}, NOW)


def test_the_matrix_has_every_directed_pair_and_says_how_each_is_known() -> None:
    declared = DeclaredLink(source="b", target="a", rtt_microseconds=9, bandwidth_bytes_per_second=7)
    report = topology_report(MACHINES, accepted(), [declared], NOW)
    links = {(link.source, link.target): link for link in report.region_links}
    assert len(links) == 3 * 2 + 1  # and the inside of a, the only region with two nodes
    there = links["a", "b"]
    assert (there.kind, there.rtt_microseconds, there.bandwidth_bytes_per_second) == ("measured", 71_000, 50_000_000)
    assert (there.age_seconds, there.streams) == (60, 4)
    assert (links["b", "a"].kind, links["b", "a"].rtt_microseconds) == ("declared", 9)
    assert (links["a", "c"].kind, links["a", "c"].rtt_microseconds) == ("unknown", None)


def test_a_lie_is_shown_as_refused_and_load_is_not_shown_as_idle() -> None:
    report = topology_report(MACHINES, accepted(), [], NOW)
    (refused,) = report.refused
    assert (refused.source, refused.target, refused.reason) == ("a1", "c1", "ImpossibleRtt")
    assert {(link.source, link.target) for link in report.node_links} == {("a1", "b1"), ("a2", "b1")}
    printed = plain(tables.topology(report))
    assert "refused a1 -> c1" in printed
    assert "71.0 ms, 50.0 MB/s" in printed
    assert "400" not in printed


def test_many_regions_are_listed_instead_of_a_matrix() -> None:
    machines = [Machine(f"n{number}", f"r{number}") for number in range(12)]
    printed = plain(tables.topology(topology_report(machines, Accepted(()), [], NOW)))
    assert "FROM \\ TO" not in printed
    assert printed.count("unknown") == 12 * 11


def test_a_running_job_is_explained_with_what_all_reduces_and_links_did() -> None:
    document = example()
    document["metadata"]["namespace"] = "team"
    sizes = [{"maxBytes": 4 << 20, "observedMicroseconds": 500_000, "predictedMicroseconds": 450_000}]
    links = [
        {"source": "eu", "target": "us", "plannedBytesPerSecond": 10_000_000, "observedBytesPerSecond": 8_000_000},
        {"source": "us", "target": "eu", "plannedBytesPerSecond": 20_000_000},
    ]
    wan = {"allReduces": sizes, "regionLinks": links}
    seen = {"step": 3, "updatedAt": "2026-01-02T03:04:05Z", "wan": wan}
    document["status"] = {"phase": "Running", "attempt": 1, "observed": seen}
    job = HulkJob.model_validate(document)
    rows = (
        FlowRow(max_bytes=1 << 16, predicted_microseconds=90_000, bound_microseconds=80_000, flows=("100% a",)),
        FlowRow(max_bytes=4 << 20, predicted_microseconds=450_000, bound_microseconds=400_000, flows=("100% b",)),
    )
    plan = PlanReport(job=job.key, planned=True, algorithm="wan", flows=with_observed(rows, job))
    report = ExplainReport(job=job.key, steps=30, plan=plan, status=job.status)
    lines = [" ".join(line.split()) for line in plain(tables.explained(report, job, NOW)).splitlines()]
    assert "VECTORS UP TO PREDICTED OBSERVED ERROR PHYSICAL BOUND FLOWS" in lines
    assert "64.0 KiB 90.0 ms - - 80.0 ms 100% a" in lines
    assert "4.0 MiB 450.0 ms 500.0 ms 10.0 % 400.0 ms 100% b" in lines
    assert "eu -> us 10.0 MB/s 8.0 MB/s 25.0 %" in lines
    assert "us -> eu 20.0 MB/s - -" in lines
    assert report.wire()["plan"]["flows"][1]["observedMicroseconds"] == 500_000


def test_a_failed_job_shows_exit_code_node_and_last_lines() -> None:
    document = example()
    document["status"] = {
        "phase": "Failed",
        "attempt": 2,
        "failures": 4,
        "disruptions": 1,
        "conditions": [
            {"type": "Failed", "status": "True", "reason": "BackoffLimit", "message": "4 failures, 3 allowed",
             "lastTransitionTime": "2026-01-02T03:00:05Z"}
        ],
        "lastFailure": {"attempt": 2, "pod": "demo-2-0", "node": "a1", "exitCode": 65, "reason": "UserError",
                        "message": "line one\nline two", "time": "2026-01-02T03:00:00Z"},
        "replan": {"attempt": 1, "verdict": "move", "reason": "7 h is gained", "time": "2026-01-02T02:00:00Z"},
    }  # fmt: skip
    printed = plain(tables.job_state(HulkJob.model_validate(document), NOW))
    for words in (
        "demo-2-0 on a1, exit code 65: UserError",
        "line two",
        "4 failures, 3 allowed",
        "1 disruption",
        "that of attempt 1 is given up for another one: 7 h is gained",
        "4m",
    ):
        assert words in printed
