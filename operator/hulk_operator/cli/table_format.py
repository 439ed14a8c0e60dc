"""What the tables for people have in common."""

from collections.abc import Iterable
from datetime import datetime

from rich.table import Table
from rich.text import Text

from hulk_operator.api import Condition
from hulk_operator.cli import units


def table(*headings: str, numbers: Iterable[str] = ()) -> Table:
    """A plain table in kubectl's manner; headings in `numbers` are aligned to the right."""
    right = frozenset(numbers)
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return made


def condition_table(conditions: Iterable[Condition], now: datetime) -> Table:
    """A row for each condition of a status."""
    made = table("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE")
    for one in conditions:
        since = units.age((now - one.last_transition_time).total_seconds())
        made.add_row(one.type, one.status, one.reason, since, one.message)
    return made


def sentence(label: str, text: str) -> Text:
    """One labelled line."""
    return Text.assemble((f"{label:<11} ", "bold"), text)
