"""The operator's series: made from a snapshot, gone with what they are about, and listed in the reference."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from hulk_operator import metrics
from hulk_operator.api import HulkJob, LinkStatus, NodeProfile
from hulk_operator.metrics import DEFINITIONS, Health, RingPlace, Snapshot, registry, ring
from hulk_operator.metrics.reference import page
from hulk_operator.metrics.snapshot import MAX_SILENCE_S
from hulk_operator.probing import Decision, ProbeState, accept
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from views import plan

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIME = "2026-01-01T11:59:00Z"


def job(name: str = "demo", status: dict[str, object] | None = None) -> HulkJob:
    return HulkJob.model_validate(
        {
            "metadata": {"name": name, "namespace": "research"},
            "spec": {
                "workers": {"max": 2},
                "model": {
                    "transformer": {"layers": 2, "hidden": 8, "heads": 2, "sequenceLength": 8, "vocabulary": 256}
                },
                "training": {"globalBatch": 4, "steps": 10},
                "template": {"spec": {"containers": [{"name": "worker", "image": "hulk:0.1.0"}]}},
            },
            "status": status or {},
        }
    )


RUNNING: dict[str, object] = {
    "phase": "Running",
    "attempt": 2,
    "failures": 1,
    "disruptions": 3,
    "plan": {
        "name": "demo-plan-2",
        "digest": "d",
        "attempt": 2,
        "algorithm": "ring",
        "numWorkers": 2,
        "numAccelerators": 2,
        "layout": {"data": 2},
        "bottleneck": {"source": "a", "target": "b", "rttMicroseconds": 1, "bandwidthBytesPerSecond": 1},
    },
    "prediction": {
        "attempt": 2,
        "stepMicroseconds": 500_000,
        "computeMicroseconds": 1,
        "communicationMicroseconds": 1,
        "bubbleMicroseconds": 120_000,
        "transferMicroseconds": 20_000,
        "calibrated": True,
        "source": "preflight",
        "writtenAt": TIME,
    },
    "observed": {
        "step": 7,
        "stepMicroseconds": 400_000,
        "loss": "2.5",
        "relativeError": "0.25",
        "refusedCheckpoints": 2,
        "pipeline": {"stage": 1, "bubbleMicroseconds": 150_000, "transferMicroseconds": 0},
        "wan": {
            "allReduces": [
                {"maxBytes": 64, "observedMicroseconds": 9},
                {
                    "maxBytes": 4096,
                    "observedMicroseconds": 500_000,
                    "predictedMicroseconds": 450_000,
                    "boundMicroseconds": 400_000,
                },
            ],
            "regionLinks": [
                {"source": "eu", "target": "us", "plannedBytesPerSecond": 20, "observedBytesPerSecond": 19},
                {"source": "us", "target": "eu", "plannedBytesPerSecond": 10},
            ],
        },
        "updatedAt": TIME,
    },
    "checkpoint": {"step": 5, "where": "s3://x", "bytes": 1},
}


def profile(source: str, *links: LinkStatus) -> NodeProfile:
    return NodeProfile.model_validate(
        {"metadata": {"name": source}, "status": {"links": [row.wire() for row in links]}}
    )


def link(target: str, rtt_us: int = 50_000, rate: int | None = 1_000_000, age_s: float = 60.0) -> LinkStatus:
    return LinkStatus(
        target=target,
        rtt_p50_microseconds=rtt_us,
        rtt_p95_microseconds=rtt_us,
        bandwidth_bytes_per_second=rate,
        time=NOW - timedelta(seconds=age_s),
    )


def probing(*profiles: NodeProfile, region_of: dict[str, str]) -> ProbeState:
    return ProbeState(accepted=accept(profiles, region_of, NOW), region_of=region_of)


def samples(found: CollectorRegistry) -> list[Sample]:
    return [sample for family in found.collect() for sample in family.samples]


def series(snapshot: Snapshot, health: Health | None = None) -> dict[tuple[str, tuple[str, ...]], float]:
    found = samples(registry(lambda: snapshot, health or Health(), lambda: NOW))
    keys = [(sample.name, tuple(sample.labels.values())) for sample in found]
    assert len(keys) == len(set(keys))
    return {(sample.name, tuple(sample.labels.values())): sample.value for sample in found}


def test_everything_about_a_running_job() -> None:
    places = (RingPlace("a", "eu"), RingPlace("b", "us"), RingPlace("b", "us"))
    found = series(Snapshot(jobs=(job(status=RUNNING),), rings={"research/demo": places}))
    key = ("research", "demo")
    assert (
        found.items()
        >= {
            ("hulk_job_phase", (*key, "Running")): 1,
            ("hulk_job_attempt", key): 2,
            ("hulk_job_step", key): 7,
            ("hulk_job_loss", key): 2.5,
            ("hulk_job_predicted_step_seconds", key): 0.5,
            ("hulk_job_observed_step_seconds", key): 0.4,
            ("hulk_job_step_relative_error", key): 0.25,
            ("hulk_job_all_reduce_predicted_seconds", (*key, "4096")): 0.45,
            ("hulk_job_all_reduce_observed_seconds", (*key, "64")): 9e-6,
            ("hulk_job_all_reduce_observed_seconds", (*key, "4096")): 0.5,
            ("hulk_job_all_reduce_bound_seconds", (*key, "4096")): 0.4,
            ("hulk_job_region_link_planned_bytes_per_second", (*key, "eu", "us")): 20,
            ("hulk_job_region_link_observed_bytes_per_second", (*key, "eu", "us")): 19,
            ("hulk_job_region_link_planned_bytes_per_second", (*key, "us", "eu")): 10,
            ("hulk_job_pipeline_predicted_seconds", (*key, "bubble")): 0.12,
            ("hulk_job_pipeline_predicted_seconds", (*key, "transfer")): 0.02,
            ("hulk_job_pipeline_observed_seconds", (*key, "bubble")): 0.15,
            ("hulk_job_pipeline_observed_seconds", (*key, "transfer")): 0.0,
            ("hulk_job_checkpoint_step", key): 5,
            ("hulk_job_checkpoint_refused", key): 2,
            ("hulk_job_failures", key): 1,
            ("hulk_job_disruptions", key): 3,
            ("hulk_job_bottleneck_link_info", (*key, "a", "b")): 1,
            ("hulk_job_ring_position", (*key, "a", "eu")): 0,
            ("hulk_job_ring_position", (*key, "b", "us")): 1,
        }.items()
    )


def test_workers_that_were_left_out_are_counted() -> None:
    key = ("hulk_job_workers_left_out", ("research", "demo"))
    cut_off = {**RUNNING, "membership": {"epoch": 1, "workers": 1, "without": ["us"], "since": TIME}}
    assert series(Snapshot(jobs=(job(status=RUNNING),)))[key] == 0
    assert series(Snapshot(jobs=(job(status=cut_off),)))[key] == 1


def test_a_new_job_has_only_what_is_known() -> None:
    found = {name for name, labels in series(Snapshot(jobs=(job(),))) if labels[:2] == ("research", "demo")}
    assert found == {"hulk_job_phase", "hulk_job_attempt", "hulk_job_failures", "hulk_job_disruptions"}


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_a_loss_that_diverged_is_a_sample(loss: str) -> None:
    status = {**RUNNING, "observed": {"step": 7, "loss": loss, "updatedAt": TIME}}
    found = series(Snapshot(jobs=(job(status=status),)))
    assert ("hulk_job_step", ("research", "demo")) in found
    assert str(found["hulk_job_loss", ("research", "demo")]) == loss


def test_a_deleted_jobs_series_disappear() -> None:
    jobs = [job("one", RUNNING), job("two", RUNNING)]
    found = registry(lambda: Snapshot(jobs=tuple(jobs)), Health(), lambda: NOW)
    assert {sample.labels["job"] for sample in samples(found) if "job" in sample.labels} == {"one", "two"}
    del jobs[0]
    assert {sample.labels["job"] for sample in samples(found) if "job" in sample.labels} == {"two"}


def test_links_per_region_and_per_node_with_their_age() -> None:
    state = probing(profile("a", link("b", rtt_us=50_000, age_s=60)), region_of={"a": "eu", "b": "us"})
    found = series(Snapshot(probing=state))
    for labels in [("eu", "us", "region"), ("a", "b", "node")]:
        assert found["hulk_link_rtt_seconds", labels] == 0.05
        assert found["hulk_link_bandwidth_bytes_per_second", labels] == 1_000_000
        assert found["hulk_link_age_seconds", labels] == 60
        assert found["hulk_link_bandwidth_age_seconds", labels] == 60


@pytest.mark.parametrize(("num_nodes", "scopes"), [(64, {"node", "region"}), (65, {"region"})])
def test_series_per_node_are_off_above_64_nodes(num_nodes: int, scopes: set[str]) -> None:
    region_of = {f"n{index}": f"r{index % 2}" for index in range(num_nodes)}
    found = series(Snapshot(probing=probing(profile("n0", link("n1")), region_of=region_of)))
    assert {labels[2] for name, labels in found if name == "hulk_link_rtt_seconds"} == scopes


@pytest.mark.parametrize(("num_nodes", "places"), [(64, 64), (65, 0)])
def test_ring_positions_are_off_above_64_nodes(num_nodes: int, places: int) -> None:
    everywhere = tuple(RingPlace(f"n{index}", "r") for index in range(num_nodes))
    found = series(Snapshot(jobs=(job(),), rings={"research/demo": everywhere}))
    assert len([name for name, _ in found if name == "hulk_job_ring_position"]) == places


def test_refused_links_are_counted_by_reason_and_not_shown() -> None:
    state = probing(profile("a", link("b", rtt_us=-5), link("x")), region_of={"a": "eu", "b": "us"})
    found = series(Snapshot(probing=state))
    assert found["hulk_links_refused", ("ImpossibleRtt",)] == 1
    assert found["hulk_links_refused", ("UnknownTarget",)] == 1
    assert "hulk_link_rtt_seconds" not in {name for name, _ in found}


def test_the_operators_own_health() -> None:
    health = Health()
    for duration_s in (0.001, 0.3, 100.0):
        health.reconciles.add(duration_s)
    health.planned(0.25)
    health.planned(0.25)
    health.lags.add(0.06)
    health.wrote("create", "pods")
    health.failed("reconcile")
    state = ProbeState(decision=Decision({}, num_pending=2, waiting={"JobRunning": 4}), num_tests=9)
    found = series(Snapshot(queue_depth=5, lease_held=True, probing=state), health)
    assert (
        found.items()
        >= {
            ("hulk_operator_lease_held", ()): 1,
            ("hulk_operator_queue_depth", ()): 5,
            ("hulk_operator_planning_seconds", ()): 0.25,
            ("hulk_operator_api_writes_total", ("create", "pods")): 1,
            ("hulk_operator_errors_total", ("reconcile",)): 1,
            ("hulk_operator_reconcile_seconds_bucket", ("0.005",)): 1,
            ("hulk_operator_reconcile_seconds_bucket", ("0.5",)): 2,
            ("hulk_operator_reconcile_seconds_bucket", ("+Inf",)): 3,
            ("hulk_operator_reconcile_seconds_count", ()): 3,
            ("hulk_operator_planning_pass_seconds_count", ()): 2,
            ("hulk_operator_planning_pass_seconds_sum", ()): 0.5,
            ("hulk_operator_event_loop_lag_seconds_bucket", ("0.05",)): 0,
            ("hulk_operator_event_loop_lag_seconds_bucket", ("0.075",)): 1,
            ("hulk_probing_tests_total", ()): 9,
            ("hulk_probing_tests_pending", ()): 2,
            ("hulk_probing_links_waiting", ("JobRunning",)): 4,
        }.items()
    )
    assert found["hulk_operator_reconcile_seconds_sum", ()] == pytest.approx(100.301)


def test_a_reconcile_that_fails_is_measured_too() -> None:
    health = Health()
    with pytest.raises(RuntimeError), health.reconcile():
        raise RuntimeError
    assert sum(health.reconciles.counts) == 1


def test_an_operator_is_unhealthy_when_any_of_its_sources_is_silent_for_long() -> None:
    now_s = [1000.0]
    health = Health(clock=lambda: now_s[0])
    now_s[0] += 2 * MAX_SILENCE_S
    assert health.hears()  # it waits for the lease and listens to nothing yet
    health.heard("pods")
    health.heard("nodes")
    now_s[0] += MAX_SILENCE_S
    health.heard("nodes")
    assert health.hears()
    now_s[0] += 1
    assert not health.hears()
    health.heard("pods")
    assert health.hears()


def test_every_series_is_in_the_reference_and_the_reference_is_fresh(repository: Path) -> None:
    text = (repository / "docs" / "reference" / "metrics.md").read_text()
    assert text == page(), "run: python -m hulk_operator.metrics"
    assert all(f"| `{definition.series}` |" in text for definition in DEFINITIONS)
    assert len({definition.name for definition in DEFINITIONS}) == len(DEFINITIONS)


async def test_the_port_serves_the_series_and_the_health() -> None:
    alive, acting = [True], [False]

    async def shown() -> bytes:
        return metrics.exposition(Snapshot(jobs=(job(status=RUNNING),)), Health(), lambda: NOW)

    runner = await metrics.serve(shown, lambda: alive[0], lambda: acting[0], 0, "127.0.0.1")
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession() as session:
        text = await (await session.get(f"{base}/metrics")).text()
        statuses = [(await session.get(f"{base}/{path}")).status for path in ("healthz", "readyz")]
        alive[0], acting[0] = False, True
        statuses += [(await session.get(f"{base}/{path}")).status for path in ("healthz", "readyz")]
    await runner.cleanup()
    assert statuses == [200, 503, 503, 200]
    names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    assert {"hulk_job_phase", "hulk_operator_lease_held", "hulk_operator_reconcile_seconds_bucket"} <= names


def test_a_ring_position_is_a_rank_also_with_several_accelerators_per_worker() -> None:
    found = series(Snapshot(jobs=(job(),), rings={"research/demo": ring(plan(accelerators=8))}))
    ranks = {labels[2]: value for (name, labels), value in found.items() if name == "hulk_job_ring_position"}
    assert ranks == {"node-0": 0, "node-1": 8, "node-2": 16}
