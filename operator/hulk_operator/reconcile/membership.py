"""Which workers of a gang count: a region that was cut off may be left out (`sync.onRegionLoss: continue`).

Who goes on is decided by the ranks: the side with more than half of the workers, under the next membership epoch. What
that means for the job is decided here. Of a gang that is up, and whose ranks have said so or not yet:

    a worker's region       its pod failed, is gone,      its pod ended well        done when
                            or its node is lost
    takes part              ends the attempt              counts                    all of them ended well
    takes part, and could   is waited with: word of it
    be left out             may be on its way             counts                    all of them ended well
    was left out            does not matter               does not matter           the others are

What was said is in the status, because another operator must not end a gang whose pods it finds broken.
"""

from collections.abc import Collection, Sequence
from itertools import accumulate

from hulk_operator.api import Membership
from hulk_operator.observation import Observation
from hulk_operator.pods import WorkerPod
from hulk_operator.pods.termination_record import Farewell
from hulk_operator.reconcile.attempt_state import deployed, in_force, num_workers, seconds_left
from hulk_operator.reconcile.types import View
from hulk_operator.status import whole_second


def may_lose_a_region(view: View) -> bool:
    """Whether the gang in force may go on without a region. Its plan must be readable: it says who is where."""
    asked = view.job.spec.sync.on_region_loss == "continue"
    return asked and view.full is not None and in_force(view) and deployed(view)


def left_out(view: View) -> frozenset[int]:
    """Workers of the attempt in force that its ranks go on without."""
    known = view.status.membership
    if known is None or view.full is None:
        return frozenset()
    return frozenset(worker for worker, region in enumerate(_regions(view)) if region in known.without)


def members(view: View) -> frozenset[int]:
    """Workers of the attempt in force that take part."""
    return frozenset(range(num_workers(view))) - left_out(view)


def pods_of_members(view: View) -> tuple[WorkerPod, ...]:
    """Their pods, by worker."""
    out = left_out(view)
    return tuple(pod for pod in view.gang if pod.worker not in out)


def seen_in(view: View, seen: Observation) -> Membership | None:
    """What the status is to say of what a rank said; None where that is nothing new, or no plan provides for it.

    Regions with 1, 2 and 1 workers, of 1, 2 and 2 accelerators: ranks 0, 1-4 and 5-6. Without ranks 5 and 6 the third
    is out; without rank 5 alone, none is.
    """
    if not may_lose_a_region(view) or not seen.epoch or view.full is None:
        return None
    slots = view.full.plan.workers
    firsts = accumulate((slot.num_accelerators for slot in slots), initial=0)
    taking_part = {
        slot.region
        for slot, first in zip(slots, firsts, strict=False)
        if not seen.absent.issuperset(range(first, first + slot.num_accelerators))
    }
    return _next(view, seen.epoch, {slot.region for slot in slots} - taking_part)


def told_by(view: View, last: Farewell) -> Membership | None:
    """The same of the last words of a run: it may have ended before it was asked again."""
    return _next(view, last.epoch, set(last.without)) if may_lose_a_region(view) else None


def _next(view: View, epoch: int, without: Collection[str]) -> Membership | None:
    """The membership after the known one; None where that is not newer, or leaves out no region or all of them."""
    known, regions = view.status.membership, _regions(view)
    left = sum(region not in without for region in regions)
    if epoch <= (known.epoch if known else 0) or not 0 < left < len(regions):
        return None
    gone = tuple(sorted(set(without) & set(regions)))
    return Membership(epoch=epoch, workers=left, without=gone, since=whole_second(view.now))


def speakers(view: View) -> tuple[WorkerPod, ...]:
    """Pods to ask how it goes, while they can be asked: rank 0's; where regions can be lost, each region's first.

    The lowest rank that takes part speaks for all, and regions are lost as a whole.
    """
    taking_part = pods_of_members(view)
    if not may_lose_a_region(view):
        taking_part = tuple(pod for pod in taking_part if pod.worker == 0)
    first: dict[str, WorkerPod] = {}
    regions = _regions(view)
    for pod in taking_part:
        first.setdefault(regions[pod.worker] if regions else "", pod)
    return tuple(pod for pod in first.values() if pod.running and pod.ip)


def doors(view: View) -> dict[str, str]:
    """The address of one running pod on each node that takes part."""
    found: dict[str, str] = {}
    for pod in pods_of_members(view):
        if pod.running and pod.ip and pod.node:
            found.setdefault(pod.node, pod.address)
    return found


def could_go_on(workers: Collection[int], without: Collection[int]) -> bool:
    """Whether the ranks' rule lets `workers` go on when some are out: more than half; at a tie, the lowest one's half.

    >>> could_go_on(range(6), {4, 5}), could_go_on(range(4), {2, 3}), could_go_on(range(4), {0, 1})
    (True, True, False)
    """
    left = set(workers) - set(without)
    return 2 * len(left) > len(workers) or (2 * len(left) == len(workers) and min(workers) in left)


def seconds_to_bear(view: View, lost: Collection[int]) -> float:
    """How much longer to wait for word that the gang goes on without the regions of `lost`; 0: it is no use."""
    if not may_lose_a_region(view):
        return 0.0
    regions = _regions(view)
    hit = {regions[worker] for worker in lost}
    if not could_go_on(members(view), {worker for worker in members(view) if regions[worker] in hit}):
        return 0.0
    if view.memory.loss is None or view.memory.loss[0] != view.status.attempt:
        return view.timing.region_loss_s
    since, seen = view.memory.loss[1], view.memory.sighting
    silent = seen is not None and seen.attempt == view.status.attempt and seen.observation is None
    if silent and seen is not None and (seen.time - since).total_seconds() >= view.timing.alone_s:
        return 0.0  # nobody trains any more
    return max(0.0, seconds_left(view, since, view.timing.region_loss_s))


def _regions(view: View) -> Sequence[str]:
    """By worker; empty when the plan cannot be read."""
    return [slot.region for slot in view.full.plan.workers] if view.full else ()
