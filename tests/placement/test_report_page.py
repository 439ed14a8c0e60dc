"""The page in a real browser: nothing is loaded, run or said to the console, nothing overflows, all can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hulk_placement.report.html import page
from playwright.sync_api import Browser
from report_browser import Opened, assert_readable, opened_browser
from report_cases import CASES, HOSTILE

__all__ = ["opened_browser"]  # a fixture


@pytest.mark.parametrize("case", CASES)
def test_a_page_can_be_read_at_every_width_by_day_and_by_night(case: str, browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page([CASES[case]()[0]], CASES[case]()[1]), encoding="utf-8")
    assert_readable(browser, path)


def test_names_are_shown_and_never_run(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page([CASES["searched, with hostile names"]()[0]], {}), encoding="utf-8")
    opened = Opened(browser, 1280, "light", path)
    assert opened.page.title() == "Plan of team/job"
    assert opened.page.locator("script, img, iframe, object, link").count() == 0
    assert HOSTILE in opened.page.locator("p.lead").inner_text()
    assert opened.page.locator("svg .name", has_text="<script>").count() == 2  # the wide and the narrow drawing
    assert opened.page.locator("[onerror]").count() == 0


def test_everything_that_a_plan_says_is_there(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page([CASES[name]()[0] for name in ("two stages over an ocean", "too little memory")], {}))
    opened = Opened(browser, 1280, "light", path).page
    first, second = opened.locator("article").all()
    headings = first.locator("h2").all_inner_texts()
    assert headings == [
        "Where the step goes",
        "Where it runs",
        "Every layer's place",
        "What runs when",
        "Memory of an accelerator",
        "Which single change would help most",
        "What a step costs",
        "Why this plan",
    ]
    assert opened.locator("h1").all_inner_texts() == ["team/job", "team/job"]
    assert first.locator(".layers div").all_inner_texts() == ["0–4", "5–7"]
    assert "layers 0-1 to frankfurt" in first.locator("table.stack").inner_text()
    assert first.locator("svg.wide-only .link").count() == 2
    assert first.locator("svg.wide-only .line").count() > 4  # a map: both cities are known
    assert "80.0 ms, 50.0 MB/s" in first.locator("svg.wide-only").text_content()
    assert "missing" not in first.inner_text()
    assert "too little" in second.locator(".figures").inner_text()
    assert [second.locator(f".held .{verdict}").count() for verdict in ("bad", "good")] == [1, 1]
    assert "make it fit" in second.inner_text()
    for drawing in opened.locator("svg:not(.swatch)").all():
        titled = [drawing.locator(f"#{part}").count() for part in drawing.get_attribute("aria-labelledby").split()]
        assert titled == [1, 1]
    assert opened.locator("nav a").count() == 2


def test_stages_show_what_runs_when_and_how_busy_their_links_are(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    shown = [CASES[name]()[0] for name in ("two stages over an ocean", "one machine's region")]
    path.write_text(page(shown, {}), encoding="utf-8")
    staged, whole = Opened(browser, 1280, "light", path).page.locator("article").all()
    order = staged.locator("section", has=staged.page.locator("h2", has_text="What runs when"))
    blocks = order.locator("svg.gantt g title").all_text_contents()
    for name in ("F0", "F1", "B0", "B1"):
        assert len([text for text in blocks if text.startswith(f"{name} of micro-batch")]) == 8
    assert any(text.startswith("F0 to F1 of micro-batch 0: over link 0 > 1") for text in blocks)
    links = order.locator("tbody th").all_inner_texts()
    assert shown[0].blocks is not None
    assert links == [link.name.replace(" > ", " → ") for link in shown[0].blocks.links]
    assert set(links) == {"link 0 → 1", "link 1 → 0"}
    assert whole.locator("h2", has_text="What runs when").count() == 0
    assert whole.locator("svg.gantt").count() == 0
