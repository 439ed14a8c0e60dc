"""What the documents show is valid: links, HulkJobs and HulkSweeps, and the commands of `hulk`."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hulk_operator.api.strict import parse
from hulk_operator.cli.reference import commands, options, page

ROOT = Path(__file__).resolve().parents[2]
ENTRY = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES = [*ENTRY, *sorted((ROOT / "docs").rglob("*.md"))]
MAX_GUIDE_WORDS = 720
COMMANDS = {name: set(options(command)) for name, command in commands()}


def name_of(path: Path) -> str:
    """The page as tests show it."""
    return str(path.relative_to(ROOT))


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and content of each fenced block."""
    yield from re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Whole objects of Hulk's API in the page, and parts of a HulkJob laid over the example."""
    example = yaml.safe_load((ROOT / "examples" / "hulkjob.yaml").read_text())
    for language, content in blocks(text):
        if language != "yaml":
            continue
        for document in yaml.safe_load_all(content):
            if isinstance(document, dict) and str(document.get("apiVersion")).startswith("hulk.dev/v1"):
                yield document
            elif isinstance(document, dict) and set(document) == {"spec"}:
                yield over(example, document)


def over(base: Any, part: Any) -> Any:
    """`part` laid over `base`: maps are merged, all else is replaced."""
    if isinstance(base, dict) and isinstance(part, dict):
        return base | {key: over(base.get(key), value) for key, value in part.items()}
    return part


def calls(text: str) -> Iterator[list[str]]:
    """The words of each `hulk` command in code blocks and between backticks."""
    lines = [line.strip() for _, content in blocks(text) for line in content.replace("\\\n", " ").splitlines()]
    lines += [line.strip() for line in text.splitlines() if line.startswith("    ")]
    lines += re.findall(r"`((?:kubectl )?hulk [a-z][^`]*)`", text)
    for line in lines:
        for part in re.split(r"[;|&\\]+", re.sub(r"\s#.*", "", line)):
            if re.match(r"(kubectl )?hulk [a-z]+( |$)", part.strip()):
                yield shlex.split(part.strip().removeprefix("kubectl "))


def mistake(words: list[str]) -> str | None:
    """What is wrong with a command: no such one, or an option that it does not have."""
    found = next((name for size in (3, 2) if (name := " ".join(words[:size])) in COMMANDS), None)
    if found is None:
        known = any(name.startswith(f"{' '.join(words[:2])} ") and len(words) == 2 for name in COMMANDS)
        return None if known else f"no command: {' '.join(words)}"
    wrong = [word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in COMMANDS[found]]
    return f"{found} has no {', '.join(wrong)}" if wrong else None


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_commands_are_those_of_the_program(path: Path) -> None:
    assert [found for words in calls(path.read_text()) if (found := mistake(words))] == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_objects_are_accepted(path: Path) -> None:
    for document in objects(path.read_text()):
        parse(document)


def test_there_are_commands_and_objects_to_check() -> None:
    texts = [path.read_text() for path in PAGES]
    assert sum(len(list(calls(text))) for text in texts) >= 40
    assert sum(len(list(objects(text))) for text in texts) >= 7


def test_what_is_wrong_is_found() -> None:
    assert mistake(shlex.split("hulk plan -f job.yaml --topolgy t.yaml")) == "hulk plan has no --topolgy"
    assert mistake(["hulk", "plant"]) == "no command: hulk plant"
    (bad,) = objects("```yaml\nspec:\n  placement: {region: [eu-west]}\n```\n")
    with pytest.raises(ValueError, match=r"region"):
        parse(bad)


@pytest.mark.parametrize("path", ENTRY, ids=name_of)
def test_links_of_the_entry_pages_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)(?:#([^)]*))?\)", path.read_text())
    for target, anchor in targets:
        place = ROOT / target
        assert place.exists(), target
        titles = re.findall(r"^#+ (.*)$", place.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "guides").glob("*.md")), ids=name_of)
def test_a_guide_is_one_task(path: Path) -> None:
    assert len(path.read_text().split()) <= MAX_GUIDE_WORDS


def test_the_page_of_commands_is_fresh() -> None:
    assert (ROOT / "docs" / "reference" / "cli.md").read_text() == page()
    assert "## hulk topology import" in page()
