"""How a group stands: who takes part, who was lost, and what follows from that.

Whoever is lost is told to all others. Then the group ends, with one verdict for all, or those who are left agree to go
on in a new epoch, where their plan allows it.
"""

from collections.abc import Sequence

from hulk_runtime.collective.connections.connection_set import ConnectionSet
from hulk_runtime.collective.connections.early_chunks import SendWindow
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.loss_timeouts import LossTimeouts
from hulk_runtime.collective.wire.failure import Failure, Verdict
from hulk_runtime.collective.wire.frames import GarbageError, Header, Kind
from hulk_runtime.collective.wire.membership import Membership, Regroup, pack, parse, require_others
from hulk_runtime.errors import MembershipChangedError, PeerLostError, RankLostError


class GroupState:
    """One rank's view. `regions` are the ranks of each region where the others may go on without one; else empty."""

    def __init__(
        self,
        rank: int,
        connections: ConnectionSet,
        bounds: LossTimeouts,
        membership: Membership,
        regions: Sequence[frozenset[int]],
    ) -> None:
        self._rank, self._connections, self._bounds, self._regions = rank, connections, bounds, regions
        self._everybody = membership.members
        self._regroup: Regroup | None = None
        self._early: dict[Peer, dict[int, Failure]] = {}
        self.membership = membership
        self.verdict: Verdict | None = None
        self.is_closing = False

    @property
    def is_whole(self) -> bool:
        """Whether nobody was lost that the group has not got over."""
        return self.verdict is None and self._regroup is None

    @property
    def members(self) -> list[Peer]:
        """The other ranks of this epoch."""
        return [peer for rank, peer in self._connections.peers.items() if rank in self.membership.members]

    def wants(self, header: Header) -> bool:
        """Whether it is a chunk that still means something: of this epoch, or already of the next one.

        Raises GarbageError for an epoch that cannot have begun.
        """
        newest = self.membership.epoch + (self._regroup is not None)
        if header.epoch > newest:
            raise GarbageError(f"a frame of epoch {header.epoch} in epoch {self.membership.epoch}")
        return header.kind is Kind.CHUNK and header.epoch == newest and self.verdict is None

    def beat(self, num_entered: int, num_begun: int) -> bytes:
        """The frame that says that this rank lives, and how far it is."""
        return Header(Kind.BEAT, epoch=self.membership.epoch, operation=num_entered, chunk=num_begun).pack()

    def leave(self) -> None:
        """Say goodbye."""
        self.is_closing = True
        for peer in self._connections.peers.values():
            self._connections.push_first(peer, Header(Kind.LEAVE).pack())

    def fail(self, failure: Failure, told_by: int | None = None) -> None:
        """Tell every peer, and collect what they say; the group ends when all have said something.

        A smaller failure is told again: not every peer may have a connection to whoever saw it.
        """
        teller = self._rank if told_by is None else told_by
        if self.verdict is None:
            self.break_down(failure, teller)
            self._connections.forget_chunks()
        elif not self.verdict.add(failure, teller):
            return
        payload = memoryview(failure.pack())
        for peer in self._connections.peers.values():
            self._connections.push_first(peer, Header(Kind.ABORT, len(payload)).pack(), payload)

    def break_down(self, failure: Failure, told_by: int) -> None:
        """End without telling anybody."""
        hears_all = len(self._connections.peers) == len(self._everybody) - 1
        self.verdict = Verdict(failure, told_by, self._connections.now_s, self._bounds.settle_s, hears_all)

    def has_word_of(self, rank: int) -> bool:
        """Whether the group ends and knows of this rank what it needs: its word, or that it is lost."""
        return self.verdict is not None and self.verdict.knows(rank)

    def told(self, peer: Peer, payload: memoryview) -> None:
        """A peer ended the group. Raises GarbageError."""
        failure = Failure.parse(payload)
        self._require_ranks([failure])
        self.fail(failure, told_by=peer.rank)

    def lose(self, loss: Failure) -> None:
        """A member was lost: the group ends, or those who are left find out whether they may go on."""
        if self._regions and self.verdict is None:
            regroup = self._suspend()
            self._say(regroup, regroup.lose([loss]))
        else:
            self.fail(loss)

    def hear(self, peer: Peer, epoch: int, payload: memoryview) -> None:
        """A member says whom it has lost. Raises GarbageError."""
        losses = parse(payload)
        self._require_ranks(losses)
        if self.verdict is not None:
            return
        if epoch < self.membership.epoch and not {loss.rank for loss in losses} & self.membership.members:
            return  # those who are left have agreed on them already
        if self._regroup is not None and epoch == self.membership.epoch + 1:
            self._early.setdefault(peer, {}).update({loss.rank: loss for loss in losses})
        elif not self._regions or epoch != self.membership.epoch:
            self.fail(min(losses))
        else:
            self._take(peer, losses)

    def hear_early(self) -> None:
        """What members said of this epoch before it began here: they had heard the others' last words sooner."""
        early, self._early = self._early, {}
        for peer, losses in early.items():
            if peer.rank in self.membership.members:
                try:
                    self._take(peer, list(losses.values()))
                except GarbageError as error:
                    self.fail(Failure(peer.rank, f"it sent garbage: {error}"))

    def _take(self, peer: Peer, losses: Sequence[Failure]) -> None:
        require_others(losses, self.membership, peer.rank, self._rank)
        regroup = self._suspend()
        self._say(regroup, regroup.hear(peer.rank, losses))

    def agreed(self) -> Membership | None:
        """The next epoch's members when the ranks have agreed on them. Fails when they never will."""
        if self._regroup is None or self.verdict is not None:
            return None
        outcome = self._regroup.outcome(self._connections.now_s)
        if isinstance(outcome, Failure):
            self.fail(outcome)
            return None
        return outcome

    def adopt(self, membership: Membership) -> None:
        """The next epoch begins."""
        self.membership, self._regroup = membership, None
        for peer in self._connections.peers.values():
            peer.num_begun, peer.ahead = 0, SendWindow()

    def error(self) -> PeerLostError:
        """Why an all-reduce does not end."""
        if self.verdict is not None:
            return RankLostError(self.verdict.failure.rank, self.verdict.failure.reason)
        if self.membership.epoch and not self.is_closing:
            num_members = len(self.membership.members)
            return MembershipChangedError(f"{num_members} ranks go on in epoch {self.membership.epoch}")
        return PeerLostError("the group was closed")

    def _require_ranks(self, failures: Sequence[Failure]) -> None:
        unknown = [failure.rank for failure in failures if failure.rank not in self._everybody]
        if unknown:
            raise GarbageError(f"a loss of ranks {unknown}, which do not exist")

    def _suspend(self) -> Regroup:
        """Operations stop where they are; what arrives of them is not wanted any more."""
        if self._regroup is None:
            deadline_s = self._connections.now_s + self._bounds.regroup_s
            self._regroup = Regroup(self._rank, self.membership, self._regions, deadline_s)
            self._connections.forget_chunks()
        return self._regroup

    def _say(self, regroup: Regroup, new: frozenset[int]) -> None:
        """Tell those who are left whom they have lost, and talk to lost ones no more."""
        for rank in new & self._connections.peers.keys():
            for channel in list(self._connections.peers[rank].channels):
                self._connections.drop(channel)
        if new:
            payload = memoryview(pack(regroup.losses.values()))
            for peer in self.members:
                self._connections.push_first(
                    peer, Header(Kind.VIEW, len(payload), self.membership.epoch).pack(), payload
                )
