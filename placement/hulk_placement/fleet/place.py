"""Workers onto machines: as few machines as can be, in one region where that holds them all.

A worker that is already somewhere stays there as long as the new number of workers leaves it a place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hulk_placement.fleet.room import Counts, Room, reservation
from hulk_placement.fleet.types import Job, Mapped

MOST_STARTS = 4
"""Regions that are tried as the first of several."""


def place(room: Room, job: Job, count: int, held: Mapped | None = None) -> dict[str, int] | None:
    """Machines for so many workers of the job, None where they do not fit; `held` are those to stay on.

    What is held must not be taken in the room at the moment.
    """
    if count > room.quota_left(job):
        return None
    if held:
        staying = _staying(room, job, count, held)
        if staying is not None:
            return staying
    return _fresh(room, job, count, room.admits(job))


def is_ever_joined(room: Room, job: Job) -> bool:
    """Whether the job's least fits machines that its ring can join, were they and their links free, quotas apart."""
    if job.allow_unknown_links and not reservation(job):
        return int(room.most(job).sum()) >= job.min_workers
    if job.key not in room.can_be_joined:
        room.can_be_joined[job.key] = place(room.empty, job, job.min_workers) is not None
    return room.can_be_joined[job.key]


def largest(room: Room, job: Job, count: int, held: Mapped | None = None) -> dict[str, int] | None:
    """As `place`, with as many workers as fit, from `count` down to the job's least; None where even that fails."""
    most = min(count, room.quota_left(job), int(min(room.admits(job).sum(), count)))
    for fewer in range(most, job.min_workers - 1, -1):
        mapping = place(room, job, fewer, held)
        if mapping is not None:
            return mapping
    return None


def _staying(room: Room, job: Job, count: int, held: Mapped) -> dict[str, int] | None:
    """The held mapping, shrunk from its smallest machines or grown beside what is there; None where that is no way."""
    if any(machine not in room.index for machine in held):
        return None
    admits = room.admits(job)
    mapping = {machine: min(number, int(admits[room.index[machine]])) for machine, number in held.items()}
    mapping = {machine: number for machine, number in mapping.items() if number}
    for machine in sorted(mapping, key=lambda name: (mapping[name], room.index[name])):
        surplus = sum(mapping.values()) - count
        if surplus <= 0:
            break
        mapping[machine] -= min(surplus, mapping[machine])
    mapping = {machine: number for machine, number in mapping.items() if number}
    missing = count - sum(mapping.values())
    if missing:
        mapping = _grown(room, admits, mapping, missing)
    return mapping if sum(mapping.values()) == count and room.has_bandwidth(job, mapping) else None


def _grown(room: Room, admits: Counts, mapping: dict[str, int], missing: int) -> dict[str, int]:
    """Workers more: on machines that are held, then in their regions, then anywhere, on the largest first."""
    more = admits.copy()
    held = np.zeros(len(more), dtype=bool)
    for machine, number in mapping.items():
        more[room.index[machine]] -= number
        held[room.index[machine]] = True
    near = np.isin(room.region, np.unique(room.region[held]))
    grown = dict(mapping)
    for place_ in np.lexsort((-more, ~near, ~held)):
        if not missing:
            break
        added = min(missing, int(more[place_]))
        if added:
            name = room.names[place_]
            grown[name] = grown.get(name, 0) + added
            missing -= added
    return grown


def _fresh(room: Room, job: Job, count: int, admits: Counts) -> dict[str, int] | None:
    alone = np.flatnonzero(admits >= count)
    if alone.size:
        best = alone[np.argmin(room.free[alone])]
        return {room.names[best]: count}
    reserved = reservation(job)
    if reserved:
        admits = np.where(room.card >= reserved, admits, 0)
    if admits.sum() < count:
        return None
    in_region = np.bincount(room.region, weights=admits, minlength=len(room.regions))
    nearest = _in_one_region(room, job, count, admits, np.flatnonzero(in_region >= count).tolist())
    if nearest is not None:
        return nearest
    order = np.argsort(-in_region, kind="stable")
    for start in order[:MOST_STARTS]:
        regions = [int(start), *order[order != start].tolist()]
        mapping = _across(room, job, admits, regions, count)
        if sum(mapping.values()) == count and room.has_bandwidth(job, mapping):
            return mapping
    return None


def _in_one_region(room: Room, job: Job, count: int, admits: Counts, regions: Sequence[int]) -> dict[str, int] | None:
    """On the fewest machines of one of these regions, which all hold so many, though no machine does alone."""
    best: dict[str, int] | None = None
    for region in regions:
        if job.allow_unknown_links or room.knows(region, region):
            mapping = _fewest(room, room.members[region], admits, count)
            if best is None or len(mapping) < len(best):
                best = mapping
            if len(best) == 2:
                break
    return best


def _fewest(room: Room, members: Counts, admits: Counts, count: int) -> dict[str, int]:
    """The largest of these machines until one holds the rest: of those that do, the tightest."""
    mapping: dict[str, int] = {}
    order = members[np.argsort(-admits[members], kind="stable")]
    most = admits[order]
    for taken, place_ in enumerate(order):
        holding = np.sort(order[taken : int(np.searchsorted(-most, -count, side="right"))])
        if holding.size:
            mapping[room.names[holding[np.argmin(room.free[holding])]]] = count
            break
        mapping[room.names[place_]] = int(most[taken])
        count -= int(most[taken])
    return mapping


def _across(room: Room, job: Job, admits: Counts, order: Sequence[int], count: int) -> dict[str, int]:
    """Regions in order, until they hold all workers; none to or from which nothing is known, where that matters."""
    mapping: dict[str, int] = {}
    taken: list[int] = []
    for region in order:
        members = room.members[region]
        if not job.allow_unknown_links:
            if not all(room.knows(region, other) and room.knows(other, region) for other in taken):
                continue
            if not room.knows(region, region):
                members = members[[np.argmax(admits[members])]]
        here = min(count, int(admits[members].sum()))
        if here:
            mapping |= _fewest(room, members, admits, here)
            taken.append(region)
            count -= here
        if not count:
            break
    return mapping
