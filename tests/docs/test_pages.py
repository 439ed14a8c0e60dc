"""docs/how-it-works and docs/benchmarks: a short page an idea, each with a picture; figures say when and by what.

And of docs/reference/attackers.md, that each position has tests.
"""

import calendar
import importlib.util
import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
QUESTIONS = re.findall(r'^    "(\w+)": ', (ROOT / "bench" / "__main__.py").read_text(), re.MULTILINE)
MAX_WORDS = 1200
PAGES = sorted((DOCS / "how-it-works").glob("*.md"))
BENCHMARKS = sorted((DOCS / "benchmarks").glob("*.md"))
MEASURED = re.compile(r"\*(\d{1,2}) (\w+) (20\d\d) · `python -m (bench[.\w]*)( [^`]*)?`[^·]* · commit [0-9a-f]{7,40}\*")


def captions(text: str) -> list[str]:
    """The line above each table, blank lines left out."""
    lines = [line for line in text.splitlines() if line.strip()]
    return [before for before, line in itertools.pairwise(lines) if line[0] == "|" and before[0] != "|"]


def pictures(text: str) -> list[str]:
    """What the page shows: files of images, and diagrams."""
    return re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text) + re.findall(r"^```(mermaid)$", text, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_and_has_a_picture(page: Path) -> None:
    text = page.read_text()
    assert len(text.split()) <= MAX_WORDS
    shown = pictures(text)
    assert shown
    assert all(picture == "mermaid" or (page.parent / picture).is_file() for picture in shown)


@pytest.mark.parametrize("page", BENCHMARKS, ids=lambda page: page.stem)
def test_each_table_of_a_benchmark_says_its_date_command_and_commit(page: Path) -> None:
    for caption in captions(page.read_text()):
        found = MEASURED.fullmatch(caption)
        assert found, f"above a table: {caption}"
        _, month, _, module, words = found.groups()
        assert month in calendar.month_name
        assert importlib.util.find_spec(module)
        assert module != "bench" or (words or "").split()[0] in QUESTIONS


def test_benchmarks_have_tables() -> None:
    assert sum(len(captions(page.read_text())) for page in BENCHMARKS) >= 10


def test_a_table_without_its_command_is_found() -> None:
    assert captions("Some words.\n\n| a |\n|---|\n| 1 |\n") == ["Some words."]
    assert not MEASURED.fullmatch("*27 November 2026 · `python -m bench flows`*")


@pytest.mark.parametrize("page", [*PAGES, *BENCHMARKS], ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_links_between_these_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(((?!https?:)[^)#]+\.md)(?:#[^)]*)?\)", page.read_text()):
        place = (page.parent / target).resolve()
        if place.parent.name in ("how-it-works", "benchmarks") and place.name != "architecture.md":
            assert place.is_file(), target


def rows(text: str) -> list[list[str]]:
    """The cells of each row of a table, without its heading."""
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_each_position_of_an_attacker_has_a_section_and_tests() -> None:
    text = (DOCS / "reference" / "attackers.md").read_text()
    first, *sections = text.split("\n## ")
    tested = {position.lower(): files for position, files in rows(sections[-1])}
    claimed = [re.sub(r"\[(.+)\]\(.*\)", r"\1", position) for position, *_ in rows(first)]
    assert [section.splitlines()[0].lower() for section in sections] == [*claimed, "tests"]
    assert list(tested) == claimed
    for position, files in tested.items():
        paths = re.findall(r"`(tests/[^`]+)`", files)
        assert paths, position
        assert all((ROOT / path).is_file() for path in paths), paths
