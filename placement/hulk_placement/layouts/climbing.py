"""A plan made better by steps that the search does not know, as long as one helps and time allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from hulk_placement.cost.memory import fits
from hulk_placement.cost.money import judged
from hulk_placement.cost.predict import predict
from hulk_placement.fit import misfits, unknown_links
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

SHARE = 0.5
"""Of the seconds that are left."""


def climb(
    plan: Plan,
    variants: Callable[[Plan], Iterable[Plan]],
    most: int,
    workload: Workload,
    topology: Topology,
    left_s: Callable[[], float],
) -> Plan:
    """The plan, or the first of its variants that is better, and so on; so many are looked at, at most.

    `left_s`: seconds that are left, a part of which may be used. A variant that no machine or workload allows is passed
    over.
    """
    kept_s, num_left, is_better = kept_back_s(left_s()), most, True
    while is_better:
        is_better = False
        for other in variants(plan):
            if not num_left or left_s() <= kept_s:
                return plan
            num_left -= 1
            other = replace(other, prediction=predict(other, workload, topology))
            if judged(other, workload) < judged(plan, workload) and _is_allowed(other, workload, topology):
                plan, is_better = other, True
                break
    return plan


def kept_back_s(left_s: float) -> float:
    """Of the seconds that are left, those that are for others."""
    return 0.0 if left_s == math.inf else (1 - SHARE) * left_s


def _is_allowed(plan: Plan, workload: Workload, topology: Topology) -> bool:
    """Whether its machines have the memory, known links join them, and it is as the workload asks."""
    is_known = not unknown_links(plan, workload, topology)
    return is_known and fits(plan, workload, topology) and not any(misfits(plan, workload, topology))
