"""How deep tests go: `make test` draws fewer worlds and kills at fewer points than `make test-all`, which CI runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

WHOLE = os.environ.get("HULK_TEST_ALL") == "1"
MOST_DRAWN = 20
"""Drawn worlds of a property in the short form: a property that fails, fails on most seeds within as many."""

T = TypeVar("T")


def num_examples(whole: int) -> int:
    """How many worlds a property is tried on."""
    return whole if WHOLE else min(whole, MOST_DRAWN)


def spread(cases: Sequence[T], short: int, is_whole: bool = WHOLE) -> list[T]:
    """All cases, or so many of them in even distances, the first and the last among them.

    >>> spread("abcdefg", 3, is_whole=False)
    ['a', 'd', 'g']
    >>> spread("ab", 3, is_whole=False)
    ['a', 'b']
    """
    if is_whole or len(cases) <= short:
        return list(cases)
    return [cases[number * (len(cases) - 1) // (short - 1)] for number in range(short)]
