"""The relay's own tests, and what can be said about runs without one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hulk_lab.spec import KwokSpec, LabSpec, LinkSpec
from hulk_lab.wan import check, relay
from hulk_lab.wan.addresses import LabNetwork

RELAY = Path(__file__).parents[2] / "lab" / "relay"


def test_go_tests_of_the_relay() -> None:
    for command in (["go", "vet", "./..."], ["go", "test", "./..."]):
        done = subprocess.run(command, cwd=RELAY, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("late", "lost", "valid"), [(0, 0, True), (10, 0, True), (11, 0, False), (5, 6, False)])
def test_more_than_one_percent_of_late_packets_is_invalid(late: int, lost: int, valid: bool) -> None:
    before = relay.RelayStats((), 0.0, 2)
    link = relay.LinkStats("a", "b", 0.1, 1e6, False, 1000, 1_500_000, 0, 0, late, 0.002)
    verdict = relay.lateness(before, relay.RelayStats((link,), 1.0, 2 + lost))
    assert verdict.is_valid is valid
    assert f"{late} of 1000 packets" in str(verdict)


@pytest.mark.parametrize("reason", ["unroutable", "exhausted", "refused"])
def test_whatever_the_relay_does_not_deliver_is_lost(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {"unroutable": 0, "exhausted": 0, "refused": 0, reason: 7}
    monkeypatch.setattr(relay, "_ask", lambda *_, **__: counted)
    assert relay.stats(LabNetwork(LabSpec(kwok=KwokSpec(nodes=1)), 0)).num_lost == 7


def test_a_relay_that_does_not_answer_is_named() -> None:
    with pytest.raises(relay.RelayError, match=r"the relay of slot 31 does not answer on /run/hulk-lab/relay-31.sock"):
        relay._ask(31, op="stats")


def test_no_link_is_tested_beside_its_reverse_nor_above_the_sum() -> None:
    figures = [("a", "b", 40), ("b", "a", 40), ("b", "c", 90), ("c", "a", 90)]
    links = [LinkSpec(source=a, target=b, rtt_ms=10, mbit_per_s=rate) for a, b, rate in figures]
    assert check.rounds(links) == [[links[0], links[2]], [links[1], links[3]]]
    assert check.rounds(links, max_mbit_per_s=1) == [[link] for link in links]
