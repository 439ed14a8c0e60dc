"""The end of a run: no rank leaves before all have come so far, and one that is done still helps those that are not."""

from types import SimpleNamespace

import pytest
from hulk_runtime.collective.wire.membership import Membership
from hulk_runtime.errors import MembershipChangedError, PeerLostError
from hulk_runtime.training import loop, region_loss

LAST = 3
LEFT = Membership(1, frozenset({0, 1}))


class Steps:
    """Every step ends, and one says that the ranks agreed to stop; `part` is the group's."""

    def __init__(self, stops_at: int = 0) -> None:
        self.stops_at, self.done, self.part = stops_at, [], None

    def together(self, step, *_):
        self.done.append(step)
        return None, SimpleNamespace(of_all=True, stop=step == self.stops_at)


class Ranks:
    """A group whose barrier at the end is broken by what is listed, and then ends."""

    rank = 1

    def __init__(self, *breaks: Exception) -> None:
        self.breaks, self.num_parted = list(breaks), 0

    def part(self) -> None:
        self.num_parted += 1
        if self.breaks:
            raise self.breaks.pop(0)


def train(group: Ranks, steps: Steps, resumed: int = 0) -> int:
    plan, steps.part = SimpleNamespace(training=SimpleNamespace(steps=LAST)), group.part
    run = loop.Run(plan, group, steps, SimpleNamespace(wanted=False), None, lambda: None)
    return run.train(resumed)


def test_a_rank_that_is_done_helps_those_that_are_left(monkeypatch) -> None:
    """They may lack its last step, which it hands over; then they come to the end as well."""
    monkeypatch.setattr(region_loss, "regroup", lambda *_: region_loss.Regrouped(LEFT, LAST, 0.5))
    group, steps = Ranks(MembershipChangedError("2 ranks go on in epoch 1")), Steps()
    assert train(group, steps) == LAST
    assert steps.done == [1, 2, LAST]
    assert group.num_parted == 2


def test_a_stop_is_agreed_on_anew_by_those_that_are_left(monkeypatch) -> None:
    """One that had not heard of it when the region was lost would begin another step alone."""
    monkeypatch.setattr(region_loss, "regroup", lambda *_: region_loss.Regrouped(LEFT, 1, 0.5))
    group, steps = Ranks(MembershipChangedError("2 ranks go on in epoch 1")), Steps(stops_at=2)
    assert train(group, steps) == 2
    assert steps.done == [1, 2, 2]
    assert group.num_parted == 2


def test_a_loss_that_ends_the_group_is_raised(monkeypatch) -> None:
    with pytest.raises(PeerLostError, match="gone"):
        train(Ranks(PeerLostError("gone")), Steps())
