"""The parts of the search that can be left out, to measure what each is worth; plans are made with all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hulk_placement.cost.closed_form.arrays import Ints, Setting

NUM_MOVES = 5
SWAP, REPLACE, SHIFT, SHARE, TOUR = range(NUM_MOVES)
"""What annealing changes, by the numbers of the crate's `layouts::moves`."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Local search; layers and shares by the speed of machines; tours by what edges between regions take.

    `drawings`: layouts drawn along the levels of the link hierarchy.
    """

    annealing: bool = True
    uneven: bool = True
    tours: bool = True
    drawings: bool = True

    def moves(self) -> Ints:
        """Which moves annealing may make, 1 or 0 each."""
        allowed = np.ones(NUM_MOVES, np.int64)
        if not self.uneven:
            allowed[[SHIFT, SHARE]] = 0
        if not self.tours:
            allowed[TOUR] = 0
        return allowed

    def to_split_by(self, setting: Setting) -> Setting:
        """The setting by which layers and shares are split: where they are to be even, all machines are alike."""
        if self.uneven:
            return setting
        forward_KJ, backward_KJ = np.empty_like(setting.forward_KJ), np.empty_like(setting.backward_KJ)
        forward_KJ[:], backward_KJ[:] = setting.forward_KJ.mean(axis=0), setting.backward_KJ.mean(axis=0)
        return setting._replace(forward_KJ=forward_KJ, backward_KJ=backward_KJ)
