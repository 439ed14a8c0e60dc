"""Lab files: what is read, what is refused and with which numbers, and the drawn default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hulk_lab import draw
from hulk_lab.spec import LabSpec, NodeSpec, dump, load
from pydantic import ValidationError

LAB_FILES = sorted((Path(__file__).parents[2] / "lab").glob("*.yaml"))

DEFAULT_ROWS = """src_region,dst_region,gbps,rtt_ms
aws:ap-northeast-1,aws:ap-southeast-2,3.9521,114.567
aws:ap-northeast-1,aws:us-west-1,3.9822,105.100
aws:ap-southeast-2,aws:ap-northeast-1,3.9901,114.552
aws:ap-southeast-2,aws:us-west-1,3.6778,136.362
aws:us-west-1,aws:ap-northeast-1,3.9888,105.114
aws:us-west-1,aws:ap-southeast-2,3.6736,136.358
aws:us-west-1,aws:eu-west-1,,130.0
"""


def two_regions(**changes: Any) -> dict[str, Any]:
    """A valid description, with top-level fields replaced."""
    return {
        "regions": [
            {"name": "us", "nodes": [{"speed": 0.2}, {"name": "big", "speed": 0.3, "accelerators": 2}]},
            {"name": "eu", "nodes": 2},
        ],
        "links": [
            {"source": "us", "target": "eu", "rttMs": 80, "mbitPerS": 40},
            {"source": "eu", "target": "us", "rttMs": 80, "mbitPerS": 25},
        ],
        **changes,
    }


def links(there: dict[str, Any], back: dict[str, Any]) -> dict[str, Any]:
    """The two directed links of `two_regions` with these figures."""
    return {"links": [{"source": "us", "target": "eu", **there}, {"source": "eu", "target": "us", **back}]}


def test_counts_and_missing_names_are_filled_in() -> None:
    spec = LabSpec.model_validate(two_regions())
    assert [(i, region.name, node.name, node.speed, node.accelerators) for i, region, node in spec.nodes()] == [
        (0, "us", "us-0", 0.2, 1),
        (1, "us", "big", 0.3, 2),
        (2, "eu", "eu-0", 0.16, 1),
        (3, "eu", "eu-1", 0.16, 1),
    ]


def test_one_way_is_half_of_a_round_trip_unless_given() -> None:
    figures = links({"oneWayMs": 70, "mbitPerS": 40}, {"oneWayMs": 50, "mbitPerS": 40})
    assert LabSpec.model_validate(two_regions()).link("us", "eu").delay_ms == 40
    assert LabSpec.model_validate(two_regions(**figures)).rtt_ms("us", "eu") == 120


def test_the_least_speed_of_a_node_with_several_accelerators() -> None:
    assert NodeSpec(speed=0.3, accelerators=3).speed == 0.3
    assert NodeSpec(speed=0.01, accelerators=0).speed == 0.01


def test_a_link_that_is_not_there_is_named_with_the_regions_that_are() -> None:
    with pytest.raises(ValueError, match="no link us->moon: the regions are us, eu"):
        LabSpec.model_validate(two_regions()).link("us", "moon")


def test_full_segments_carry_the_payload_rate() -> None:
    link = LabSpec.model_validate(two_regions()).link("us", "eu")
    assert link.wire_bytes_per_s(1500) * 1448 / 1500 == pytest.approx(5_000_000)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"links": []}, r"2 regions need 2 directed links, got 0; missing eu->us; missing us->eu"),
        (links({"mbitPerS": 4}, {"rttMs": 8, "mbitPerS": 4}), r"us->eu: give exactly one of rttMs and oneWayMs"),
        (links({"rttMs": 80, "mbitPerS": 4}, {"rttMs": 81, "mbitPerS": 4}), r"rttMs of .* is 8[01] but of .* 8[01]"),
        (links({"rttMs": 80, "mbitPerS": -3}, {"rttMs": 80, "mbitPerS": 4}), r"greater than 0.*input_value=-3"),
        ({"regions": [{"name": "us", "nodes": 0}], "links": []}, r"region us: nodes 0 must be >= 1"),
        ({"regions": [{"name": "us", "nodes": 65}], "links": []}, r"65 real nodes, at most 64"),
        ({"regions": [{"name": "US", "nodes": 1}], "links": []}, r"region name 'US' must be"),
        (
            {"regions": [{"name": "a", "nodes": [{"name": "x"}, {"name": "x"}]}], "links": []},
            r"node names must be unique.*x",
        ),
        ({"regions": [], "links": []}, r"needs a region with nodes or kwok nodes, got 0 and 0"),
        (
            {"regions": [{"name": "a", "nodes": [{"speed": 0.05}]}], "links": []},
            r"node a-0: speed 0.05 must be at least 0.1 of a core for each of its 1 accelerators",
        ),
        ({"regions": [{"name": "a", "nodes": [{"accelerators": 2}]}], "links": []}, r"speed 0.16 must be at least 0.1"),
        ({"mtu": 100}, r"greater than or equal to 576"),
        ({"routers": 3}, r"Extra inputs are not permitted"),
    ],
)
def test_refused_with_the_numbers(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        LabSpec.model_validate(two_regions(**changes))


def test_a_lab_of_simulated_nodes_alone() -> None:
    assert LabSpec.model_validate({"kwok": {"nodes": 100}}).num_nodes == 0


def test_a_file_that_is_no_mapping(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("- 1\n")
    with pytest.raises(ValueError, match="a lab file is a mapping, got list"):
        load(path)


@pytest.mark.parametrize("path", LAB_FILES, ids=lambda path: path.name)
def test_committed_files_load_and_survive_a_dump(path: Path, tmp_path: Path) -> None:
    spec = load(path, "renamed")
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump(spec))
    assert spec.name == "renamed"
    assert load(copy) == spec


def test_the_default_file_is_what_its_command_prints(tmp_path: Path) -> None:
    """The drawn regions' own rows draw the same lab again: with three regions there is one choice."""
    (tmp_path / "links.csv").write_text(DEFAULT_ROWS)
    spec = draw.draw(draw.read_links(tmp_path), seed=1, scale=0.01)
    default = next(path for path in LAB_FILES if path.name == "default.yaml")
    assert draw.render(spec, seed=1, scale=0.01) == default.read_text()


def test_nothing_to_draw_from(tmp_path: Path) -> None:
    (tmp_path / "links.csv").write_text("src_region,dst_region,gbps,rtt_ms\na,b,1,10\nb,a,1,\n")
    with pytest.raises(ValueError, match="no 3 of 1 regions have every directed pair measured"):
        draw.draw(draw.read_links(tmp_path), seed=1, scale=0.01)
