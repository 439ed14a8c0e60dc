"""Flows that share what they go over, as arrays: what `hulk_native.run_step` gives max-min fair rates.

Letters of shapes: F flows, R resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk_placement.cost.simulation.step import Resource, Way

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Flows(NamedTuple):
    """All flows there can be, and what resources did."""

    first_F: Ints
    """Where a flow's resources begin in `route`; one more entry says where the last one's end."""
    route: Ints
    most_F: Floats
    """Bytes a second that the entry takes where nothing is scarce, all its flows together."""
    shares_F: Floats
    capacity_R: Floats
    busy_R: Floats
    scarce_R: Floats
    """Seconds in use, and scarce."""
    moved_R: Floats
    """Bytes carried."""


def make_flows(ways: Sequence[Way], resources: Sequence[Resource]) -> Flows:
    """Flows over these ways, none under way."""
    idle_R = np.zeros(len(resources))
    return Flows(
        first_F=firsts([len(way.resources) for way in ways]),
        route=np.array([resource for way in ways for resource in way.resources], np.int64),
        most_F=np.array([way.bytes_per_s * way.num_flows for way in ways], np.float64),
        shares_F=np.array([way.num_flows for way in ways], np.float64),
        capacity_R=np.array([resource.bytes_per_s for resource in resources], np.float64),
        busy_R=idle_R.copy(),
        scarce_R=idle_R.copy(),
        moved_R=idle_R.copy(),
    )


def firsts(counts: Sequence[int]) -> Ints:
    """Where each one's entries begin, and where the last one's end."""
    return np.array([*accumulate(counts, initial=0)], np.int64)
