"""What a job's step takes on so many accelerators of each pool: the crate's `layouts::{estimate, pools}`."""

from __future__ import annotations

from typing import Final

from hulk_native import cells_for, estimate, tour_of

__all__ = ["ALIGNED", "COLUMNS", "IMPOSSIBLE", "ROWS", "TOO_FEW", "WAYS", "cells_for", "estimate", "tour_of"]

COLUMNS: Final = 0
ROWS: Final = 1
ALIGNED: Final = 2
"""Ways of cutting cells into stages and replicas; with `ALIGNED` added no row or column is in two regions."""

WAYS = (ROWS, COLUMNS, ALIGNED + ROWS, ALIGNED + COLUMNS)

IMPOSSIBLE, TOO_FEW = 100.0, 200.0
"""Added to the logarithm where memory, price or a pin forbids the layout; where there are too few cells for any."""
