"""Kubernetes' quantities -> whole numbers: cpu in thousandths, everything else in units (bytes, counts)."""

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal, DecimalException
from functools import lru_cache
from typing import Final

CPU: Final = "cpu"
_MILLI: Final = 1000
MAX_AMOUNT: Final = (1 << 63) - 1  # Kubernetes counts no further
_SUFFIXES: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    **{letter: Decimal(10) ** (3 * power) for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Decimal(2) ** (10 * power) for power, letter in enumerate("KMGTPE", 1)},
}
_FORM: Final = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")


def parse(text: str | float) -> Decimal:
    """The number in a quantity; ValueError when it is none.

    >>> parse("250m"), parse("1.5Gi"), parse("2e3"), parse(4)
    (Decimal('0.250'), Decimal('1610612736.0'), Decimal('2E+3'), Decimal('4'))
    """
    found = _FORM.fullmatch(str(text).strip())
    if found is None or found[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity")
    try:
        return Decimal(found[1]) * _SUFFIXES[found[2]]
    except DecimalException as error:  # two points, or an exponent beyond all numbers
        raise ValueError(f"{text!r} is not a quantity") from error


@lru_cache(maxsize=4096)  # thousands of nodes and pods say the same
def amount(resource: str, quantity: str | float) -> int:
    """A quantity as a whole number of the resource's unit, rounded up; ValueError below 0.

    >>> amount("cpu", "1.5"), amount("memory", "1Ki"), amount("nvidia.com/gpu", "8")
    (1500, 1024, 8)
    """
    scaled = parse(quantity) * (_MILLI if resource == CPU else 1)
    if scaled < 0:
        raise ValueError(f"{resource} {quantity} must be >= 0")
    return int(min(scaled, Decimal(MAX_AMOUNT)).to_integral_value(ROUND_CEILING))


def amounts(quantities: Mapping[str, str | float]) -> dict[str, int]:
    """All quantities of a resource list."""
    return {resource: amount(resource, quantity) for resource, quantity in quantities.items()}


def amount_words(resource: str, value: int) -> str:
    """An amount for a sentence.

    >>> amount_words("cpu", 2500), amount_words("memory", 3 << 29), amount_words("nvidia.com/gpu", 8)
    ('2.5', '1.5 GiB', '8')
    """
    if resource == CPU:
        return f"{value / _MILLI:g}"
    return f"{value / (1 << 30):.4g} GiB" if resource == "memory" or "storage" in resource else f"{value:,}"
