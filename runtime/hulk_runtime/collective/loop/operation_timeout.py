"""Those who waited for an all-reduce for too long, and whom the group loses for that.

A peer says how far it is by its chunks and its beats. A beat that is under way says less than is true by now, so nobody
is lost before a beat has come that left after the wait had ended, one beat being time enough for the way. When every
peer has begun the all-reduce, it has as long again as the group's bound; then whoever waits gives up, and all ranks are
told which one that was.
"""

from dataclasses import dataclass

from hulk_runtime.collective.connections.connection_set import ConnectionSet
from hulk_runtime.collective.loop.group_state import GroupState
from hulk_runtime.collective.loop.operations import Operations
from hulk_runtime.collective.loss_timeouts import LossTimeouts
from hulk_runtime.collective.reduction.handle import Work
from hulk_runtime.collective.wire.failure import Failure


@dataclass(frozen=True, slots=True)
class _Overdue:
    number: int
    work: Work
    waited_s: float
    since_s: float


class OperationTimeout:
    """One rank's waits that have been too long."""

    def __init__(
        self,
        rank: int,
        connections: ConnectionSet,
        group_state: GroupState,
        operations: Operations,
        bounds: LossTimeouts,
    ) -> None:
        self._rank, self._connections, self._group_state, self._operations = rank, connections, group_state, operations
        self._bounds = bounds
        self._overdue: list[_Overdue] = []

    def end(self, number: int, work: Work, waited_s: float) -> None:
        """Somebody waited for this operation as long as it wanted to."""
        self._overdue.append(_Overdue(number, work, waited_s, self._connections.now_s))

    def look(self) -> None:
        """Lose whoever has not begun what somebody waits for."""
        self._overdue = [overdue for overdue in self._overdue if not overdue.work.is_done]
        for overdue in self._overdue:
            if self._group_state.is_whole and not self._group_state.is_closing:
                self._judge(overdue)

    def _judge(self, overdue: _Overdue) -> None:
        number, waited_s, bound_s = overdue.number, overdue.waited_s, self._bounds.bound_s
        late = self._operations.late_for(number)
        is_known = all(peer.told_s > overdue.since_s + self._bounds.beat_s for peer in late)
        is_up = self._connections.now_s > overdue.since_s + bound_s
        if late and (is_known or is_up):
            self._group_state.fail(Failure(late[0].rank, f"it did not begin all-reduce {number} within {waited_s:g} s"))
        elif is_up:
            gave_up = f"it gave up all-reduce {number} after {waited_s + bound_s:g} s"
            self._group_state.fail(Failure(self._rank, f"{gave_up}, though every rank had begun it"))
