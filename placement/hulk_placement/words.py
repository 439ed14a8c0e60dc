"""Numbers and names in sentences."""

from __future__ import annotations

from collections.abc import Iterable


def some(names: Iterable[str]) -> str:
    """A few names of many.

    >>> some(["a", "b", "c", "d"])
    'a, b, c, ...'
    """
    found = list(names)
    return ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")


def counted(num: int, thing: str) -> str:
    """
    >>> counted(1, "stage"), counted(1_200, "step")
    ('1 stage', '1,200 steps')
    """
    return f"{num:,} {thing}{'' if num == 1 else 's'}"


def gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
