"""Why a job waits, where it stands in the queue and when its turn is expected, in sentences with numbers."""

from __future__ import annotations

from collections.abc import Mapping

from hulk_placement.fleet.place import is_ever_joined
from hulk_placement.fleet.policies.fifo import can_ever
from hulk_placement.fleet.problem import Problem
from hulk_placement.fleet.room import Room
from hulk_placement.fleet.types import Job, Mapped, Move, MoveKind
from hulk_placement.words import counted


def waiting_reason(problem: Problem, room: Room, job: Job, position: int) -> str:
    """The sentence for a job that has no workers; `room` is what the decision leaves free."""
    least, wanted = job.min_workers, job.accelerators_per_worker
    most = int(room.most(job).sum())
    if most < least:
        return (
            f"waits: its least is {_workers(least, wanted)}, and the cluster's machines could hold "
            f"{most} of them were they empty"
        )
    if not is_ever_joined(room, job):
        return (
            f"waits: its least is {_workers(least, wanted)}, and no links that are known, and carry "
            f"what it reserves, join machines that hold so many of them, were they empty; {most} fit on all together"
        )
    if not can_ever(room, job):
        return f"waits: {room.quotas.lack(job.namespace, least, wanted)}"
    return f"waits at position {position}: {_lacking(room, job)}"


def _lacking(room: Room, job: Job) -> str:
    least, wanted = job.min_workers, job.accelerators_per_worker
    if room.quota_left(job) < least:
        return room.quotas.lack(job.namespace, least, wanted)
    now = int(room.admits(job).sum())
    if now < least:
        return f"its least is {_workers(least, wanted)}, and {now} fit on what others leave free"
    return f"{now} of its workers fit, but no links are free for a ring of {least}, or earlier jobs are to have them"


def moves_of(problem: Problem, running: Mapping[str, Mapped], chosen: Mapping[str, Mapped]) -> list[Move]:
    """What changes for whom, in the order of jobs."""
    moves = []
    for job in problem.jobs:
        before, after = running.get(job.key, {}), chosen.get(job.key, {})
        if dict(before) != dict(after):
            moves.append(Move(job.key, _kind(before, after), dict(before), dict(after)))
    return moves


def _kind(before: Mapped, after: Mapped) -> MoveKind:
    if not before:
        return MoveKind.START
    if not after:
        return MoveKind.PREEMPT
    more = sum(after.values()) - sum(before.values())
    return MoveKind.GROW if more > 0 else MoveKind.SHRINK if more < 0 else MoveKind.MOVE


def moving_reason(problem: Problem, job: Job, move: Move) -> str:
    """The sentence for a job whose workers change."""
    before, after = sum(move.before.values()), sum(move.after.values())
    if move.kind is MoveKind.PREEMPT:
        return f"stopped: {_its(before)} go{'es' if before == 1 else ''} to others"
    speed = f"{problem.rate(job, move.after):.3g} samples/s"
    if move.kind is MoveKind.START:
        return f"starts with {counted(after, 'worker')} on {counted(len(move.after), 'machine')}, {speed}"
    if move.kind is MoveKind.MOVE:
        return f"moves to {counted(len(move.after), 'machine')} with {_its(after)}, {speed}"
    return f"{move.kind}s from {before} to {counted(after, 'worker')} on {counted(len(move.after), 'machine')}, {speed}"


def _workers(num_workers: int, accelerators: int) -> str:
    return f"{counted(num_workers, 'worker')} of {counted(accelerators, 'accelerator')}"


def _its(num_workers: int) -> str:
    return f"its {counted(num_workers, 'worker')}"


def expected_starts(problem: Problem, chosen: Mapping[str, Mapped], waiting: list[Job]) -> dict[str, float]:
    """When the accelerators that each waiting job's least needs are expected to be free, earlier ones served first.

    Running jobs are expected to end when their work is done at their present speed; where that never frees enough,
    a job has no entry.
    """
    jobs = {job.key: job for job in problem.jobs}
    ends = (
        sorted((problem.now_s + problem.left_s(jobs[key], mapping), key, mapping) for key, mapping in chosen.items())
        if waiting
        else []
    )
    room = problem.room()
    for key, mapping in chosen.items():
        room.take(jobs[key], mapping)
    starts: dict[str, float] = {}
    now_s, queue = problem.now_s, list(waiting)
    while queue:
        job = queue[0]
        if not can_ever(room, job):
            queue.pop(0)
        elif min(int(room.admits(job).sum()), room.quota_left(job)) >= job.min_workers:
            starts[job.key] = now_s
            _hold(room, job)
            queue.pop(0)
        elif ends:
            now_s, key, mapping = ends.pop(0)
            room.give(jobs[key], mapping)
        else:
            break
    return starts


def _hold(room: Room, job: Job) -> None:
    """The accelerators that the job's least takes, on whichever machines."""
    missing, admits = job.min_workers, room.admits(job)
    for place in admits.argsort()[::-1]:
        taken = min(missing, int(admits[place]))
        room.free[place] -= taken * job.accelerators_per_worker
        missing -= taken
        if not missing:
            return
