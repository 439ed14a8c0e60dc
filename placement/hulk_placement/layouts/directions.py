"""Ways round the rings of a plan's stages: the search lets all rings follow one tour in one direction.

Opposite directions share no directed link: of two stages whose rings cross the same regions, one turned round leaves
each link half as full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hulk_placement.layouts.climbing import climb
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

MOST_LOOKED_AT = 64
"""Plans, at most: what is tried for one layout."""


def turned(plan: Plan, workload: Workload, topology: Topology, left_s: Callable[[], float]) -> Plan:
    """The plan with single stages' rings turned round, as long as that makes it better; as far as time allows.

    `left_s`: seconds that are left, a part of which may be used. A plan of one stage, of two replicas, whose rings have
    but one way round, or of another transport is left as it is.
    """
    if plan.algorithm != "ring" or plan.layout.pipeline == 1 or plan.layout.data < 3:
        return plan
    return climb(plan, _variants, MOST_LOOKED_AT, workload, topology, left_s)


def _variants(plan: Plan) -> Iterator[Plan]:
    """The plan with the ring of one stage turned round, for each stage; the last stage first."""
    rings = plan.rings or (tuple(range(plan.layout.data)),) * plan.layout.pipeline
    for stage in reversed(range(plan.layout.pipeline)):
        first, *others = rings[stage]
        yield replace(plan, rings=(*rings[:stage], (first, *reversed(others)), *rings[stage + 1 :]))
