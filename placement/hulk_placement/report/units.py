"""Numbers as people read them: times, rates, sizes, ages. Programs get the plain integers (`-o json`)."""

ABSENT = "-"
_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def duration(microseconds: int | None) -> str:
    """
    >>> duration(76_400), duration(850), duration(2_500_000), duration(None)
    ('76.4 ms', '0.85 ms', '2.50 s', '-')
    """
    if microseconds is None:
        return ABSENT
    if microseconds >= 1_000_000:
        return f"{microseconds / 1e6:.2f} s"
    return f"{microseconds / 1e3:.1f} ms" if microseconds >= 10_000 else f"{microseconds / 1e3:.2f} ms"


def rate(bytes_per_second: int | None) -> str:
    """
    >>> rate(55_000_000), rate(None)
    ('55.0 MB/s', '-')
    """
    if bytes_per_second is None:
        return ABSENT
    for unit, name in _RATES:
        if bytes_per_second >= unit:
            return f"{bytes_per_second / unit:.1f} {name}"
    return f"{bytes_per_second} B/s"


def size(num_bytes: int) -> str:
    """
    >>> size(1_610_612_736)
    '1.5 GiB'
    """
    for unit, name in _SIZES:
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes} B"


def count(number: int) -> str:
    """
    >>> count(1_557_611_200), count(124_000_000), count(950)
    ('1.56 B', '124 M', '950')
    """
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return str(number)


def span(first: int, last: int, dash: str = "-") -> str:
    """
    >>> span(3, 7), span(3, 3)
    ('3-7', '3')
    """
    return str(first) if first == last else f"{first}{dash}{last}"


def age(seconds: float | None) -> str:
    """
    >>> age(12), age(200), age(7300), age(200_000), age(None)
    ('12s', '3m', '2h', '2d', '-')
    """
    if seconds is None:
        return ABSENT
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * unit:
            return f"{int(seconds // unit)}{name}"
    return f"{int(seconds)}s"


def percent(ratio: float) -> str:
    """
    >>> percent(-0.0312)
    '-3.1 %'
    """
    return f"{ratio * 100:.1f} %"
