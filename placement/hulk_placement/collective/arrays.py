"""The kinds of arrays over regions and links, and what is worked out on them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def shortest_s(hop_s: Floats) -> Floats:
    """Seconds of the shortest ways between all pairs."""
    far = hop_s.copy()
    for middle in range(len(far)):
        far = np.minimum(far, far[:, middle, None] + far[None, middle, :])
    return far
