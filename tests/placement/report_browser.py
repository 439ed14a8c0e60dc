"""A real browser for pages of reports, and what is wrong with a page that is open in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

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


@pytest.fixture(scope="module", name="browser")
def opened_browser() -> Iterator[Browser]:
    found = shutil.which(CHROMIUM)
    assert found, f"{CHROMIUM} is missing: apt-get install {CHROMIUM}, or make tools"
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


WIDTHS = ((1280, "light"), (1280, "dark"), (390, "light"))


def assert_readable(browser: Browser, path: Path) -> None:
    """At every width, by day and by night: it loads and says nothing, nothing overflows, is cut off or faint."""
    for width, scheme in WIDTHS:
        opened = Opened(browser, width, scheme, path)
        assert opened.asked == [path.as_uri()]
        assert opened.said == []
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width
        assert opened.page.evaluate(OVERFLOWING) == []
        assert opened.page.evaluate(CUT_OFF) == []
        assert opened.page.evaluate(FAINT) == []
        opened.page.context.close()


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
