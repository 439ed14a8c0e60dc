"""The bench of the operator's growth: what it concludes, and a small cluster from the first request to a poll."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hulk_lab.processes import wait_until

from bench.api_server import connect
from bench.raw import Raw
from bench.scale import supervised as supervising
from bench.scale.clusters import Size, opened
from bench.scale.curve import curve, requests, verdicts
from bench.scale.measured import Moment, Span, span
from bench.scale.phases import Phases, Times
from bench.scale.prometheus import LAG, PASSES
from bench.scale.question import read
from bench.scale.supervised import Processor, Supervised, supervised

SMALL = Size(40, 200, 2)
NUM_JOBS = 5
QUICK = Times(settle_s=0.0)
MIB = 2**20


def lags(num_late: int, num_all: int = 10_000) -> dict[str, float]:
    """So many moments of all are later than a quarter of a second, none later than half."""
    counts = {"0.001": num_all - num_late, "0.25": num_all - num_late, "0.5": num_all, "+Inf": num_all}
    return {f'{LAG}_bucket{{le="{bound}"}}': float(count) for bound, count in counts.items()}


def moment(time_s: float, num: int, **more: float) -> Moment:
    """After `num` creates of pods of 1 MB each."""
    samples = {**lags(20 * num, 10_000 * num), f"{PASSES}_count": 2.0 * num, f"{PASSES}_sum": 3.0 * num, **more}
    renewals_s = [0.0, 2.5, 5.0, 9.0, 11.5]
    return Moment(
        time_s, {("create", "pods"): (num, num * 10**6)}, renewals_s, samples, num - 1, 0, Processor(num, 1), 0.0
    )


def found(phase: str, own_mib: float = 100, **values: float | None) -> Span:
    """The second ten seconds."""
    made = span(phase, moment(10.0, 1), moment(20.0, 2), own_mib, own_mib + 50)
    made.values.update(values)
    return made


def test_what_happened_between_two_moments() -> None:
    seen = found("burst")
    assert (seen.requests, seen.received_bytes) == ({"create pods": 1}, {"create pods": 10**6})
    assert (seen.num_passes, seen.pass_s) == (2, 1.5)
    assert seen.lag_p50_s is not None
    assert seen.lag_p50_s < 0.001
    assert seen.lag_p999_s == pytest.approx(0.375)  # half of the late ones, evenly between 0.25 and 0.5
    assert seen.lag_max_s == 0.5
    assert seen.lease_gap_s == 2.5  # the longer pause was over before
    assert (seen.num_ends, seen.cpu_s, seen.waited_s) == (1, 1, 0)


def spans(poll_max_s: float = 4.0, own_mib: float = 100.0, bound_s: float | None = 5.0) -> dict[str, Span]:
    window = {"poll_max_s": poll_max_s, "poll_median_s": 3.5, "running_jobs": 2.0, "jobs": 4.0}
    of_phases = [
        found("start", ready_s=1.0, profiles_s=2.0, settled_s=None),
        found("one", bound_0_s=1.0, bound_1_s=3.0, bound_2_s=2.0),
        found("burst", own_mib, jobs=2.0, bound_s=bound_s, overbooked=0.0),
        found("load", full_s=9.0),
        found("window", **window),
        found("extra", bound_s=1.0),
    ]
    return {one.phase: one for one in of_phases}


def test_the_curve_has_a_column_for_each_size_and_says_what_was_not_in_time() -> None:
    sizes = {SMALL: spans(), Size(500, 2_500, 50, "real"): spans(bound_s=None)}
    view = curve(sizes)
    columns = [list(column.cells) for column in view.columns]
    rows = {name: (small, large) for name, small, large in zip(*columns, strict=True)}
    assert [column.header for column in view.columns] == ["", "40 nodes, stub", "500 nodes, real"]
    assert rows["one job: apply to last pod bound, s (median of 3)"] == ("2.00", "2.00")
    assert rows["100 jobs: apply to last pod bound, s"] == ("5.0", "not in time")
    assert rows["100 jobs: requests per job"] == ("0.5", "0.5")
    assert rows["window: planning passes a minute"] == ("12.0", "12.0")
    assert list(requests(sizes, "burst").columns[1].cells) == ["1 (1.0)"]


def test_rows_are_read_as_they_were_measured(tmp_path: Path) -> None:
    rows = Raw("scale", tmp_path)
    for size, bound_s in ((Size(500, 1, 1, "stub"), 1.0), (SMALL, 1.0), (SMALL, 2.0)):
        for one in spans(bound_s=bound_s).values():
            rows.add(one, nodes=size.num_nodes, pods=size.num_pods, running=size.num_running, server=size.server)
    assert read(rows.path) == {SMALL: spans(bound_s=2.0), Size(500, 1, 1): spans(bound_s=1.0)}


def test_each_aim_is_met_or_missed() -> None:
    lines = verdicts({SMALL: spans(poll_max_s=30.0, own_mib=500.0)})
    told = {line.partition(":")[2].rpartition(":")[0].strip(): line.rpartition(" ")[2] for line in lines}
    assert told == {
        "operator MiB: 500, aim at most 400": "missed",
        "loop lag p99.9 of the worst phase, s: 0.375, aim at most 0.1": "missed",
        "s between renewals: 2.5, aim below 10": "met",
        "100 jobs bound, s: 5, aim at most 8": "met",
        "s between polls of a job: 30, aim at most 7": "missed",
        "nodes overbooked: 0, aim at most 0": "met",
    }


def test_an_operator_that_ends_or_grows_too_large_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"data = bytearray({100 * MIB}); import time; time.sleep(3600)"
    monkeypatch.setattr(supervising, "COMMAND", [sys.executable, "-c", program])
    monkeypatch.setattr(supervising, "LIMIT_MIB", 64.0)
    operator = Supervised(tmp_path / "none", tmp_path / "log")
    try:
        wait_until(lambda: operator.num_ends >= 2, "two ends", timeout_s=60)
        assert operator.num_too_large >= 2
        assert operator.own_mib > 64
    finally:
        operator.stop()


async def test_a_small_cluster_from_end_to_end(tmp_path: Path) -> None:
    told: list[Span] = []
    with opened(SMALL, tmp_path) as cluster, supervised(cluster.metered, tmp_path / "operator.log") as operator:
        async with connect(cluster.other) as bare:
            phases = Phases(cluster, operator, bare, QUICK, told.append)
            await phases.start()
            await phases.burst(NUM_JOBS)
    start, burst = told
    assert start.values["profiles_s"] is not None, (tmp_path / "operator.log").read_text()[-3000:]
    assert start.requests["create nodeprofiles"] == SMALL.num_nodes
    assert burst.values["bound_s"] is not None, (tmp_path / "operator.log").read_text()[-3000:]
    assert burst.values["overbooked"] == 0
    assert burst.requests["create pods"] == 2 * NUM_JOBS
    assert burst.requests["dry-run create pods"] == NUM_JOBS
    assert burst.num_passes >= 1
    assert burst.values["observed_s"] is not None
    assert burst.lag_p50_s is not None
    assert 0 < burst.own_mib < burst.with_planner_mib
    assert burst.num_ends == 0
