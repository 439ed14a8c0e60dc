"""Ranks of a collective as threads of one process, on real sockets: what its tests share."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import permutations
from typing import TypeVar

import torch
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.wire.rendezvous import Address, listen
from hulk_runtime.plan.flows import CollectivePlan, Flow, LinkFigures, SizeClass
from hypothesis import strategies as st

T = TypeVar("T")
SECRET = bytes(range(32))
SCOPE = "team/demo/1"
PATIENCE_S = 60.0
ALLOWANCE_S = 1.0
"""On top of a stated bound: what a busy machine with two cores takes to run the threads of several ranks."""


RATE = 4e6


def star(root: int, share: float) -> Flow:
    spokes = tuple((region, root) for region in range(3) if region != root)
    return Flow(share, (root,), spokes, spokes)


STARS = tuple(star(root, 1 / 3) for root in range(3))
LINKS = {pair: LinkFigures(RATE, 0.002) for pair in permutations(range(3), 2)}
PLAN = CollectivePlan(((0,), (1,), (2,)), LINKS, (SizeClass(1 << 40, 1 << 15, STARS),))
"""Three regions of one rank, alike: every link has RATE, every region reduces a third."""


@dataclass
class Doors:
    """A listening socket and address for every rank."""

    listeners: list[socket.socket]
    addresses: list[Address] = field(init=False)

    def __post_init__(self) -> None:
        self.addresses = [Address(*listener.getsockname()[:2]) for listener in self.listeners]


def doors(num_ranks: int) -> Doors:
    """On loopback, any port."""
    return Doors([listen("127.0.0.1", 0) for _ in range(num_ranks)])


def connect(rank: int, at: Doors, plan: CollectivePlan, settings: Settings | None = None) -> Collective:
    """One rank."""
    chosen = settings or Settings(connect_s=PATIENCE_S)
    return Collective.connect(rank, at.addresses, plan, SECRET, SCOPE, chosen, at.listeners[rank])


@contextmanager
def group(plan: CollectivePlan, settings: Settings | None = None) -> Iterator[list[Collective]]:
    """All ranks of a plan, connected."""
    at = doors(plan.num_ranks)
    ranks = together([lambda rank=rank: connect(rank, at, plan, settings) for rank in range(plan.num_ranks)])  # type: ignore[misc]
    try:
        yield ranks
    finally:
        together([rank.close for rank in ranks])


def together(actions: Sequence[Callable[[], T]]) -> list[T]:
    """What the actions return, done at the same time."""
    with ThreadPoolExecutor(len(actions)) as pool:
        return [done.result(PATIENCE_S) for done in [pool.submit(action) for action in actions]]


@contextmanager
def within(bound_s: float) -> Iterator[None]:
    """What is done here takes no longer than is stated."""
    started = time.monotonic()
    yield
    took_s = time.monotonic() - started
    assert took_s < bound_s + ALLOWANCE_S, f"{took_s:.2f} s, the bound is {bound_s:g} s"


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when it holds."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {PATIENCE_S:g} s"
        time.sleep(0.005)


def all_reduce(ranks: Sequence[Collective], vectors: Sequence[torch.Tensor]) -> None:
    """One all-reduce of all ranks, awaited."""
    for work in [rank.all_reduce(vector) for rank, vector in zip(ranks, vectors, strict=True)]:
        work.wait(PATIENCE_S)


def break_off(rank: Collective) -> None:
    """All of a rank's connections at once, in its own loop, between two events."""

    def shut() -> None:
        for channel in rank._engine._connections.channels:
            with contextlib.suppress(OSError):
                channel.socket.shutdown(socket.SHUT_RDWR)

    rank._engine.do(shut)


def vectors(num_ranks: int, num_values: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[torch.Tensor]:
    """Different numbers on every rank."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(num_values, generator=generator).to(dtype) for _ in range(num_ranks)]


@st.composite
def plans(draw: st.DrawFn, max_regions: int = 4, max_ranks: int = 3) -> CollectivePlan:
    """Any flows over any regions."""
    counts = draw(st.lists(st.integers(1, max_ranks), min_size=1, max_size=max_regions))
    ranks = draw(st.permutations(range(sum(counts))))
    regions, first = [], 0
    for count in counts:
        regions.append(tuple(ranks[first : first + count]))
        first += count
    weights = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    flows = [draw(_flows(len(counts), weight / sum(weights))) for weight in weights]
    chunk_bytes = draw(st.integers(4, 4096))
    return CollectivePlan(tuple(regions), {}, (SizeClass(1 << 40, chunk_bytes, tuple(flows)),))


@st.composite
def _flows(draw: st.DrawFn, num_regions: int, share: float) -> Flow:
    order = draw(st.permutations(range(num_regions)))
    num_exchanging = draw(st.integers(1, num_regions))
    trees = []
    for _ in range(2):
        outside = draw(st.permutations(order[num_exchanging:]))
        joined = list(order[:num_exchanging])
        tree = []
        for child in outside:
            tree.append((child, draw(st.sampled_from(joined))))
            joined.append(child)
        trees.append(tuple(tree))
    return Flow(share, tuple(order[:num_exchanging]), *trees)
