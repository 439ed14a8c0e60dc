"""Schedules as rows, parts of the time and drawings; the page and the SVG file in a real browser."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hulk_placement.report.schedule.drawing import WIDEST, drawing
from hulk_placement.report.schedule.html import figure, page, svg
from hulk_placement.report.schedule.rows import ScheduleView
from hulk_placement.report.schedule.sections import sections, steady
from hulk_placement.report.schedule.tracks import kinds, tracks
from hulk_placement.report.schedule.view import Titled, schedule_view
from hulk_placement.schedule.links import DeviceLink, with_links
from hulk_placement.schedule.placement import Placement
from hulk_placement.schedule.search import scheduled
from hulk_placement.schedule.shapes import SHAPES, split_weights
from playwright.sync_api import Browser
from report_browser import Opened, assert_readable, opened_browser

__all__ = ["opened_browser"]  # a fixture

LONG_S = 20.0
HOSTILE = "<script>document.title='ran'</script>\"'&<img src=x onerror=alert(1)>"
TITLED = Titled("v", "searched")


def found(placement: Placement, num: int, memory: float = math.inf, titled: Titled = TITLED) -> ScheduleView:
    return schedule_view(titled, placement, scheduled(placement, num, memory, LONG_S), memory)


def linked(name: str = "uplink") -> Placement:
    ways = {(a, b): DeviceLink(a, b, 0.5, 2, (f"{name} {a}",)) for a, b in ((0, 1), (1, 0))}
    return with_links(SHAPES["v"](2, 1, 3), ways)


def hostile() -> ScheduleView:
    return found(linked(HOSTILE), 3, titled=Titled(HOSTILE, "searched", "s", "GiB"))


CASES: dict[str, Callable[[], ScheduleView]] = {
    "one block": lambda: found(SHAPES["v"](1, 1, 3).forward_only(), 1),
    "v": lambda: found(SHAPES["v"](4, 1, 3), 8, 16),
    "long": lambda: found(SHAPES["v"](4, 1, 3), 64, 16),
    "weights": lambda: found(split_weights(SHAPES["v"](2, 1, 2)), 6, 16),
    "links": lambda: found(linked(), 8, 6),
    "hostile": hostile,
}


def test_rows_say_what_the_schedule_is() -> None:
    view = CASES["v"]()
    assert (view.makespan, view.bubbles, view.bound, view.proven) == (44, 48, 44, True)
    assert CASES["long"]().period == 4
    assert view.bubble_share == pytest.approx(48 / 4 / 44)
    assert (len(view.blocks), view.transfers, view.memory) == (64, (), (16, 16, 16, 16))
    assert view.peak_memory[3] == 1
    assert [(b.start, b.end) for b in view.blocks if b.name == "F3" and b.micro_batch == 0] == [(3, 4)]


def test_transfers_are_on_their_links_and_then_on_their_way() -> None:
    view = CASES["links"]()
    assert [link.name for link in view.links] == ["link 0 > 1", "uplink 0", "link 1 > 0", "uplink 1"]
    assert {link.busy for link in view.links} == {8 * 0.5}
    for sent in view.transfers:
        assert (sent.end - sent.start, sent.arrives - sent.end) == (pytest.approx(0.5), pytest.approx(2))
        (source,) = (b for b in view.blocks if (b.name, b.micro_batch) == (sent.source, sent.micro_batch))
        (target,) = (b for b in view.blocks if (b.name, b.micro_batch) == (sent.target, sent.micro_batch))
        assert source.end <= sent.start + 1e-9
        assert sent.arrives <= target.start + 1e-9
    shown = tracks(view)
    assert [track.is_device for track in shown] == [True, True, False, False, False, False]
    for track in shown:
        assert all(earlier.end <= later.start + 1e-9 for earlier, later in pairwise(track.bars))
    assert "F0 to F1 of micro-batch 0: over link 0 > 1, uplink 0, 1 to 1.5, there at 3.5" in shown[2].bars[0].words
    assert list(kinds(view)) == ["forward", "backward", "transfer"]


def test_a_long_schedule_is_its_warm_up_one_period_and_its_cool_down() -> None:
    view = CASES["long"]()
    parts = sections(view, room=60)
    assert [part.name for part in parts] == ["warm-up", "one period", "cool-down"]
    assert (parts[0].start, parts[-1].end, parts[1].length) == (0, 268, 4)
    again = steady(view)
    assert again is not None
    assert parts[1].left_out == f"{again.times - 1} more periods like it"
    assert sum(part.length for part in parts) + 4 * (again.times - 1) == pytest.approx(268)


def test_what_repeats_is_the_same_in_every_period() -> None:
    view = CASES["long"]()
    again = steady(view)
    assert again is not None
    assert again.times > 50
    for track in tracks(view):
        periods = [
            sorted(
                (bar.kind, round(bar.start - begin, 6), bar.micro_batch - number)
                for bar in track.bars
                if begin <= bar.start < begin + again.period
            )
            for number in range(again.times)
            for begin in [again.start + number * again.period]
        ]
        assert periods == [periods[0]] * again.times


def test_a_short_schedule_is_shown_whole_and_one_without_periods_at_its_ends() -> None:
    assert [part.name for part in sections(CASES["v"](), room=44)] == [""]
    assert [part.name for part in sections(CASES["v"](), room=30)] == [""]
    whole = CASES["v"]()
    odd = [b.model_copy(update={"start": b.start + 0.1 * (b.micro_batch % 3)}) for b in whole.blocks]
    parts = sections(whole.model_copy(update={"blocks": tuple(odd)}), room=10)
    assert [(part.name, part.start, part.end) for part in parts] == [("beginning", 0, 5), ("end", 39, 44)]
    assert parts[0].left_out == "5 to 39 is left out"


@pytest.mark.parametrize("case", CASES)
def test_boxes_of_a_row_do_not_meet_and_are_on_the_paper(case: str) -> None:
    made = drawing(CASES[case]())
    assert made.width <= WIDEST + 400
    rows: dict[float, list[tuple[float, float]]] = {}
    for box in made.boxes:
        assert made.names <= box.x <= box.x + box.width <= made.width
        assert box.y + box.height <= made.bottom
        if box.width:
            rows.setdefault(box.y, []).append((box.x, box.x + box.width))
    for boxes in rows.values():
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in pairwise(sorted(boxes)))


@pytest.mark.parametrize("case", CASES)
def test_a_page_can_be_read_at_every_width_by_day_and_by_night(case: str, browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "schedule.html"
    path.write_text(page(CASES[case]()), encoding="utf-8")
    assert_readable(browser, path)


def test_the_page_says_what_runs_when(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "schedule.html"
    view = CASES["links"]()
    path.write_text(page(view), encoding="utf-8")
    opened = Opened(browser, 1280, "light", path).page
    assert opened.locator("h2").all_inner_texts() == [
        "What runs when",
        "Devices",
        "Links and uplinks",
        *(["The pattern that was searched for"] if view.pattern else []),
    ]
    assert opened.locator("svg.gantt g").count() == 2 * 2 * 8 + 4 * 8  # blocks, and each transfer on link and uplink
    words = "F0 of micro-batch 0: forward, stage 0, on device 0, 0 to 1"
    assert opened.locator("svg.gantt g title").first.text_content() == words
    assert "uplink 0" in opened.locator("section", has_text="Links and uplinks").inner_text()


def test_names_are_shown_and_never_run(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "schedule.html"
    path.write_text(page(hostile()), encoding="utf-8")
    opened = Opened(browser, 1280, "light", path)
    assert opened.page.title() == f"Schedule of {HOSTILE}"
    assert opened.page.locator("h1").inner_text() == HOSTILE
    assert opened.page.locator("script, img, iframe, object, link, [onerror]").count() == 0


@pytest.mark.parametrize("case", ["links", "long", "hostile"])
def test_the_drawing_is_a_file_of_its_own(case: str, browser: Browser, tmp_path: Path) -> None:
    view = CASES[case]()
    path = tmp_path / "schedule.svg"
    path.write_text(svg(view), encoding="utf-8")
    opened = Opened(browser, 1280, "light", path)
    assert opened.page.evaluate("document.documentElement.namespaceURI") == "http://www.w3.org/2000/svg"
    assert (opened.asked, opened.said) == ([path.as_uri()], [])
    assert opened.page.locator("g").count() == sum(box.width > 0 for box in drawing(view).boxes)


def test_a_page_may_have_several_drawings() -> None:
    both = figure(CASES["v"](), "one") + figure(CASES["v"](), "two")
    assert both.count('id="one-t"') == both.count('id="two-t"') == 1
    assert "<html" not in both
