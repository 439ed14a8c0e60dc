"""Ways round the rings of a plan's stages: the search lets all rings follow one tour in one direction.

Opposite directions share no directed link: of two stages whose rings cross the same regions, one turned round leaves
each link half as full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from hulk_placement.cost import predict
from hulk_placement.cost.money import judged
from hulk_placement.fit import unknown_links
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

MOST_PREDICTED = 64
"""Plans, at most: what is tried for one layout."""

SHARE = 0.5
"""Of the seconds that are left."""


def turned(plan: Plan, workload: Workload, topology: Topology, left_s: Callable[[], float]) -> Plan:
    """The plan with single stages' rings turned round, as long as that makes it better; as far as time allows.

    `left_s`: seconds that are left, a part of which may be used. A plan of one stage, of two replicas, whose rings have
    but one way round, or of another transport is left as it is.
    """
    if plan.algorithm != "ring" or plan.layout.pipeline == 1 or plan.layout.data < 3:
        return plan
    most_s = left_s()
    least_s, num_left, is_better = 0.0 if most_s == math.inf else (1 - SHARE) * most_s, MOST_PREDICTED, True
    while is_better:
        is_better = False
        for rings in _variants(plan):
            if not num_left or left_s() <= least_s:
                return plan
            other = replace(plan, rings=rings)
            if unknown_links(other, workload, topology):
                continue  # known one way only
            other, num_left = replace(other, prediction=predict(other, workload, topology)), num_left - 1
            if judged(other, workload) < judged(plan, workload):
                plan, is_better = other, True
                break
    return plan


def _variants(plan: Plan) -> Iterator[tuple[tuple[int, ...], ...]]:
    """The rings with that of one stage turned round, for each stage; the last stage first."""
    rings = plan.rings or (tuple(range(plan.layout.data)),) * plan.layout.pipeline
    for stage in reversed(range(plan.layout.pipeline)):
        first, *others = rings[stage]
        yield (*rings[:stage], (first, *reversed(others)), *rings[stage + 1 :])
