"""Prints a report as a table for people, or as JSON or YAML for programs. What draws tables is imported to draw one."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

PIPE_WIDTH = 200  # columns where nobody's terminal sets a width


class Output(StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def emit(document: Any, people: RenderableType, output: Output) -> None:
    """Print `people`, or the document in the asked form."""
    if output is Output.JSON:
        print(json.dumps(document, indent=2))
    elif output is Output.YAML:
        import yaml

        print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
    elif sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False, markup=False).print(people)
    else:
        print(plain(people), end="")


def note(text: str) -> None:
    """Say what the output leaves out, where it does not disturb a program that reads the output."""
    print(f"hulk: note: {text}", file=sys.stderr)


def plain(people: RenderableType) -> str:
    """Text without colours: long lines instead of wrapped ones, no trailing spaces."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, width=PIPE_WIDTH, color_system=None, file=StringIO())
    with console.capture() as captured:
        console.print(people)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
