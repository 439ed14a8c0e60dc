"""The labs that placements are compared in, who chooses which machines there, and what the rows conclude."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hulk_lab import spec
from hulk_lab.draw import Measured
from hulk_lab.wan.relay import Lateness

from bench.conditions import Conditions
from bench.geo import FILES
from bench.placements import question
from bench.placements.choices import at_random, by_name, most_free_first, nodes_of, searched, topology_of
from bench.placements.draw import SHAPES, SPEEDS, Shape, draw, render
from bench.placements.rows import CHOOSING, DEFAULT, PLANNED, Outcome, Row, outcomes, read, verdicts
from bench.raw import Raw
from bench.training import Training

REGIONS = ("cloud:a", "cloud:b", "cloud:c", "cloud:d")
ALL: Measured = {pair: (4.0 + number, 10.0) for number, pair in enumerate(itertools.permutations(REGIONS, 2))}


def row(who: str, observed_s: float, *, order: Sequence[str] = (), predicted_s: float = 0.0, lab: str = "x") -> Row:
    nodes = tuple(order) or (who,)
    return Row(lab, who, nodes, observed_s, predicted_s or observed_s, 0.5, 0.5, True, "0.00% late")


@pytest.mark.parametrize("name", SHAPES)
def test_committed_labs_have_the_shapes(name: str) -> None:
    lab, shape = spec.load(FILES[name]), SHAPES[name]
    assert lab.name == name
    assert tuple(len(region.nodes) for region in lab.regions) == shape.num_nodes
    speeds = sorted((node.speed for node in nodes_of(lab)), reverse=True)
    assert speeds == sorted(SPEEDS[: len(speeds)], reverse=True)
    assert len(speeds) > shape.num_workers, "somebody has to choose"


def test_the_city_with_two_sites_holds_all_workers() -> None:
    lab = spec.load(FILES["two-sites"])
    here, there = lab.regions[0], lab.regions[1]
    assert len(here.nodes) + len(there.nodes) == SHAPES["two-sites"].num_workers
    assert lab.rtt_ms(here.name, there.name) < 3


def test_drawn_figures_are_the_measured_ones_scaled() -> None:
    lab = draw(ALL, Shape((2, 1), 2, ("cloud:b", "cloud:a")), seed=5, scale=0.01)
    assert [region.name for region in lab.regions] == ["cloud-b", "cloud-a"]
    assert lab.link("cloud-a", "cloud-b").mbit_per_s == 40.0
    assert lab.rtt_ms("cloud-a", "cloud-b") == 10.0
    assert {node.speed for node in nodes_of(lab)} == set(SPEEDS[:3])


def test_drawing_leaves_out_regions_with_pairs_that_nobody_measured() -> None:
    partly = {pair: figures for pair, figures in ALL.items() if pair != ("cloud:d", "cloud:a")}
    drawn = {tuple(r.name for r in draw(partly, Shape((1, 1, 1), 2), seed=seed).regions) for seed in range(50)}
    assert len(drawn) > 1
    assert all({"cloud-a", "cloud-d"} - set(regions) for regions in drawn)


def test_a_file_is_read_back_as_the_lab_it_was(tmp_path: Path) -> None:
    lab = draw(ALL, SHAPES["three-regions"])
    path = tmp_path / "lab.yaml"
    path.write_text(render("three-regions", lab))
    assert spec.load(path) == lab


def test_blind_choices() -> None:
    lab = draw(ALL, Shape((2, 2), 2, ("cloud:b", "cloud:a")), seed=1)
    speed = {node.name: node.speed for node in nodes_of(lab)}
    assert by_name(lab, 3) == ("cloud-a-0", "cloud-a-1", "cloud-b-0")
    chosen = most_free_first(lab, 2)
    assert min(speed[name] for name in chosen) >= max(speed[name] for name in speed.keys() - set(chosen))
    assert at_random(lab, 3, seed=1) == at_random(lab, 3, seed=1)
    assert len(set(at_random(lab, 4, seed=2))) == 4


def test_those_that_choose_get_the_links_of_the_file() -> None:
    lab = draw(ALL, Shape((1, 1), 2, ("cloud:a", "cloud:b")))
    topology = topology_of(lab, {"cloud-a-0": 2e9, "cloud-b-0": 3e9})
    link = topology.link("cloud-a-0", "cloud-b-0")
    assert (link.rtt_s, link.bandwidth_bytes_per_s) == (0.01, 5e6)
    assert [machine.flops_per_s for machine in topology.machines] == [2e9, 3e9]


def test_who_knows_the_links_chooses_two_sites_of_one_city() -> None:
    lab = spec.load(FILES["two-sites"])
    speeds = {node.name: 1e10 * node.speed for node in nodes_of(lab)}
    chosen = searched(lab, SHAPES["two-sites"].num_workers, question.SIZE, speeds, CHOOSING["region-greedy"])
    assert set(chosen) == {node.name for region in lab.regions[:2] for node in region.nodes}


@pytest.mark.parametrize(
    ("busy_share", "num_late", "in_time", "counts"),
    [
        pytest.param(0.9, 0, True, True, id="undisturbed"),
        pytest.param(0.91, 0, True, False, id="no processor left"),
        pytest.param(0.5, 11, True, False, id="late packets"),
        pytest.param(0.5, 0, False, False, id="predicted too late"),
    ],
)
def test_only_undisturbed_trainings_count(busy_share: float, num_late: int, in_time: bool, counts: bool) -> None:
    conditions = Conditions(Lateness(1000, num_late, 0), 0.0, busy_share)
    steps = (9.0, 9.0, 9.0, 2.0, 3.0, 2.5)
    training = Training(("n",), 2.0, 1.5, 0.5, "preflight", in_time, steps, steps, steps, conditions)
    found = Row.of("x", PLANNED, training)
    assert (found.usable, found.observed_s) == (counts, 2.5)
    assert found.error == pytest.approx(-0.2)


def test_a_plan_is_compared_with_the_best_blind_placement() -> None:
    rows = [row(PLANNED, 1.0), row("name order", 2.0), row("DT-FM-like", 1.2), row(DEFAULT, 0.8)]
    rows += [row(f"random {seed}", step_s) for seed, step_s in ((1, 1.6), (2, 0.9), (3, 1.8))]
    (found,) = outcomes(rows)
    assert found.expected_s == {"name order": 2.0, "random": 1.6}
    assert found.saved(PLANNED, found.expected_s) == pytest.approx(1 - 1 / 1.6)
    assert found.saved(PLANNED, found.blind_s) == pytest.approx(1 - 1 / 0.9)
    assert found.saved(DEFAULT, found.blind_s) == pytest.approx(1 - 0.8 / 0.9)
    assert found.beside("DT-FM-like") == pytest.approx(1 / 1.2)
    assert found.beside("region-greedy") is None


def test_who_chose_the_same_machines_shares_the_trainings() -> None:
    rows = [row(PLANNED, 1.0, order="ab"), row(PLANNED, 1.2, order="ab"), row("DT-FM-like", 1.4, order="ba")]
    found = Outcome("x", (*rows, row(DEFAULT, 0.5, order="ab")))
    assert found.step_s(PLANNED) == found.step_s("DT-FM-like") == 1.2
    assert found.step_s(DEFAULT) == 0.5


def test_verdicts_over_labs() -> None:
    rows = [
        *(
            row(PLANNED, 1.0, lab="x", predicted_s=1.1),
            row("name order", 2.0, lab="x"),
            row("DT-FM-like", 1.0, lab="x"),
        ),
        *(row(PLANNED, 1.0, lab="y"), row("name order", 1.1, lab="y"), row("DT-FM-like", 0.8, lab="y")),
    ]
    assert verdicts(outcomes(rows)) == [
        f"x: 50.0% less time than the best blind placement, 50.0% than the luckiest; {DEFAULT}: no figure",
        f"y: 9.1% less time than the best blind placement, 9.1% than the luckiest; {DEFAULT}: no figure",
        "planned: less time than the best blind placement, median of labs: 0.2955, aim at least 0.2: met",
        f"{DEFAULT}: less time than the luckiest, median of labs: no verdict, aim at least 0.2",
        "planned step / region-greedy's, worst lab: no verdict, aim at most 1.03",
        "planned step / DT-FM-like's, worst lab: 1.25, aim at most 1.03: missed",
        "prediction's error, mean of 6: 0.01667, aim at most 0.05: met",
        "prediction's error, worst: 0.1, aim at most 0.15: met",
    ]


def test_rows_are_kept_and_read_back(tmp_path: Path) -> None:
    first, second = row(PLANNED, 1.0, order=("n1", "n2")), row("name order", 2.0)
    Raw("placements", tmp_path).add(first)
    kept = Raw("placements", tmp_path, fresh=False)
    kept.add(second)
    assert read(kept.path) == [first, second]
    assert read(Raw("placements", tmp_path).path) == []
