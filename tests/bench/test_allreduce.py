"""What the harness of all-reduces decides without a lab: cases, orders, rounds, verdicts."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bench.allreduce import case as cases
from bench.allreduce import conductor, ours, reference, rounds, speed
from bench.allreduce.case import Case
from bench.allreduce.gloo_orders import best_order, patterns, ring_s
from bench.allreduce.profiles import PROFILES, default_nodes, lab_spec, node_counts
from bench.allreduce.rounds import MIB, Run, Timed

FOLD = [["p", "p", "o", "t", "t", "o"], ["p", "p", "o", "o", "t", "t"]]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_a_lab(profile: str) -> None:
    spec = lab_spec(profile, None, "some")
    assert tuple(len(region.nodes) for region in spec.regions) == default_nodes(profile)
    assert spec.num_nodes == len(Case(profile, default_nodes(profile)).regions[-1]) + sum(default_nodes(profile)[:-1])


def test_counts_that_do_not_fit_the_profile_are_refused() -> None:
    with pytest.raises(ValueError, match="7 nodes over 3 regions of profile A"):
        node_counts("A", "7")
    with pytest.raises(ValueError, match=r"profile A has 3 regions, got node counts \(1, 2\)"):
        lab_spec("A", (1, 2), "some")
    with pytest.raises(ValueError, match="profile 'X' is none of A, B"):
        lab_spec("X", (1, 2), "some")


def test_the_best_ring_of_six_goes_out_and_back_through_the_hub() -> None:
    case = Case("A", (2, 2, 2))
    order = best_order(case.regions, case.links, MIB)
    assert sorted(order) == list(range(6))
    assert cases.pattern(case, order) in (FOLD[0], ["p", "o", "t", "t", "o", "p"])


def test_direction_counts() -> None:
    case = Case("A", (1, 1, 1))
    there, back = (ring_s(pattern, case.links, MIB) for pattern in patterns([1, 1, 1]))
    assert back > 1.15 * there


def test_hierarchical_ways_need_regions_of_several_nodes() -> None:
    assert list(cases.gloo_methods(Case("A", (1, 1, 1)), MIB)) == [cases.FLAT]
    assert list(cases.gloo_methods(Case("A", (1, 2, 2)), MIB)) == [cases.FLAT, cases.ONE_MEMBER]
    assert cases.gloo_methods(Case("A", (2, 3, 2)), MIB)[cases.ALL_MEMBERS]["members"] == 2


def test_earlier_measurements_are_found_by_the_pattern_of_regions(tmp_path: Path) -> None:
    table = tmp_path / "allreduce.csv"
    table.write_text(
        "profile,congestion_control,mtu,router_buffer_s,rank_order,num_bytes,median_s,min_s,max_s,runs\n"
        "A,bbr,1500,0.15,P0 O0 T0,1024,9,9,9,6\n"
        "A,cubic,1500,0.15,P0 O0 T0,1024,2,1,3,6\n"
    )
    assert reference.gloo_s("A", ["t", "p", "o"], 1024, table) == 2
    assert reference.gloo_s("A", ["t", "o", "p"], 1024, table) is None


def run(seconds: float, valid: bool = True) -> Run:
    return Run(seconds, 0.1, 0.0, 0.0, valid)


def test_methods_take_turns_and_what_does_not_count_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "wait_for_quiet", lambda _: None)
    played: list[str] = []

    def play(key: str, _: int) -> Run:
        played.append(key)
        return run(len(played), valid=key == "a" or len(played) > 4)

    first, second = rounds.time_in_turn({"x": "a", "y": "b"}, 1024, 2, play)
    assert played == ["a", "a", "b", "b"] * 2 + ["b", "b"]
    assert [found.seconds for found in first.runs] == [2, 6]
    assert (first.median_s, second.median_s) == (4, 9)
    assert str(Timed("x", 1024, (run(2, valid=False),))) == "2.000!"


@pytest.mark.parametrize(
    ("checks", "message"),
    [
        ([{"right": True, "crc": 1}, {"right": False, "crc": 1}], r"wrong sum on ranks \[1\]"),
        ([{"right": True, "crc": 1}, {"right": True, "crc": 2}], r"different bits: \[1, 2\]"),
    ],
)
def test_a_wrong_sum_ends_the_benchmark(checks: list[conductor.Answer], message: str) -> None:
    with pytest.raises(rounds.WrongSumError, match=message):
        rounds.verify("gloo", checks)


def test_without_encryption_the_plan_is_the_same_and_the_connections_are_others() -> None:
    case = Case("A", (1, 1, 1))
    sealed = ours.method(case.regions, case.links, [MIB])
    plain = ours.unencrypted(sealed)
    assert (sealed["plan"]["encryption"], plain["plan"]["encryption"]) == ("wan", "none")
    assert {**plain["plan"], "encryption": "wan"} == sealed["plan"]
    assert cases.key_of(plain) != cases.key_of(sealed)
    assert plain["port"] != sealed["port"]


def row(wan_s: float, gloo_s: float, bound_s: float, predicted_s: float) -> speed.Row:
    timed = (Timed(cases.FLAT, MIB, (run(gloo_s),)), Timed(cases.OURS, MIB, (run(wan_s),)))
    return speed.Row(Case("A", (1, 1, 1)), MIB, timed, gloo_s / 1.01, bound_s, predicted_s)


def test_verdicts_of_speed() -> None:
    assert speed.verdicts([row(0.3, 1.2, 0.25, 0.31), row(0.6, 1.0, 0.3, 0.57)]) == [
        "wan / bound, median: 1.6, aim at most 1.25: missed",
        "gloo's best / wan, least: 1.667, aim at least 1: met",
        "prediction, mean error: 0.04167, aim at most 0.05: met",
        "CPU, wan / gloo's quickest, most: 1, aim at most 1: met",
        "CPU, wan / gloo's quickest: median 1, 0 of 2 above 1",
        "gloo flat against 2 earlier measurements: 1.0% off on the mean, 1.0% at most",
    ]


def test_without_runs_that_count_there_is_no_verdict() -> None:
    none = speed.Row(Case("A", (1, 1, 1)), MIB, (Timed(cases.FLAT, MIB, (run(1, valid=False),)),), None, 1.0, 1.0)
    assert speed.verdicts([none])[0] == "wan / bound, median: no verdict, aim at most 1.25"
    assert speed.verdicts([none])[-1].endswith("in every run: A n=3 1 MiB")
    assert speed.table(none.case, [none]).row_count == speed.resources(none.case, [none]).row_count == 1


def costs(wan_cpu_s: float, *, invalid_cpu_s: float = 9.0, profile: str = "A") -> speed.Row:
    """gloo takes 0.1 s; what does not count takes another time, on one side or the other."""
    wan = (Run(0.3, wan_cpu_s, 0.0, 0.0, True), Run(0.3, invalid_cpu_s, 0.0, 0.0, False))
    timed = (Timed(cases.FLAT, MIB, (run(1.0),)), Timed(cases.OURS, MIB, wan))
    return speed.Row(Case(profile, (1, 1, 1)), MIB, timed, None, 0.25, 0.3)


def test_processor_time_is_that_of_the_runs_that_count() -> None:
    assert costs(0.05).cpu_ratio == pytest.approx(0.5)
    assert costs(0.2, invalid_cpu_s=0.0).cpu_ratio == pytest.approx(2)
    assert Timed(cases.OURS, MIB, (run(1, valid=False),)).cpu_s_per_gb(3) is None


def test_every_row_that_takes_more_processor_time_than_gloo_is_named_the_worst_first() -> None:
    rows = [costs(0.05), costs(0.11, profile="B"), costs(0.15, profile="C"), costs(0.08), costs(0.05)]
    assert speed.verdicts(rows)[3:5] == [
        "CPU, wan / gloo's quickest, most: 1.5, aim at most 1: missed",
        "CPU, wan / gloo's quickest: median 0.8, 2 of 5 above 1; C n=3 1 MiB 1.5; B n=3 1 MiB 1.1",
    ]


def test_what_is_printed_of_a_size_is_what_the_ranks_own_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "time_in_turn", lambda *_: [])
    monkeypatch.setattr(rounds.Band, "make", lambda *_: 0.0)
    case = Case("A", (1, 2, 1))
    wan = ours.method(case.regions, case.links, [MIB // 4, MIB, 4 * MIB])
    marked = [{**found, "predictedSeconds": 1 + number} for number, found in enumerate(wan["plan"]["classes"])]
    told = {**wan, "plan": {**wan["plan"], "classes": marked}}
    for number, found in enumerate(wan["plan"]["classes"]):
        row = speed.time_size(case, rounds.Band(None, None), told, found["maxBytes"], 1)  # type: ignore[arg-type]
        assert (row.predicted_s, row.bound_s) == (1 + number, found["boundSeconds"])


def test_a_ring_of_flows_uses_every_link_of_the_ring_alike() -> None:
    loads = ours.loads(ours.ring_flows((0, 1, 2)))
    assert loads == pytest.approx({(0, 1): 4 / 3, (1, 2): 4 / 3, (2, 0): 4 / 3})


def test_the_conductor_speaks_with_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "RUN_DIR", tmp_path)
    leader = conductor.Conductor("some")
    monkeypatch.setenv("CONDUCTOR", leader.env["CONDUCTOR"])

    def play(rank: int) -> None:
        player = conductor.Player(rank)
        player.answer(ready=True)
        while (order := player.order()) is not None:
            player.answer(rank=rank, start=order["start"])

    ranks = [threading.Thread(target=play, args=(rank,)) for rank in range(3)]
    for rank in ranks:
        rank.start()
    leader.await_ranks(3)
    answers = leader.ask("reduce", timeout_s=10)
    assert [answer["rank"] for answer in answers] == [0, 1, 2]
    assert {answer["start"] for answer in answers} == {leader.last_start_s}
    leader.close()
    for rank in ranks:
        rank.join(10)
    assert not leader.path.exists()
