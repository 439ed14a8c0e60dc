"""Greedy by region: the fastest regions first, as many as help, every shape laid along them; no annealing."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hulk_placement.layouts import starts
from hulk_placement.layouts.drafts import Draft, Drafts
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Trials


def search(trials: Trials, space: Space, going_on: Callable[[], bool], seed: int) -> None:
    """The fastest region, the two fastest, the three fastest, ...; `seed` decides nothing."""
    speed_R = starts.speed_by_region(trials.setting(space.options[0]))
    fastest = sorted(range(len(speed_R)), key=lambda region: -speed_R[region])
    drafts = Drafts(trials, space)
    for num, option in itertools.product(range(1, len(fastest) + 1), space.options):
        for pipeline, by_rows in itertools.product(space.pipelines, (True, False)):
            if trials.num_evaluations and not going_on():
                return
            drafts.cost(Draft(tuple(fastest[:num]), option, pipeline, by_rows=by_rows))
