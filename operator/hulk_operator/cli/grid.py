"""What the tables for people have in common."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text


def table(*headings: str, numbers: Iterable[str] = ()) -> Table:
    """A plain table in kubectl's manner; headings in `numbers` are aligned to the right."""
    right = frozenset(numbers)
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return made


def sentence(label: str, text: str) -> Text:
    """One labelled line."""
    return Text.assemble((f"{label:<12}", "bold"), text)
