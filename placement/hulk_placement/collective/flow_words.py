"""A flow of the all-reduce in words."""

from __future__ import annotations

from hulk_placement.collective.patterns import Flow


def flow_words(flow: Flow, regions: tuple[str, ...]) -> str:
    """One flow in words.

    >>> from hulk_placement.collective.patterns import Pattern
    >>> flow_words(Flow(1.0, Pattern(up=(1, 1, 2), down=(1, 1, 2))), ("eu", "us", "ap"))
    'us and ap exchange, eu through us'
    >>> flow_words(Flow(1.0, Pattern(up=(1, 1, 1), down=(2, 1, 1))), ("eu", "us", "ap"))
    'us sums, eu to it and from ap, ap through it'
    """
    pattern = flow.pattern
    members = [regions[r] for r in pattern.exchange]
    alone = len(members) == 1
    head = f"{members[0]} sums" if alone else f"{', '.join(members[:-1])} and {members[-1]} exchange"

    def name(region: int) -> str:
        return "it" if alone and region == pattern.exchange[0] else regions[region]

    others = []
    for region, parent in pattern.reduce:
        source = pattern.down[region]
        way = f"through {name(parent)}" if source == parent else f"to {name(parent)} and from {name(source)}"
        others.append(f"{regions[region]} {way}")
    return ", ".join([head, *others])
