"""Placements and links from files: what is written reads back to the very same, and mistakes are named with figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hulk_placement.files import text
from hulk_placement.files.part import API_VERSION
from hulk_placement.files.placement import LinksFile, PlacementFile
from hulk_placement.files.placement_reading import ReadPlacement, read_links, read_placement, to_links, to_placement
from hulk_placement.schedule.links import DeviceLink
from hulk_placement.schedule.placement import Block, Kind, Placement
from hulk_placement.schedule.shapes import SHAPES, split_weights
from hypothesis import given
from hypothesis import strategies as st
from placement_writing import links_document, placement_document

EXAMPLES = Path(__file__).parents[2] / "examples" / "planner"
TIMES = st.floats(min_value=0, max_value=1e9, allow_subnormal=False)


@st.composite
def placements(draw: st.DrawFn) -> ReadPlacement:
    num_devices = draw(st.integers(1, 4))
    blocks = tuple(
        Block(
            name=f"F{number}",
            devices=tuple(draw(st.lists(st.integers(0, num_devices - 1), min_size=1, unique=True))),
            span=draw(TIMES),
            memory=draw(st.floats(min_value=-1e6, max_value=1e6, allow_subnormal=False)),
            after=tuple(draw(st.lists(st.integers(0, number - 1), unique=True))) if number else (),
            kind=draw(st.sampled_from(Kind)),
            stage=draw(st.sampled_from(["", "head"])),
        )
        for number in range(draw(st.integers(1, 5)))
    )
    return ReadPlacement(Placement(num_devices, blocks), draw(st.booleans()), draw(st.booleans()))


def again(read: ReadPlacement) -> ReadPlacement:
    return to_placement(text.parse(PlacementFile, text.load(text.dump(placement_document(read))), "it"))


@given(placements())
def test_a_placement_that_is_written_reads_back_to_the_very_same(read: ReadPlacement) -> None:
    said = again(read)
    assert said.placement == read.placement
    assert said.in_seconds == read.in_seconds
    has_memory = any(block.memory for block in read.placement.blocks)
    assert said.in_gibibytes == (read.in_gibibytes and has_memory)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_can_be_written(shape: str) -> None:
    for placement in (SHAPES[shape](4, 1, 3), split_weights(SHAPES[shape](4, 1, 3))):
        assert again(ReadPlacement(placement)) == ReadPlacement(placement)


@given(TIMES, TIMES, st.booleans())
def test_links_that_are_written_read_back_to_the_very_same(busy: float, latency: float, in_seconds: bool) -> None:
    links = {(0, 1): DeviceLink(0, 1, busy, latency, ("out",)), (1, 0): DeviceLink(1, 0, busy)}
    document = text.parse(LinksFile, text.load(text.dump(links_document(links, in_seconds))), "it")
    assert to_links(document, 2, in_seconds if busy or latency else True) == links


def test_the_examples_are_in_seconds_and_gibibytes() -> None:
    read = read_placement(EXAMPLES / "placement.yaml")
    assert (read.in_seconds, read.in_gibibytes) == (True, True)
    assert [(block.span, block.memory) for block in read.placement.blocks[:5:4]] == [(0.02, 2.0), (0.005, 0.5)]
    links = read_links(EXAMPLES / "links.yaml", 4, in_seconds=True)
    assert links[0, 1] == DeviceLink(0, 1, 0.015, 0.04, ("frankfurt out",))


def test_one_entry_of_links_may_say_both_ways() -> None:
    document = LinksFile.model_validate({"links": ({"source": 0, "target": 1, "symmetric": True, "busy": 2.0},)})
    assert to_links(document, 2, False) == {(0, 1): DeviceLink(0, 1, 2.0), (1, 0): DeviceLink(1, 0, 2.0)}


def block(name: str, **said: Any) -> dict[str, Any]:
    return {"name": name, "devices": [0], "span": 1, **said}


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([block("a", after=["b"]), block("b", after=["a"])], r"blocks need each other: a after b after a"),
        ([block("F0"), block("F0")], r"it: block F0: the name is there twice"),
        ([block("Ftext"), block("B0", after=["Ftxt"])], r"\[1\].after: no block is Ftxt; did you mean Ftext\?"),
        ([block("F0", devices=[2])], r"block F0: devices \[2\] must be one or more of 0 to 1, each once"),
        ([block("F0", span=-1)], r"blocks\[0\].span: -1 should be greater than or equal to 0"),
        (
            [block("F0"), {"name": "B0", "devices": [0], "spanSeconds": 1}],
            r"blocks\[0\].span has no unit, and blocks\[1",
        ),
        ([block("F0", memory=1), block("B0", memoryBytes=1)], r"\[0\].memory has no unit, and blocks\[1\].memoryBytes"),
        ([block("F0", kind="foward")], r"'foward' is none of forward, backward, weight; did you mean forward\?"),
        ([{"name": "F0", "devices": [0]}], r"blocks\[0\]: span is missing: give one of spanMilliseconds"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(blocks: list[dict[str, Any]], message: str) -> None:
    said = {"apiVersion": API_VERSION, "kind": "Placement", "devices": 2, "blocks": blocks}
    with pytest.raises(ValueError, match=message):
        to_placement(text.parse(PlacementFile, said, "it"), "it")


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([{"source": 0, "target": 2, "busy": 1}], r"links\[0\]: device 2, of 2 counted from 0"),
        ([{"source": 0, "target": 1}, {"source": 0, "target": 1}], r"links\[1\]: 0 -> 1 is there already"),
        ([{"source": 1, "target": 1}], r"links\[0\]: a link from device 1 to itself"),
        ([{"source": 0, "target": 1, "latency": -2}], r"links\[0\].latency: -2 should be greater than or equal to 0"),
        ([{"source": 0, "target": 1, "busySeconds": 1}], r"times of links have units, and spans of blocks have none"),
        ([{"source": 0, "target": 1, "busySeconds": 1, "latency": 1}], r"links\[0\].latency has no unit, and links\[0"),
    ],
)
def test_links_that_cannot_be_are_refused(links: list[dict[str, Any]], message: str) -> None:
    said = {"apiVersion": API_VERSION, "kind": "Links", "links": links}
    with pytest.raises(ValueError, match=message):
        to_links(text.parse(LinksFile, said, "it"), 2, in_seconds=False, where="it")
