"""Which figures are believed, which replace which, and what a job may say about its links."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hulk_operator.api import LinkStatus, NodeProfile
from hulk_operator.observation import ObservedLink
from hulk_operator.probing import accept, by_region, links_under_load, measured
from hulk_operator.probing.events import MAX_PER_PASS, REPEAT_S, Said, event
from hulk_operator.probing.link_validation import LOAD_RETENTION_S, SAME_AGE_S, Rejection
from hulk_placement.topology import LinkKind

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NODES = {"a0": "a", "a1": "a", "b0": "b", "b1": "b"}
GOOD: dict[str, Any] = {
    "target": "b0",
    "rttP50Microseconds": 50_000,
    "rttP95Microseconds": 60_000,
    "bandwidthBytesPerSecond": 1_000_000,
    "streams": 4,
    "samples": 60,
    "time": NOW - timedelta(seconds=30),
}


def profile(source: str, *rows: dict[str, Any]) -> NodeProfile:
    return NodeProfile.model_validate({"metadata": {"name": source}, "status": {"links": rows}})


def row(target: str = "b0", age_s: float = 30.0, **changes: Any) -> dict[str, Any]:
    return {**GOOD, "target": target, "time": NOW - timedelta(seconds=age_s), **changes}


@pytest.mark.parametrize(
    ("source", "changes", "reason"),
    [
        ("a0", {}, None),
        ("a0", {"rttP50Microseconds": None, "rttP95Microseconds": None}, None),
        ("a0", {"bandwidthBytesPerSecond": None}, None),
        ("a0", {"bandwidthBytesPerSecond": 1_250_000_000_000}, None),
        ("a0", {"time": NOW - timedelta(days=30)}, None),  # stale is not a lie
        ("a0", {"time": NOW + timedelta(seconds=200)}, None),  # clocks differ
        ("a0", {"rttP50Microseconds": 0}, "ImpossibleRtt"),
        ("a0", {"rttP50Microseconds": -1}, "ImpossibleRtt"),
        ("a0", {"rttP50Microseconds": 61_000_000, "rttP95Microseconds": 61_000_000}, "ImpossibleRtt"),
        ("a0", {"rttP95Microseconds": 49_999}, "ImpossibleRtt"),
        ("a0", {"bandwidthBytesPerSecond": 0}, "ImpossibleBandwidth"),
        ("a0", {"bandwidthBytesPerSecond": -8}, "ImpossibleBandwidth"),
        ("a0", {"bandwidthBytesPerSecond": 1_250_000_000_001}, "ImpossibleBandwidth"),
        ("a0", {"samples": 0}, "ImpossibleSamples"),
        ("a0", {"time": NOW + timedelta(seconds=301)}, "TimeInFuture"),
        ("a0", {"bandwidthTime": NOW + timedelta(days=1)}, "TimeInFuture"),
        ("a0", {"target": "c0"}, "UnknownTarget"),
        ("a0", {"target": "c0", "time": NOW - timedelta(days=2)}, None),  # a former node
        ("a0", {"target": "a0"}, "LinkToItself"),
        ("z9", {}, "UnknownSource"),
        (
            "a0",
            {"rttP50Microseconds": None, "rttP95Microseconds": None, "bandwidthBytesPerSecond": None},
            "EmptyLink",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(source: str, changes: dict[str, Any], reason: str | None) -> None:
    found = accept([profile(source, {**GOOD, **changes}, row("a1"))], NODES, NOW)
    refused = [rejection.reason for rejection in found.rejections if rejection.target == changes.get("target", "b0")]
    assert refused == ([reason] if reason else [])
    gone = changes.get("target") == "c0" and reason is None
    assert len(found.links) + len(found.rejections) == 2 - gone


def test_the_planner_gets_links_with_both_figures_and_the_age_of_the_older() -> None:
    bandwidth_time = NOW - timedelta(hours=2)
    half = row("b1", bandwidthBytesPerSecond=None)
    found = measured(
        accept([profile("a0", row("b0", bandwidthTime=bandwidth_time), half)], NODES, NOW).links, NODES, NOW
    )
    assert found.keys() == {("a0", "b0")}
    link = found["a0", "b0"]
    assert (link.rtt_s, link.bandwidth_bytes_per_s, link.num_streams, link.age_s) == (0.05, 1e6, 4, 7200.0)


def test_a_figure_under_load_counts_only_where_there_is_no_idle_one() -> None:
    loaded = row("b0", underLoad=True, rttP50Microseconds=900_000, rttP95Microseconds=900_000)
    accepted = accept([profile("a0", row("b0"), loaded), profile("a1", {**loaded, "target": "b1"})], NODES, NOW)
    assert len(accepted.links) == 3
    found = {pair: (link.kind, link.rtt_s) for pair, link in measured(accepted.links, NODES, NOW).items()}
    assert found == {("a0", "b0"): (LinkKind.MEASURED, 0.05), ("a1", "b1"): (LinkKind.UNDER_LOAD, 0.9)}
    assert by_region(accepted.links, NODES)["a", "b"].rtt_s == 0.05


def test_what_a_job_saw_of_a_link_does_not_steer_others_when_it_is_a_day_old() -> None:
    lie = {"underLoad": True, "bandwidthBytesPerSecond": 10**12, "rttP50Microseconds": 1, "rttP95Microseconds": 1}
    for age_s, expected in ((LOAD_RETENTION_S - 1, {("a0", "b0")}), (LOAD_RETENTION_S, set())):
        accepted = accept([profile("a0", row("b0", age_s=age_s, **lie))], NODES, NOW)
        assert measured(accepted.links, NODES, NOW).keys() == expected


def test_a_new_representatives_bandwidth_replaces_the_old_ones() -> None:
    old = profile("a0", row("b0", age_s=2 * SAME_AGE_S, bandwidthBytesPerSecond=9_000_000))
    new = profile("a1", row("b1", age_s=10, bandwidthBytesPerSecond=1_000_000))
    links = accept([old, new], NODES, NOW).links
    assert measured(links, NODES, NOW).keys() == {("a1", "b1")}
    assert by_region(links, NODES)["a", "b"].bandwidth_bytes_per_s == 1_000_000


def test_until_it_has_a_bandwidth_the_old_one_stands() -> None:
    old = profile("a0", row("b0", age_s=2 * SAME_AGE_S))
    new = profile("a1", row("b1", age_s=10, bandwidthBytesPerSecond=None, rttP50Microseconds=55_000))
    links = accept([old, new], NODES, NOW).links
    assert measured(links, NODES, NOW).keys() == {("a0", "b0")}
    region = by_region(links, NODES)["a", "b"]
    assert (region.rtt_s, region.bandwidth_bytes_per_s) == (0.055, 1_000_000)
    assert region.time_s == NOW.timestamp() - 10


def test_the_inside_of_a_region_is_the_median_of_its_links() -> None:
    rtts = {("a0", "a1"): 100, ("a1", "a0"): 300}
    profiles = [
        profile(source, row(target, rttP50Microseconds=rtt, rttP95Microseconds=rtt))
        for (source, target), rtt in rtts.items()
    ]
    assert by_region(accept(profiles, NODES, NOW).links, NODES)["a", "a"].rtt_s == pytest.approx(0.0002)


def test_a_job_is_believed_only_about_its_own_links() -> None:
    observed = [
        ObservedLink("a0", "b0", 0.25, 2e6),
        ObservedLink("a0", "a0", 0.1, 1e6),
        ObservedLink("a0", "b1", 0.1, 1e6),  # not a node of the job
        ObservedLink("b0", "a0", None, 3e6),
        ObservedLink("b0", "a1", -1.0, 5e13),  # impossible
    ]
    found = links_under_load.rows(observed, {"a0", "a1", "b0"}, NOW)
    assert {source: [entry.target for entry in entries] for source, entries in found.items()} == {
        "a0": ["b0"],
        "b0": ["a0"],
    }
    assert found["a0"][0] == LinkStatus(
        target="b0",
        under_load=True,
        rtt_p50_microseconds=250_000,
        rtt_p95_microseconds=250_000,
        bandwidth_bytes_per_second=2_000_000,
        streams=1,
        samples=1,
        time=NOW,
    )
    assert found["b0"][0].rtt_p50_microseconds is None


def test_entries_under_load_are_bounded_and_forgotten_after_a_day() -> None:
    many = [row(f"n{index}", age_s=100 + index, underLoad=True) for index in range(links_under_load.MAX_ENTRIES + 10)]
    kept = profile("a0", *many, row("b0"), row("old", age_s=90_000, underLoad=True))
    new = links_under_load.rows([ObservedLink("a0", "n3", 0.5, None)], {"a0", "n3"}, NOW)["a0"]
    found = {entry.target: entry for entry in links_under_load.merged(kept, new, NOW)}
    assert len(found) == links_under_load.MAX_ENTRIES
    assert found["n3"].rtt_p50_microseconds == 500_000
    assert found["n4"].rtt_p50_microseconds == 50_000
    assert {"b0", "old"}.isdisjoint(found)


def test_an_event_is_said_once_an_hour_and_few_at_a_time() -> None:
    said = Said()
    many = [Rejection("a0", f"n{index}", "UnknownTarget", "x") for index in range(MAX_PER_PASS + 5)]
    assert len(said.new(many, NOW)) == MAX_PER_PASS
    assert len(said.new(many, NOW)) == 5
    assert said.new(many, NOW + timedelta(seconds=REPEAT_S - 1)) == ()
    assert len(said.new(many, NOW + timedelta(seconds=REPEAT_S + 1))) == MAX_PER_PASS


def test_an_event_names_the_link_and_the_number() -> None:
    rejection = accept([profile("a0", row("b0", rttP50Microseconds=-4))], NODES, NOW).rejections[0]
    body = event(rejection, profile("a0"), NOW)
    assert body["message"] == "link a0 -> b0 is ignored: round trip -4 us must be > 0"
    assert body["involvedObject"]["name"] == "a0"
    assert body["metadata"]["namespace"] == "default"
