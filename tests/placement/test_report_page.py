"""The page in a real browser: nothing is loaded, run or said to the console, nothing overflows, all can be read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hulk_placement.report.html import page
from playwright.sync_api import Browser, Page, sync_playwright
from report_cases import CASES, HOSTILE

CHROMIUM = "chromium-headless-shell"

OVERFLOWING = """() => [...document.querySelectorAll('body *')].filter(element => {
  const box = element.getBoundingClientRect();
  const scrolled = element.closest('.scroll') && element.closest('.scroll') !== element;
  return box.width > 0 && !scrolled && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map(element => element.outerHTML.slice(0, 120))"""

CUT_OFF = """() => [...document.querySelectorAll('svg.chart')].flatMap(svg => {
  const paper = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const box = text.getBoundingClientRect();
    return paper.width > 0 && (box.left < paper.left - 1 || box.right > paper.right + 1 || box.top < paper.top - 1
      || box.bottom > paper.bottom + 1);
  }).map(text => text.textContent);
})"""

FAINT = """() => {
  const parse = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const words = [...document.querySelectorAll('body *')].filter(element =>
    element.getClientRects().length && [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  return words.map(element => {
    const style = getComputedStyle(element), own = element.namespaceURI.endsWith('svg') ? style.fill : style.color;
    const [a, b] = [light(parse(own)), light(behind(element))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.textContent.trim().slice(0, 40)];
  }).filter(([ratio]) => ratio < 4.5);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which(CHROMIUM)
    assert found, f"{CHROMIUM} is missing: apt-get install {CHROMIUM}, or make tools"
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


class Opened:
    """A page in the browser, and what it said and asked for."""

    def __init__(self, browser: Browser, width: int, scheme: str, path: Path) -> None:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
        )
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.locator("details").evaluate_all("found => found.forEach(one => one.open = true)")


@pytest.mark.parametrize("case", CASES)
def test_a_page_can_be_read_at_every_width_by_day_and_by_night(case: str, browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page([CASES[case]()[0]], CASES[case]()[1]), encoding="utf-8")
    for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light")):
        opened = Opened(browser, width, scheme, path)
        assert opened.asked == [path.as_uri()]
        assert opened.said == []
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width
        assert opened.page.evaluate(OVERFLOWING) == []
        assert opened.page.evaluate(CUT_OFF) == []
        assert opened.page.evaluate(FAINT) == []
        opened.page.context.close()


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
    for drawing in opened.locator("svg").all():
        titled = [drawing.locator(f"#{part}").count() for part in drawing.get_attribute("aria-labelledby").split()]
        assert titled == [1, 1]
    assert opened.locator("nav a").count() == 2


def test_searches_are_side_by_side(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page([CASES["searched, with hostile names"]()[0]], {}), encoding="utf-8")
    table = Opened(browser, 1280, "light", path).page.locator("section", has_text="What other searches find")
    text = table.last.inner_text()
    for words in ("123,456", "10.0 %", "proven best", "nothing possible", "6 × 1 × 1"):
        assert words in text
