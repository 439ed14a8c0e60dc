"""One short job over three regions, watched by everything a user has: kubectl, hulk, the pods, Prometheus."""

from __future__ import annotations

import json
import re
import threading
import warnings
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, pairwise, permutations

import pytest
from hulk_lab import up
from hulk_lab.kube import Kube
from hulk_lab.processes import wait_until
from hulk_lab.wan import relay
from hulk_operator import dashboards
from lab_jobs import PATIENCE_S, TINY, Jobs, Object, is_scraped, job, nodes, query

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

NAME = "short"
STEPS = 40
MODEL = {"transformer": {**TINY, "sequenceLength": 48}}  # no other test's: nothing is known of it beforehand
NUM_WORKERS = 5  # of six accelerators in three regions: every region takes part, two nodes with two workers
STEP = re.compile(r"^(?P<time>\S+) step=(?P<step>\d+) loss=(?P<loss>\S+) ", re.MULTILINE)


@dataclass(slots=True)
class Live:
    """What `hulk logs -f` printed, and how the job was when its first step appeared."""

    kube: Kube
    jobs: Jobs
    lines: list[str] = field(default_factory=list)
    phase_at_first_step: str = ""

    def follow(self) -> threading.Thread:
        """Read in the background until the pod ends."""
        thread = threading.Thread(target=self._read, daemon=True)
        thread.start()
        return thread

    def _read(self) -> None:
        process = self.kube.follow("hulk", "logs", NAME, "-n", self.jobs.namespace, "-f")
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("step=") and not self.phase_at_first_step:
                self.phase_at_first_step = self.jobs.status(NAME)["phase"]
        process.wait()


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that was seen of the job."""

    status: Object
    plan: Object
    pods: list[Object]
    log: str  # of rank 0, a time before each line
    live: Live
    explained: Object
    idle: list[Object]  # of all links, read soon after the first step and when every link in use was seen under load
    loaded: list[Object]

    @property
    def planned_nodes(self) -> list[str]:
        return [worker["node"] for worker in self.plan["workers"]]


@pytest.fixture(scope="module")
def record(installed: up.Lab, jobs: Jobs) -> Record:
    """Run the job to its end and look at it on the way."""
    counters = relay.stats(installed.net)
    live = Live(installed.kube, jobs)
    jobs.submit(job(NAME, (NUM_WORKERS, NUM_WORKERS), steps=STEPS, checkpoint_every=20, model=MODEL))
    jobs.wait_phase(NAME, "Running")
    reader = live.follow()
    pods, plan = jobs.pods(NAME), jobs.plan(NAME)
    jobs.wait(NAME, "its first steps", lambda now: now.get("observed", {}).get("step"))
    early_rows = links(installed)
    explained = json.loads(installed.kube.run("hulk", "explain", NAME, "-n", jobs.namespace, "-o", "json"))
    wait_until(
        lambda: edges(plan) <= {(row["source"], row["target"]) for row in links(installed) if row["underLoad"]},
        f"links under load of {edges(plan)}",
        timeout_s=PATIENCE_S,
        interval_s=0.5,
    )
    rows = links(installed)
    status = jobs.wait_phase(NAME, "Succeeded")
    reader.join(timeout=30)
    lateness = relay.lateness(counters, relay.stats(installed.net))
    if not lateness.is_valid:
        warnings.warn(f"the step times of job {NAME} mean nothing: {lateness}", stacklevel=1)
    return Record(
        status=status,
        plan=plan,
        pods=pods,
        log=installed.kube.kubectl("logs", "--timestamps", pods[0]["metadata"]["name"], "-n", jobs.namespace),
        live=live,
        explained=explained,
        idle=[row for row in (*early_rows, *rows) if not row["underLoad"]],
        loaded=[row for row in rows if row["underLoad"]],
    )


def links(lab: up.Lab) -> list[Object]:
    """Every measured link of every NodeProfile."""
    profiles = lab.kube.get("nodeprofiles")["items"]
    return [
        {"source": profile["metadata"]["name"], **row}
        for profile in profiles
        for row in profile.get("status", {}).get("links", [])
    ]


def edges(plan: Object) -> set[tuple[str, str]]:
    """Directed links of the ring: data flows from each rank's node to that of the rank before it."""
    ring = [worker["node"] for worker in plan["workers"]]
    return {(source, target) for target, source in pairwise([*ring, ring[0]]) if source != target}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_it_trains_in_every_region_and_the_loss_falls(record: Record) -> None:
    losses = {int(found["step"]): float(found["loss"]) for found in STEP.finditer(record.log)}
    assert list(losses) == list(range(1, STEPS + 1))
    assert losses[STEPS] < 0.9 * losses[1]
    assert {region["name"] for region in record.status["plan"]["regions"]} == {"ap", "eu", "us"}
    assert record.status["observed"]["step"] == STEPS
    assert float(record.status["observed"]["loss"]) == pytest.approx(losses[STEPS], abs=1e-4)
    assert (record.status["failures"], record.status["disruptions"]) == (0, 0)


def test_the_pods_stand_in_the_planned_ring(record: Record, jobs: Jobs) -> None:
    assert nodes(record.pods) == record.planned_nodes
    assert f" order={','.join(record.planned_nodes)}\n" in record.log
    assert [worker["node"] for worker in record.explained["plan"]["workers"]] == record.planned_nodes
    regions = [worker["region"] for worker in record.plan["workers"]]
    assert record.status["plan"]["order"] == [region for region, _ in groupby(regions)]
    environments = [{item["name"]: item.get("value") for item in environment(pod)} for pod in record.pods]
    assert [found["RANK"] for found in environments] == [str(rank) for rank in range(NUM_WORKERS)]
    assert {found["MASTER_ADDR"] for found in environments} == {f"{NAME}-1.{jobs.namespace}.svc"}


def environment(pod: Object) -> list[Object]:
    found: list[Object] = pod["spec"]["containers"][0]["env"]
    return found


def test_the_prediction_was_written_before_the_first_step(record: Record) -> None:
    prediction, observed = record.status["prediction"], record.status["observed"]
    first_step = STEP.search(record.log)
    assert first_step is not None
    assert moment(prediction["writtenAt"]) <= moment(first_step["time"])
    assert (prediction["source"], prediction["calibrated"], prediction["attempt"]) == ("preflight", True, 1)
    assert record.log.index("start: the prediction is written") < first_step.start()
    assert prediction["stepMicroseconds"] > 0
    error = (prediction["stepMicroseconds"] - observed["stepMicroseconds"]) / observed["stepMicroseconds"]
    assert float(observed["relativeError"]) == pytest.approx(error, abs=1e-3)


def test_what_the_machines_do_is_kept_for_the_next_job(record: Record, installed: up.Lab) -> None:
    for name in set(record.planned_nodes):
        speeds = installed.kube.get("nodeprofile", name)["status"]["accelerators"]
        new = [speed for speed in speeds if moment(speed["time"]) >= moment(record.status["startTime"])]
        assert [speed["product"] for speed in new] == ["lab-cpu"]
        assert new[0]["flopsPerSecond"] > 0
        assert new[0]["samples"] >= 1


def test_links_in_use_are_measured_by_the_job_and_idle_samples_stay(record: Record) -> None:
    started = moment(record.status["startTime"])  # other jobs have used other links before
    used = {(row["source"], row["target"]): row for row in record.loaded if moment(row["time"]) >= started}
    assert set(used) == edges(record.plan)
    assert all(row["rttP50Microseconds"] > 0 and row["bandwidthBytesPerSecond"] > 0 for row in used.values())
    steps = [moment(found["time"]) for found in STEP.finditer(record.log)]
    assert {(row["source"], row["target"]) for row in record.idle} >= edges(record.plan)
    for row in record.idle:
        for measured in (moment(row["time"]), moment(row["bandwidthTime"])):
            assert not steps[0] < measured < steps[-1], row


def test_its_state_is_in_the_object_store(record: Record) -> None:
    assert record.status["checkpoint"]["where"] == f"s3://checkpoints/{NAME}"
    assert f"checkpoint step={STEPS} " in record.log
    assert record.status["checkpoint"]["bytes"] > 0
    assert record.status["checkpoint"]["step"] == STEPS


def test_hulk_logs_shows_the_steps_while_they_happen(record: Record) -> None:
    assert record.live.phase_at_first_step == "Running"
    steps = [line for line in record.live.lines if line.startswith("step=")]
    assert [line.split()[0] for line in steps] == [f"step={step}" for step in range(1, STEPS + 1)]


def test_all_reduces_and_links_are_compared_with_the_plan(record: Record, installed: up.Lab) -> None:
    """In the status, in the log and for Grafana, whose panels would show 0 for a job without such all-reduces."""
    assert record.plan["algorithm"] == "wan"
    seen = record.status["observed"]["wan"]
    planned = {size["maxBytes"] for size in record.plan["collective"]["classes"]}
    assert {size["maxBytes"] for size in seen["allReduces"]} <= planned
    assert all(size["observedMicroseconds"] > 0 for size in seen["allReduces"])
    assert all(size["predictedMicroseconds"] >= size["boundMicroseconds"] for size in seen["allReduces"])
    assert {(link["source"], link["target"]) for link in seen["regionLinks"]} <= set(
        permutations(("ap", "eu", "us"), 2)
    )
    assert re.search(r"all-reduce max_mb=\S+ n=\d+ observed=\S+s predicted=\S+s bound=\S+s error=\S+%\n", record.log)
    assert re.search(r"link (ap|eu|us)->(ap|eu|us) planned=\S+MB/s observed=", record.log)
    for metric in ("all_reduce_observed_seconds", "region_link_planned_bytes_per_second"):
        series = f'hulk_job_{metric}{{job="{NAME}"}}'
        wait_until(lambda series=series: query(installed, series), series, timeout_s=PATIENCE_S, interval_s=1)


@pytest.mark.parametrize(
    ("panel", "expression"), dashboards.queries(), ids=[panel for panel, _ in dashboards.queries()]
)
def test_a_dashboard_panel_shows_data(record: Record, installed: up.Lab, panel: str, expression: str) -> None:
    """With `or vector(0)` it always would: the operand before it, empty while nothing is wrong, must be scraped."""
    assert record.status["phase"] == "Succeeded"
    operand, has_fallback, _ = expression.partition(" or vector(0)")
    for metric in re.findall(r"hulk_\w+", operand) if has_fallback else ():
        wait_until(lambda metric=metric: is_scraped(installed, metric), metric, timeout_s=PATIENCE_S, interval_s=1)
    wait_until(lambda: query(installed, expression), f"{panel}: {expression}", timeout_s=PATIENCE_S, interval_s=1)
    assert all(series["value"][1] != "NaN" for series in query(installed, expression)), panel
