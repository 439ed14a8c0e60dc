"""The all-reduce between regions, as a training program uses it.

    collective = Collective.connect(rank, addresses, plan, secret, scope="team/demo/1")
    work = collective.all_reduce(gradients_N)      # in place, while the next gradients are computed
    work.wait()

Needs neither Kubernetes nor torch.distributed: ranks, their addresses, a plan and a secret that all of them know.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import socket
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import torch

from hulk_runtime.collective.connections.channel import Channel, PeerGoneError
from hulk_runtime.collective.connections.pacing import pace_channels, path_bytes
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.drift.agreement import Drift, LinkRates, Turn
from hulk_runtime.collective.drift.link_estimates import slots
from hulk_runtime.collective.forks import in_child
from hulk_runtime.collective.loop.engine import Engine
from hulk_runtime.collective.loop.operations import Order
from hulk_runtime.collective.planned.roles import Role, pace_shares, partners, require_parts, roles
from hulk_runtime.collective.reduction.compression import Codec
from hulk_runtime.collective.reduction.handle import Both, Report, Work
from hulk_runtime.collective.reduction.hop_encoding import Feedback, Hops, codec
from hulk_runtime.collective.reduction.region_backend import Inside
from hulk_runtime.collective.reduction.region_reduction import Region
from hulk_runtime.collective.reduction.vector import Values
from hulk_runtime.collective.wire.failure import Failure
from hulk_runtime.collective.wire.handshake import Identity
from hulk_runtime.collective.wire.membership import Membership
from hulk_runtime.collective.wire.records import Plain, Sealed
from hulk_runtime.collective.wire.rendezvous import Address, Listener, Rendezvous, listen
from hulk_runtime.errors import PeerLostError
from hulk_runtime.plan.flows import CollectivePlan, Pair, SizeClass

if TYPE_CHECKING:
    from typing_extensions import Self

ABOUT = 0.9
"""All-reduces of that share of the largest one's bytes count as large as it: the last bucket has a little more."""
MOST_STREAMS = 256
"""The handshake numbers them in a byte."""
OPENED = 0.5
"""A connection that warming has not opened so far loses packets on the way."""
MAX_LINKS = 256
"""So many links are told of: all of 16 regions."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a rank talks to its peers.

    `bound_s`: a peer that dies, stalls or sends garbage is found within it. `pace`: the share of a link's rate that is
    used. `num_streams`: TCP connections to each peer in another region, as many on all ranks; `max_streams` to one
    where packets are lost on the way, as warming shows. In a pause, up to `hold_s`, each connection to another region
    keeps its congestion window by a few tiny packets; after a longer one TCP starts slowly. With `drift` the ranks
    measure the links and follow what they carry.
    """

    bound_s: float = 10.0
    connect_s: float = 300.0
    pace: float = 0.97
    num_streams: int = 1
    max_streams: int = 1
    hold_s: float = 600.0
    drift: bool = True

    def __post_init__(self) -> None:
        if not (self.bound_s > 0 and self.connect_s > 0 and self.pace > 0 and self.num_streams >= 1):
            raise ValueError(
                f"settings: bound {self.bound_s} s, connect {self.connect_s} s, pace {self.pace} and "
                f"{self.num_streams} streams must be > 0"
            )
        if max(self.num_streams, self.max_streams) > MOST_STREAMS:
            raise ValueError(f"settings: {self.num_streams} and {self.max_streams} streams: at most {MOST_STREAMS}")

    def digest(self, plan: CollectivePlan) -> bytes:
        """32 bytes that are the same for the same plan and settings: what ranks must share to come together."""
        shared = (self.bound_s, self.pace, self.num_streams, self.max_streams, self.drift)
        return hashlib.sha256(plan.digest() + repr(shared).encode()).digest()


class Collective:
    """One rank's side of the group."""

    def __init__(
        self,
        rank: int,
        plan: CollectivePlan,
        peers: dict[int, Peer],
        peer_listener: Listener,
        settings: Settings,
        inside: Inside | None,
        spare: Mapping[int, Sequence[Channel[Peer]]],
    ) -> None:
        self.rank, self.plan = rank, plan
        self._spare = dict(spare)
        self._inside = inside
        self._plan_now = plan
        self._peer_listener, self._settings = peer_listener, settings
        self._members = Membership(0, frozenset(range(plan.num_ranks)))
        regions = tuple(map(frozenset, plan.regions)) if plan.on_region_loss == "continue" else ()
        self._engine = Engine(
            rank, peers, settings.bound_s, settings.hold_s, settings.connect_s, self._members, regions
        )
        self._far = frozenset(peer.rank for peer in peers.values() if peer.is_far)
        self._codec = codec(plan.compression)
        self._feedback = Feedback()
        self._roles = lru_cache(maxsize=64)(self._find_roles)
        self._peers = peers
        self._order = threading.Lock()
        self._region = self._open_region()
        self._drift = self._begin_drift()
        self._looked: Report | None = None
        in_child(self, Collective.forsake)

    @classmethod
    def connect(
        cls,
        rank: int,
        addresses: Sequence[Address],
        plan: CollectivePlan,
        secret: bytes,
        scope: str,
        settings: Settings | None = None,
        listener: socket.socket | None = None,
        *,
        inside: Inside | None = None,
        listen_everywhere: bool = False,
        all_listen: bool = False,
    ) -> Self:
        """Connect to every partner. Raises PeerLostError that names who is missing, ValueError for a bad plan.

        `scope` names job and attempt: only ranks of the same scope, secret, plan and settings (but for `connect_s` and
        `hold_s`) come together. A rank listens at its own address, or at all of its machine's where others know it by a
        name or address that is not its own. `all_listen`: every rank does already, and one that refuses has gone.
        `inside` leaves sums and results inside its region to torch, on all ranks of the region or on none.
        """
        settings = settings or Settings()
        if len(addresses) != plan.num_ranks:
            raise ValueError(f"{len(addresses)} addresses for a plan of {plan.num_ranks} ranks")
        require_parts(plan)
        shares = pace_shares(plan, rank)
        far = {partner: partner in shares for partner in partners(plan, rank)}
        most = max(settings.num_streams, settings.max_streams)
        wanted = {partner: most if is_far else 1 for partner, is_far in far.items()}
        identity = Identity(secret, scope, settings.digest(plan))
        rendezvous = Rendezvous(rank, addresses, wanted, identity, all_listen=all_listen)
        host = "" if listen_everywhere else addresses[rank].host
        peer_listener = Listener(listener or listen(host, addresses[rank].port), rank, identity, rendezvous.admit)
        peer_listener.open()
        try:
            found = rendezvous.gather(settings.connect_s, peer_listener.refused)
        except BaseException:
            peer_listener.close()
            raise
        peers, spare = {partner: Peer(partner, far[partner]) for partner in found}, {}
        for partner, connections in found.items():
            is_sealed = plan.is_encrypted(rank, partner)
            channels = [
                Channel(each.socket, peers[partner], Sealed(each.keys) if is_sealed else Plain())
                for each in connections
            ]
            peers[partner].channels = channels[: settings.num_streams]
            if rest := channels[settings.num_streams :]:
                spare[partner] = rest
        group = cls(rank, plan, peers, peer_listener, settings, inside, spare)
        pace_channels(plan, rank, peers, settings.pace)
        rendezvous.twice = group._twice
        group._engine.start()
        return group

    def all_reduce(
        self, tensor: torch.Tensor, num_exact: int = 0, source: torch.Tensor | None = None, name: Hashable = None
    ) -> Work | Both:
        """Begin to sum a vector over all ranks, in place; the same vectors in the same order on every rank.

        `tensor`: contiguous, one dimension, on the CPU, float32, bfloat16 or float16 (ValueError for others). Values of
        16 bits are added in float32 and rounded to 16 bits on each hop. Every rank gets the same bits. The last
        `num_exact` values are compressed nowhere. This rank's values are in `source` where that is given, on a device,
        as far as its current stream has come. What compression took from a vector of some `name` is added to the next
        one of that name; without one it is forgotten.
        """
        num_rounded = tensor.numel() - num_exact
        if not 0 <= num_exact <= tensor.numel():
            raise ValueError(f"all-reduce: {num_exact} exact values of {tensor.numel()}: must be from 0 to all of them")
        if self._codec is None or num_rounded <= 0:
            return self._sum(tensor, source, None, name)
        if not num_exact:
            return self._sum(tensor, source, self._codec, name)
        first, second = (None, None) if source is None else (source[:num_rounded], source[num_rounded:])
        rounded = self._sum(tensor[:num_rounded], first, self._codec, name)
        return Both(rounded, self._sum(tensor[num_rounded:], second, None, name))

    def broadcast(self, values_N: torch.Tensor) -> Work:
        """Begin to overwrite float32 values of every rank with rank 0's, to the bit: the others add -0.0."""
        if self.rank:
            values_N.fill_(-0.0)
        values = Values(values_N)
        with self._order:
            return self._unreported(values, self._plan_now.size_class(values.num_bytes), lambda: None)

    def _sum(self, tensor: torch.Tensor, source: torch.Tensor | None, codec: Codec | None, name: Hashable) -> Work:
        values = Values(tensor)
        with self._order:
            turn = self._drift.turn(values.num_bytes) if self._drift is not None else Turn()
            if turn.asks:
                self._ask()
            after = [turn.after] if turn.after is not None else []
            region = self._region if self._region is not None and self._region.serves(values.num_bytes) else None
            begin = partial(self._begin, turn, values, name, codec, region is not None)
            if region is None:
                if source is not None:
                    tensor.copy_(source)
                return self._engine.all_reduce(Order(values, begin, self._members.epoch, after))
            after.append(region.reduce(values, tensor if source is None else source))
            return self._engine.all_reduce(Order(values, begin, self._members.epoch, after, region.share(values)))

    def _begin(
        self, turn: Turn, values: Values, name: Hashable, codec: Codec | None, for_region: bool
    ) -> tuple[tuple[Role, ...], Hops]:
        """Called by the engine: shares are those of the moment when an operation begins."""
        if turn.begins and self._drift is not None and self._drift.begin():
            self._feedback.clear()
        of = self._plan_now if self._drift is None else self._drift
        size = of.size_class(values.num_bytes)
        found = self._roles(size, len(values), values.bytes_per_value, for_region)
        return found, Hops(values, self._far, codec, self._feedback.of(name, len(values)) if codec else {})

    def _open_region(self) -> Region | None:
        if self._inside is None:
            return None
        return Region(self._inside, self._members.epoch, self._settings.bound_s, self._ends_group())

    def _ends_group(self) -> Callable[[str], None]:
        """Ends this epoch's group because of something that broke here."""
        epoch = self._members.epoch
        return lambda reason: self._engine.fail(Failure(self.rank, reason), epoch)

    def _ask(self) -> None:
        """Begin the all-reduce of what all ranks have measured, by the plan's own flows."""
        drift, size = self._drift, self._plan_now.classes[0]
        assert drift is not None
        figures_N = torch.zeros(drift.num_figures, dtype=torch.float32, device="cpu")
        drift.asked(self._unreported(Values(figures_N), size, lambda: drift.fill(figures_N)), figures_N)

    def _unreported(self, values: Values, size: SizeClass, fill: Callable[[], None]) -> Work:
        """One of the group's own, never rounded, by the flows of a class; `fill` is called when it begins."""

        def begin() -> tuple[tuple[Role, ...], Hops]:
            fill()
            return self._roles(size, len(values), values.bytes_per_value, False), Hops(values, self._far, None, {})

        return self._engine.all_reduce(Order(values, begin, self._members.epoch, reported=False))

    def _begin_drift(self) -> Drift | None:
        """Only where the plan uses links, and knows all of them."""
        plan = self._plan_now
        if not self._settings.drift or plan.fixed_shares or not Drift.serves(plan):
            return None
        return Drift(plan, self.rank, self._peers, self._settings.pace, self._ends_group())

    @property
    def is_split(self) -> bool:
        """Whether torch sums inside the region: this rank then takes vectors from a device itself (`source`)."""
        return self._region is not None

    @property
    def engine(self) -> threading.Thread:
        """The thread that moves chunks."""
        return self._engine

    def loss(self) -> PeerLostError | None:
        """What ended the group; None while it lasts."""
        return None if self._engine.is_alive() else self._engine.error()

    @property
    def members(self) -> Membership:
        """Who takes part in what this rank begins."""
        return self._members

    def adopt(self) -> Membership:
        """Go on with the ranks that are left, after MembershipChangedError."""
        self._members = self._engine.membership
        self.largest()  # what was before counts no more
        self._plan_now = self.plan.among(self._members.members)
        self._feedback.clear()
        self._roles.cache_clear()
        if self._region is not None:
            self._region.close()
            self._region = self._open_region()
        self._drift = self._begin_drift()
        self._pace()  # other flows: an uplink is shared anew
        return self._members

    def reports(self) -> list[Report]:
        """What the last all-reduces took, newest last."""
        return list(self._engine.reports)

    def beliefs(self) -> dict[Pair, LinkRates]:
        """The rate of every link of the plan, by regions' numbers, as planned and as it is believed now."""
        return {} if self._drift is None else self._drift.beliefs()

    def largest(self) -> Report | None:
        """The largest all-reduce since the last call; the same one on every rank.

        Of several about as large the first begun: links serve it before the others, so it went as if alone.
        """
        new = list(itertools.takewhile(lambda report: report is not self._looked, reversed(self.reports())))
        self._looked = new[0] if new else self._looked
        most = max((report.num_bytes for report in new), default=0)
        large = (report for report in new if report.num_bytes >= ABOUT * most)
        return min(large, key=lambda report: report.number, default=None)

    @property
    def classes(self) -> tuple[SizeClass, ...]:
        """The size classes of the plan for those who take part."""
        return self._plan_now.classes

    def links(self) -> dict[Pair, LinkRates]:
        """Of `beliefs` those that flows of the plan use, the first `MAX_LINKS`; as planned where none is held."""
        beliefs, plan = self.beliefs(), self._plan_now
        used = {link for size in plan.classes for flow in size.every_flow for link in flow.links} & plan.links.keys()
        rates = {link: plan.links[link].bytes_per_s for link in sorted(used)[:MAX_LINKS]}
        return {link: beliefs.get(link, LinkRates(rate, rate)) for link, rate in rates.items()}

    def warm(self) -> None:
        """Open the congestion windows towards other regions, and return when that has happened on every rank.

        Slow start fills a path after about twice the bytes that it holds. Where it did not, more connections are used.
        Raises PeerLostError: a rank may come here later than others by as much as it may connect later.
        """
        patience_s = self._settings.connect_s
        self._open(patience_s)
        unopened = self._unopened(patience_s)
        for partner, spare in self._take_spare().items():
            if frozenset((self.rank, partner)) in unopened:
                self._engine.add(spare)
            else:
                _close(spare)
        if unopened and self._settings.max_streams > self._settings.num_streams:
            self._pace()
            self._open(patience_s)

    def _open(self, patience_s: float) -> None:
        """Send each path twice what it holds; the sum comes behind the last of that, so windows are what they are."""
        num_bytes = {rank: 2 * count for rank, count in path_bytes(self.plan, self.rank).items()}
        self._engine.warm(num_bytes).wait(patience_s)
        self.all_reduce(torch.zeros(1, dtype=torch.float32, device="cpu")).wait(patience_s)

    def _pace(self) -> None:
        """Have the connections there are keep to the plan for those who take part."""
        now, pace = self._plan_now, self._settings.pace
        self._engine.do(lambda: pace_channels(now, self.rank, self._peers, pace))

    def _unopened(self, patience_s: float) -> frozenset[frozenset[int]]:
        """The pairs of ranks whose window is far from open, in either direction; the same on every rank."""
        ways = slots(self._plan_now)
        closed_N = torch.zeros(max(1, len(ways)), dtype=torch.float32, device="cpu")
        for number, way in enumerate(ways):
            if way.sender == self.rank:
                with contextlib.suppress(PeerGoneError):  # the engine tells of it
                    closed_N[number] = any(
                        way_out.closed_bytes(OPENED) for way_out in self._peers[way.receiver].channels
                    )
        self.all_reduce(closed_N, num_exact=len(closed_N)).wait(patience_s)
        found = zip(ways, closed_N.tolist(), strict=False)
        return frozenset(frozenset((way.sender, way.receiver)) for way, is_closed in found if is_closed)

    def _take_spare(self) -> dict[int, Sequence[Channel[Peer]]]:
        spare, self._spare = self._spare, {}
        return spare

    def close(self) -> None:
        """Leave; what is not awaited is lost."""
        if self._drift is not None:
            self._drift.settle(self._settings.bound_s / 2)
        for spare in self._take_spare().values():
            _close(spare)
        self._peer_listener.close()
        self._engine.close()
        if self._region is not None:
            self._region.close()

    def forsake(self) -> None:
        """In a forked child: the group is the parent's, whose end its peers hear of at once only without copies."""
        for spare in self._take_spare().values():
            _close(spare)
        self._drift = self._region = None
        self._peer_listener.forsake()
        self._engine.forsake()

    def _find_roles(self, size: SizeClass, num_values: int, bytes_per_value: int, for_region: bool) -> tuple[Role, ...]:
        return roles(self.plan, size, self.rank, num_values, bytes_per_value, for_region=for_region)

    def _twice(self, rank: int) -> None:
        self._engine.fail(Failure(rank, "it connected twice"))


def _close(channels: Sequence[Channel[Peer]]) -> None:
    for channel in channels:
        channel.socket.close()
