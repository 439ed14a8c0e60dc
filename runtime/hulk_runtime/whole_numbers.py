"""Counts that a script gives -> int, so that half a step is refused as it is given and not waited for."""

import operator
from typing import Any


def whole_number(name: str, value: Any, refusal: type[Exception] = ValueError) -> int:
    """Of an int or what counts as one, such as numpy's. Raises `refusal` with the name and the value.

    >>> whole_number("delay", 1.5)
    Traceback (most recent call last):
    ValueError: delay 1.5 must be a whole number
    """
    try:
        return operator.index(value)
    except TypeError:
        raise refusal(f"{name} {value!r} must be a whole number") from None
