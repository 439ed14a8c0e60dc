"""Drawings of regions: where places lie on the map, what is inside of it, what must not lie on each other."""

from __future__ import annotations

import itertools
import math

import pytest
from hulk_placement.report.chart import chart
from hulk_placement.report.labels import Box, Labels
from hulk_placement.report.projection import NARROW, WIDE, Frame, Paper
from hypothesis import given
from hypothesis import strategies as st
from report_cases import CITIES, places, ring_of

PLACES = st.tuples(st.floats(-80, 80), st.floats(-180, 180))


@pytest.mark.parametrize("paper", [WIDE, NARROW])
@given(st.lists(PLACES, min_size=1, max_size=12))
def test_every_place_is_inside_and_a_grid_line_through_it_is_right(
    paper: Paper, found: list[tuple[float, float]]
) -> None:
    frame = Frame.around(found, paper)
    for place in found:
        x, y = frame.place(place)
        assert -1e-6 <= x <= paper.width + 1e-6
        assert -1e-6 <= y <= frame.height + 1e-6
    for line in frame.grid(paper.text):
        degrees, _, letter = line.name.partition("° ")
        value = float(degrees.rstrip("°")) * (-1 if letter in ("W", "S") else 1)
        middle = frame.west + frame.width / frame.scale / frame.squeeze / 2
        at = frame.place((value, middle) if line.start[0] == 0 and line.start[1] == line.end[1] else (0.0, value))
        assert min(abs(at[0] - line.start[0]), abs(at[1] - line.start[1])) < 1e-6


def test_the_map_is_cut_open_in_the_widest_ocean() -> None:
    frame = Frame.around([(35.7, 139.7), (37.8, -122.4), (21.3, -157.9)], WIDE)
    tokyo, honolulu, san_francisco = (frame.place((30, longitude))[0] for longitude in (139.7, -157.9, -122.4))
    assert tokyo < honolulu < san_francisco


def test_two_sites_of_one_city_lie_side_by_side() -> None:
    made = chart(ring_of(["a", "b"]), {"a": (50.11, 8.68), "b": (50.11, 8.68)}, WIDE)
    a, b = made.dots
    assert math.dist((a.x, a.y), (b.x, b.y)) > a.radius + b.radius


def test_without_coordinates_of_one_region_it_is_no_map() -> None:
    view = ring_of(["Paris", "somewhere"])
    made = chart(view, places(["Paris", "somewhere"]), WIDE)
    assert not made.is_map
    assert made.grid == ()


def test_names_of_cities_lie_on_no_other_and_on_no_dot() -> None:
    cities = ["Athens", "Atlanta", "Tokyo", "Sydney", "Singapore", "Mumbai", "Toronto"]
    made = chart(ring_of(cities), places(cities), WIDE)
    assert made.is_map
    boxes = []
    for dot in made.dots:
        wide = max(len(dot.name), len(dot.note)) * 0.67 * WIDE.text
        left = {"start": 0.0, "end": wide, "middle": wide / 2}[dot.anchor]
        boxes.append(Box(dot.label[0] - left, dot.label[1] - 0.95 * WIDE.text, wide, 2.5 * WIDE.text))
    boxes += [Box(d.x - d.radius, d.y - d.radius, 2 * d.radius, 2 * d.radius) for d in made.dots]
    assert all(a.overlap(b) == 0 for a, b in itertools.combinations(boxes, 2))


def test_the_link_that_carries_most_is_drawn_thickest() -> None:
    made = chart(ring_of(CITIES), places(CITIES), WIDE)
    carried = {curve.row.stage_bytes + curve.row.sync_bytes: curve.width for curve in made.curves}
    assert [carried[key] for key in sorted(carried)] == sorted(carried.values())


def test_a_second_word_finds_another_place() -> None:
    placed = Labels(100, 100, 10)
    assert placed.free(50, 50, "word")
    assert not placed.free(52, 50, "word")
    assert placed.free(50, 70, "word")
    assert not placed.free(2, 20, "half outside")


def test_links_that_carry_less_than_half_a_byte_are_drawn_too() -> None:
    view = ring_of(CITIES)
    links = tuple(row.model_copy(update={"stage_bytes": 0, "sync_bytes": 0}) for row in view.links)
    made = chart(view.model_copy(update={"links": links}), places(CITIES), WIDE)
    assert len(made.curves) == len(chart(view, places(CITIES), WIDE).curves) > 0
