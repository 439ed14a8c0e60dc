"""Hulk's own all-reduce as a compared method: its plan, its bound and its prediction come from the planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.allreduce.gloo_orders import LinkOf


def methods(regions: Sequence[Sequence[int]], links: LinkOf, num_bytes: int) -> dict[str, Mapping[str, Any]]:
    return {}


def bound_s(regions: Sequence[Sequence[int]], links: LinkOf, num_bytes: int) -> float | None:
    return None


def predicted_s(regions: Sequence[Sequence[int]], links: LinkOf, num_bytes: int) -> float | None:
    return None
