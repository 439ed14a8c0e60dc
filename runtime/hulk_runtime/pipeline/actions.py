"""A schedule -> what each device does, one after the other: post receives, run blocks, send, sum gradients.

Receives are posted some blocks before they are needed: a sender waits until it has heard of it. What answers a message
of one's own, as gradients answer activations, is not posted before that message: said earlier, it would leave before
it, and a silent connection lets ten packets out before it waits for a round trip.

Between two devices receives are posted in the order in which the other one sends, also where a later one is needed
first: backends that know no tags then match them all the same.

Sums of gradients begin when their last gradient is there, in one order on all devices: that of when the last device
has its own. Whoever is ready earlier waits with its begin, so that no two sums can wait for each other.

With 2 stages and 1 micro-batch, device 0: run F0, send to 1, receive from 1, run B0.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from hulk_runtime.pipeline import deadlock_check
from hulk_runtime.pipeline.dataflow import Flows, Way
from hulk_runtime.plan.pipeline_schedule import Turn

LEAST_AHEAD: Final = 2
"""Blocks by which a receive is posted at least before the block that needs it: one buffer more for each in memory."""


@dataclass(frozen=True, slots=True)
class Receive:
    """Begin to receive what goes on a way for a micro-batch, from a device."""

    way: Way
    micro_batch: int
    source: int


@dataclass(frozen=True, slots=True)
class Send:
    """Begin to send what goes on a way for a micro-batch, to a device."""

    way: Way
    micro_batch: int
    target: int


@dataclass(frozen=True, slots=True)
class Run:
    """Compute a block of a micro-batch, as soon as what it needs is there."""

    block: int
    micro_batch: int


@dataclass(frozen=True, slots=True)
class Sum:
    """Begin to sum gradients over all that share the parameters: a number in the list of what is shared."""

    shared: int


Action = Receive | Send | Run | Sum


@dataclass(frozen=True, slots=True)
class Shared:
    """Parameters that several devices have: those of one stage (and shard), or some of several stages that are tied.

    `stages` by device: whose last gradients have to be there. `of_two`: the two devices of each replica sum what they
    have, after each has the sum over all replicas.
    """

    name: str
    stages: dict[int, frozenset[str]]
    of_two: bool = False


def actions(
    flows: Flows, shared: Sequence[Shared] = (), num_ahead: int = LEAST_AHEAD
) -> tuple[tuple[Action, ...], ...]:
    """Of each device. Raises PlanError where the schedule would never end.

    `num_ahead`: by how many blocks receives are posted before what needs them.
    """
    ends = deadlock_check.ends(flows)
    devices = range(flows.schedule.num_devices)
    sent = [list(_sends(flows, device)) for device in devices]
    last = [{device: _last_gradient(flows, device, one.stages[device]) for device in one.stages} for one in shared]
    turns_of_sums = sorted(range(len(shared)), key=lambda n: (max(ends[turn] for turn in last[n].values()), n))
    return tuple(
        tuple(
            _of_device(
                flows, device, sent, num_ahead, [(n, last[n][device]) for n in turns_of_sums if device in last[n]]
            )
        )
        for device in devices
    )


def _of_device(
    flows: Flows,
    device: int,
    sent: Sequence[Sequence[tuple[Turn, Send]]],
    num_ahead: int,
    sums: Sequence[tuple[int, Turn]],
) -> Iterable[Action]:
    turns = flows.schedule.orders[device].turns
    posts = _posts(flows, device, sent, num_ahead)
    sends: dict[Turn, list[Send]] = {}
    for turn, send in sent[device]:
        sends.setdefault(turn, []).append(send)
    done: set[Turn] = set()
    begun = 0
    for place, turn in enumerate(turns):
        yield from posts[place]
        yield Run(*turn)
        yield from sends.get(turn, ())
        done.add(turn)
        while begun < len(sums) and sums[begun][1] in done:
            yield Sum(sums[begun][0])
            begun += 1


def _sends(flows: Flows, device: int) -> Iterable[tuple[Turn, Send]]:
    """What a device sends, with the turn behind which it does."""
    for block, m in flows.schedule.orders[device].turns:
        for way in flows.ways_out_of[block]:
            for target in flows.takers(way, device):
                yield (block, m), Send(way, m, target)


def _posts(
    flows: Flows, device: int, sent: Sequence[Sequence[tuple[Turn, Send]]], num_ahead: int
) -> list[list[Receive]]:
    """Of each place in a device's order, what is posted before it."""
    turns = flows.schedule.orders[device].turns
    coming = [
        iter([Receive(send.way, send.micro_batch, source) for _, send in sends if send.target == device])
        for source, sends in enumerate(sent)
    ]
    places = {turn: place for place, turn in enumerate(turns)}
    asking = cache(partial(_asking, flows, device))
    posts: list[list[Receive]] = [[] for _ in turns]
    earliest: dict[int, int] = {}  # of each source: where its last one was posted
    posted: set[Receive] = set()
    for place, (block, m) in enumerate(turns):
        for way in flows.ways_into[block]:
            needed = Receive(way, m, flows.giver(way, device))
            while needed.source != device and needed not in posted:
                first = next(coming[needed.source])
                posted.add(first)
                asked = [1 + places[one, first.micro_batch] for one in asking(first.way.source, first.source)]
                at = max([place - num_ahead, earliest.get(first.source, 0), *asked])
                earliest[first.source] = at
                posts[at].append(first)
    return posts


def _asking(flows: Flows, device: int, answering: int, source: int) -> list[int]:
    """The blocks of a device that send another one what it needs for a block there, at once or in the end."""
    needed = flows.up_to[answering]
    return [way.source for way in flows.ways if way.target in needed and source in flows.takers(way, device)]


def _last_gradient(flows: Flows, device: int, stages: frozenset[str]) -> Turn:
    """The turn of a device after which it adds no more to the gradients of these stages."""
    blocks = flows.schedule.blocks
    found: list[Turn] = [
        turn
        for turn in flows.schedule.orders[device].turns
        if blocks[turn[0]].stage in stages and blocks[turn[0]].kind != "forward"
    ]
    return found[-1]
