"""The physical bound against cuts and a network unrolled over time, both by brute force."""

from __future__ import annotations

import itertools
import math
from collections import deque

import pytest
from depth import num_examples
from hulk_placement.collective.bound import Bound
from hulk_placement.collective.network import Network
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import network, networks, profile


@pytest.mark.parametrize(
    ("name", "num_bytes", "expected"), [("A", 1 << 18, 0.1412), ("B", 1 << 18, 0.1105), ("B", 1 << 24, 0.5541)]
)
def test_known_profiles(name: str, num_bytes: int, expected: float) -> None:
    assert Bound(profile(name)).seconds(num_bytes) == pytest.approx(expected, abs=1e-4)


@settings(max_examples=num_examples(60), deadline=None)
@given(networks(most=5), st.sampled_from([1e3, 1e6, 1e8]))
def test_at_least_latency_cuts_and_nodes(net: Network, num_bytes: float) -> None:
    bound = Bound(net)
    quick_s = bound.seconds(num_bytes) * (1 + 1e-9)
    assert quick_s >= longest_shortest_path_s(net)
    assert quick_s >= num_bytes / tightest_cut(net)
    assert quick_s >= bound.nodes_seconds(num_bytes)


def test_where_time_is_up_what_was_looked_at_is_a_bound() -> None:
    net, num_bytes = profile("B"), 1 << 24
    whole = Bound(net)
    asked = iter([True, False])
    found = [Bound(net).seconds(num_bytes, go_on) for go_on in (lambda: False, lambda: next(asked))]
    assert whole.nodes_seconds(num_bytes) == found[0] <= found[1] <= whole.seconds(num_bytes)


def longest_shortest_path_s(net: Network) -> float:
    """By trying every path."""
    regions = range(len(net.regions))
    return max(
        min(
            sum(net.latency_s[a][b] for a, b in itertools.pairwise((s, *middle, t)))
            for count in range(len(regions) - 1)
            for middle in itertools.permutations([r for r in regions if r not in (s, t)], count)
        )
        for s, t in itertools.permutations(regions, 2)
    )


def tightest_cut(net: Network) -> float:
    """Bytes/s over the tightest of all cuts; an uplink may be cut in place of the links behind it."""
    regions = range(len(net.regions))
    cuts = []
    for size in range(1, len(regions)):
        for inside in itertools.combinations(regions, size):
            outside = [r for r in regions if r not in inside]
            for chosen in itertools.product((False, True), repeat=len(regions)):
                capped = {r for r in regions if chosen[r]}
                cut = sum(net.egress[r] for r in inside if r in capped) + sum(
                    net.ingress[r] for r in outside if r in capped
                )
                cuts.append(cut + sum(net.rate[a][b] for a in inside for b in outside if not {a, b} & capped))
    return min(cuts)


small = st.integers(1, 3)


@settings(max_examples=num_examples(40), deadline=None)
@given(st.data())
def test_quickest_flow_is_the_least_cut_over_time(data: st.DataObject) -> None:
    """At the next whole second the unrolled network carries the bytes, at the one before it does not."""
    num = data.draw(st.integers(2, 4))
    rate = [[float(data.draw(st.integers(int((b - a) % num == 1), 3))) for b in range(num)] for a in range(num)]
    latency_s = [[float(data.draw(small)) for _ in range(num)] for _ in range(num)]
    uplinks = [data.draw(st.sampled_from([math.inf, 2.0])) for _ in range(num)]
    net = network(rate, latency_s, uplinks=uplinks)
    num_bytes = data.draw(st.integers(1, 20))
    bound_s = Bound(net).seconds(num_bytes)
    pairs = list(itertools.permutations(range(num), 2))
    enough = [carried(net, s, t, math.ceil(bound_s - 1e-9)) >= num_bytes for s, t in pairs]
    assert all(enough)
    before = math.ceil(bound_s - 1e-9) - 1
    assert not all(carried(net, s, t, before) >= num_bytes for s, t in pairs)


def carried(net: Network, source: int, target: int, end: int) -> int:
    """Most bytes that get from source to target in `end` whole seconds: a greatest flow in the network over time.

    A byte that begins on a link in one second begins to arrive, and may go on, a latency later; it is whole a second
    after that.
    """
    if end < 1:
        return 0
    capacity: dict[tuple[object, object], float] = {}
    regions = range(len(net.regions))
    for now in range(end):
        for a in regions:
            capacity[("at", a, now), ("at", a, now + 1)] = math.inf
            capacity[("at", a, now), ("out", a, now)] = net.egress[a]
            capacity[("in", a, now), ("at", a, now)] = net.ingress[a]
            for b in regions:
                there = now + int(net.latency_s[a][b]) if net.rate[a][b] else end
                if there < end:
                    capacity[("out", a, now), ("in", b, there)] = net.rate[a][b]
    return greatest_flow(capacity, ("at", source, 0), ("at", target, end))


def greatest_flow(capacity: dict[tuple[object, object], float], source: object, target: object) -> int:
    """Edmonds and Karp, on whole numbers."""
    left = dict(capacity)
    after: dict[object, set[object]] = {}
    for a, b in capacity:
        left.setdefault((b, a), 0)
        after.setdefault(a, set()).add(b)
        after.setdefault(b, set()).add(a)
    total = 0.0
    while True:
        before: dict[object, object] = {source: source}
        queue = deque([source])
        while queue and target not in before:
            here = queue.popleft()
            for there in after.get(here, ()):
                if there not in before and left[here, there] > 0:
                    before[there] = here
                    queue.append(there)
        if target not in before:
            return int(total)
        path = [target]
        while path[-1] != source:
            path.append(before[path[-1]])
        steps = list(itertools.pairwise(path[::-1]))
        width = min(left[step] for step in steps)
        for a, b in steps:
            left[a, b] -= width
            left[b, a] += width
        total += width
