"""What the benchmarks on simulated nodes conclude, and that one question's failure leaves the others answered."""

from __future__ import annotations

import sys

import pytest

from bench import __main__ as bench
from bench import change, deployment
from bench.change import Change
from bench.deployment import Phases, Shape

MANY, ONE_EACH = Shape(100, 1000, 1), Shape(10, 10, 64)


def rounds(*bound_s: float, num_replaced: int = 0) -> list[Phases]:
    return [Phases(0.1, seconds, seconds + 1, num_replaced) for seconds in bound_s]


def test_many_pods_are_compared_with_the_other_clients() -> None:
    runs = {"hulk": rounds(5.0, 5.0), "bare": rounds(4.0, 4.0), "indexed job": rounds(10.0, 10.0)}
    assert deployment.verdicts(MANY, runs) == [
        "bound: Hulk / bare client: 1.25, aim at most 1.2: missed",
        "bound: Hulk / Indexed Job: 0.5, aim below 1: met",
        "CV of the ratio to the bare client, %: 0, aim at most 4: met",
    ]


def test_one_pod_per_node_has_to_be_bound_within_seconds() -> None:
    runs = {"hulk": rounds(0.5, 2.0), "bare": rounds(0.5, 0.5), "indexed job": rounds(1.0, 1.0)}
    seconds, variation = deployment.verdicts(ONE_EACH, runs)
    assert seconds == "plan to last pod bound, p99 in seconds: 2, aim below 2: missed"
    assert variation.endswith("missed")


def test_rounds_with_replaced_pods_count_for_nothing() -> None:
    runs = {
        "hulk": [*rounds(1.0), *rounds(9.0, num_replaced=1)],
        "bare": rounds(1.0, 1.0),
        "indexed job": rounds(2.0, 2.0),
    }
    assert deployment.verdicts(MANY, runs) == [
        "bound: Hulk / bare client: 1, aim at most 1.2: met",
        "bound: Hulk / Indexed Job: 0.5, aim below 1: met",
        "CV of the ratio to the bare client, %: no verdict, aim at most 4",
    ]
    assert deployment.table(MANY, runs).row_count == 3
    runs["hulk"] = rounds(1.0, 9.0, num_replaced=1)
    assert deployment.verdicts(MANY, runs) == ["no verdict: every round had pods that were replaced"]
    assert deployment.table(MANY, runs).row_count == 0


def test_a_change_keeps_the_pods_that_the_bare_client_keeps() -> None:
    found = {
        "one node replaced, hulk": [Change(0.1, 1.2, 48, 50), Change(0.1, 1.2, 49, 50)],
        "one node replaced, bare": [Change(0.0, 1.0, 49, 50), Change(0.0, 1.0, 49, 50)],
    }
    assert change.verdicts(found) == [
        "one node replaced, hulk, carried out / bare client: 1.2, aim at most 1.2: met",
        "one node replaced, hulk, CV of that ratio, %: 0, aim at most 4: met",
        "one node replaced, hulk, p99 in seconds: 1.2, aim below 2: met",
        "one node replaced, hulk, pods kept: 48, aim at least 49: missed",
    ]


def test_a_question_that_fails_leaves_the_others_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: bool) -> None:
        raise TimeoutError("waited 180 s for the job's pods")

    answered: list[bool] = []
    monkeypatch.setattr(bench, "QUESTIONS", {"change": fails, "solve": answered.append})
    monkeypatch.setattr(sys, "argv", ["bench"])
    assert bench.main() == 1
    assert answered == [False]
    assert "change was not answered: waited 180 s for the job's pods" in capsys.readouterr().out
