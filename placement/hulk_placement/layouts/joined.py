"""Whether links that may be used join enough machines for any layout, and those that pins ask for; or why not.

All machines of a layout can be reached from each other: stages send forward and back, rings come back to where they
began. So each layout lies within machines between which usable links lead both ways, perhaps through others.
"""

from __future__ import annotations

import numpy as np

from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.solution import Unplaced
from hulk_placement.topology import Machine
from hulk_placement.words import counted

MOST_LISTED = 4


def unjoined(ground: Ground, least: int) -> Unplaced | None:
    """Why no links join so many accelerators, or the places of all pins; None where they do.

    That is needed for a layout, not enough: through others is not directly.
    """
    groups = joined(ground)
    roomy = [group for group in groups if _room(group) >= least]
    if not roomy:
        return Unplaced(
            "OnlyUnknownLinks",
            f"Needs at least {counted(least, 'accelerator')}; known links join at most {max(map(_room, groups))} of "
            f"{_room(ground.machines)}.{missing_links(ground)}",
        )
    pins = ground.workload.layer_pins
    lacking = [[pin for pin in pins if not any(map(pin.allows, group))] for group in roomy]
    if not all(lacking):
        return None
    lacks = min(lacking, key=len)
    others = [pin for pin in pins if pin not in lacks]
    bound = f"Pins bind {others[0].words} and {lacks[0].words}" if others else f"A pin binds {lacks[0].words}"
    in_all = f" and {least} accelerators in all" if least > 1 else ""
    return Unplaced(
        "OnlyUnknownLinks",
        f"{bound}; no known links join them{in_all}.{missing_links(ground)}",
    )


def joined(ground: Ground) -> list[tuple[Machine, ...]]:
    """The largest groups of machines that usable links lead between, both ways."""
    left = set(ground.place_M.tolist())
    groups: list[tuple[Machine, ...]] = []
    is_used_Q = np.isin(np.arange(len(ground.joins.flow_QQ)), ground.place_M)
    usable_QQ = (ground.joins.flow_QQ > 0) & is_used_Q & is_used_Q[:, None]
    while left:
        start = min(left)
        places = np.flatnonzero(_reached(usable_QQ, start) & _reached(usable_QQ.T, start))
        here = [m for place in places for m in np.flatnonzero(ground.place_M == place)]
        machines = tuple(ground.machines[m] for m in here)
        if len(left & set(places.tolist())) == 1 and not usable_QQ[start, start]:
            groups += [(machine,) for machine in machines]
        else:
            groups.append(machines)
        left -= set(places.tolist())
    return groups


def _reached(usable_QQ: np.ndarray, start: int) -> np.ndarray:
    """The places that usable links lead to from one."""
    reached_Q, fresh = np.zeros(len(usable_QQ), bool), np.array([start])
    reached_Q[start] = True
    while len(fresh):
        fresh = np.flatnonzero(usable_QQ[fresh].any(axis=0) & ~reached_Q)
        reached_Q[fresh] = True
    return reached_Q


def _room(machines: tuple[Machine, ...]) -> int:
    return sum(machine.num_accelerators for machine in machines)


def missing_links(ground: Ground) -> str:
    """A sentence, after a space, on the links of regions of which nothing is known; "" where there are none."""
    regions, num_R = ground.regions, np.bincount(ground.region_M, minlength=len(ground.regions))
    is_needed_RR = ~np.eye(len(regions), dtype=bool) | (num_R > 1)
    missing = np.argwhere((ground.joins.flow_RR == 0) & is_needed_RR)
    listed = ", ".join(f"{regions[a]} to {regions[b]}" for a, b in missing[:MOST_LISTED])
    more = ", ..." if len(missing) > MOST_LISTED else ""
    return (
        f" Nothing is known of {len(missing)} of {is_needed_RR.sum()} region links: {listed}{more}." if listed else ""
    )
