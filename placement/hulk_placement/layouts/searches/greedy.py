"""Greedy by region: the fastest regions first, as many as help, every shape laid along them; no annealing."""

from __future__ import annotations

from collections.abc import Callable

from hulk_placement.layouts import starts
from hulk_placement.layouts.searches.portfolio import layouts
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Trials


def search(trials: Trials, space: Space, going_on: Callable[[], bool], seed: int) -> None:
    """The fastest region, the two fastest, the three fastest, ...; `seed` decides nothing."""
    speed_R = starts.speed_by_region(trials.setting(space.options[0]))
    fastest = sorted(range(len(speed_R)), key=lambda region: -speed_R[region])
    for num in range(1, len(fastest) + 1):
        for option in space.options:
            if trials.num_evaluations and not going_on():
                return
            for _ in layouts(trials, option, space.pipelines, space.data, tuple(fastest[:num])):
                pass
