"""Five arriving jobs with different utilities on six nodes: the queue grows, shrinks and stops gangs that really train.

`python -m bench queue` runs this, since it takes both processors for 20 minutes; its short form is
tests/operator/test_queue_operator.py, over a cluster in memory. Arrivals are drawn by a seed that is printed. The same
ones run again under FIFO and DRF, and what all jobs' work is worth at the end of the window is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean

import lab_fleet
import pytest
from hulk_lab import up
from lab_fleet import Record, Seen, installer
from lab_jobs import install
from lab_names import lab_name

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(3600)]

NUM_AROUND = 3  # steps before and after a restart whose losses are compared
TOLERANCE = 0.15


@pytest.fixture(scope="module")
def six_nodes(repository: Path) -> Iterator[up.Lab]:
    """A lab of its own, with Hulk installed and every region pair measured."""
    wanted = lab_fleet.six_nodes(lab_name("fleet"))
    try:
        lab = up.up(wanted)
        install(lab, repository)
        yield lab
    finally:
        up.down(wanted.name)


@pytest.fixture(scope="module")
def record(six_nodes: up.Lab, repository: Path) -> Record:
    """The five jobs as the queue has it by default."""
    print(f"arrivals of seed {lab_fleet.SEED}: {[(one.name, one.after_s) for one in lab_fleet.arrivals()]}")
    return lab_fleet.run(six_nodes, installer(six_nodes, repository), "gadget")


def said(record: Record, reason: str) -> list[str]:
    return [message for seen in record.jobs.values() for message in seen.events.get(reason, ())]


@pytest.mark.parametrize("reason", ["Shrunk", "Grown", "PreemptedByPriority"])
def test_each_kind_of_move_really_happens_and_says_why(record: Record, reason: str) -> None:
    assert said(record, reason), {name: seen.events for name, seen in record.jobs.items()}


def test_numbers_of_workers_follow_the_moves(record: Record) -> None:
    counts = [[workers for _, workers in seen.attempts] for seen in record.jobs.values()]
    assert any(after < before for job in counts for before, after in pairwise(job)), counts
    assert any(after > before for job in counts for before, after in pairwise(job)), counts
    assert record.jobs[lab_fleet.URGENT].attempts[0][1] == lab_fleet.NUM_NODES


def test_who_waited_said_where_it_stood(record: Record) -> None:
    waited = [place for seen in record.jobs.values() for place in seen.waited]
    assert waited
    assert all(place["position"] >= 1 and place["message"] for place in waited)


def test_the_loss_goes_on_across_every_move(record: Record) -> None:
    compared = [(name, *found) for name, seen in record.jobs.items() for found in around(seen)]
    assert compared, {name: seen.attempts for name, seen in record.jobs.items()}
    for name, attempt, before, after in compared:
        assert after <= (1 + TOLERANCE) * before, f"{name}, attempt {attempt}: {before} -> {after}"


def around(seen: Seen) -> Iterator[tuple[int, float, float]]:
    """By attempt, the mean loss of the last steps of the one before and of its first ones."""
    for before, after in pairwise(sorted(seen.losses)):
        last, first = seen.losses[before], seen.losses[after]
        if len(last) >= NUM_AROUND and len(first) >= NUM_AROUND:
            yield (
                after,
                mean(last[step] for step in sorted(last)[-NUM_AROUND:]),
                mean(first[step] for step in sorted(first)[:NUM_AROUND]),
            )


def test_nothing_that_was_kept_is_lost(record: Record) -> None:
    assert any(seen.told and len(seen.losses) > 1 for seen in record.jobs.values())
    for name, seen in record.jobs.items():
        assert seen.told == sorted(seen.told), name
        for before, after in pairwise(sorted(seen.losses)):
            begun, done = min(seen.losses[after]), max(seen.losses[before])
            assert begun <= done + 1, f"{name}: attempt {after} begins at step {begun}, {before} ended at {done}"


def test_no_move_counts_as_a_failure(record: Record) -> None:
    assert said(record, "BackoffLimitExceeded") == []
    assert said(record, "Error") == []


def test_all_jobs_together_are_worth_more_than_by_fifo_and_drf(
    record: Record, six_nodes: up.Lab, repository: Path
) -> None:
    others = [lab_fleet.run(six_nodes, installer(six_nodes, repository), policy) for policy in ("fifo", "drf")]
    for one in (record, *others):
        worth = {name: round(seen.utility, 1) for name, seen in one.jobs.items()}
        print(f"{one.policy}: utility {one.utility:.1f} within {lab_fleet.WINDOW_S:.0f} s: {worth}")
    assert all(record.utility > other.utility for other in others)
