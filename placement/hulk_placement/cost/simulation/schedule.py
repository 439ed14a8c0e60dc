"""Schedules: the order in which every stage of a pipeline computes its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

FORWARD, BACKWARD = 0, 1

Block = tuple[int, int]
"""FORWARD or BACKWARD, and the micro-batch."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The order of blocks on each stage: every micro-batch once forward and, later, once backward."""

    orders: tuple[tuple[Block, ...], ...]

    def __post_init__(self) -> None:
        whole = {(kind, batch) for kind in (FORWARD, BACKWARD) for batch in range(self.num_micro_batches)}
        for stage, order in enumerate(self.orders):
            place = {block: number for number, block in enumerate(order)}
            if not order or len(order) != len(place) or place.keys() != whole:
                raise ValueError(
                    f"stage {stage}: {len(order)} blocks are not {self.num_micro_batches} micro-batches, each once "
                    "forward and once backward"
                )
            for batch in range(self.num_micro_batches):
                if place[BACKWARD, batch] < place[FORWARD, batch]:
                    raise ValueError(f"stage {stage}: micro-batch {batch} goes backward before it goes forward")

    @property
    def num_micro_batches(self) -> int:
        """Of one replica in a step."""
        return len(self.orders[0]) // 2


@lru_cache(maxsize=256)
def schedule(name: str, num_stages: int, num_micro_batches: int) -> Schedule:
    """A schedule by name, gpipe or 1f1b, as in `cost.pipeline`.

    >>> schedule("1f1b", num_stages=2, num_micro_batches=2).orders
    (((0, 0), (0, 1), (1, 0), (1, 1)), ((0, 0), (1, 0), (0, 1), (1, 1)))
    """
    if name not in ("gpipe", "1f1b"):
        raise ValueError(f"schedule {name!r} must be gpipe or 1f1b, or be given block by block")
    forward = [(FORWARD, batch) for batch in range(num_micro_batches)]
    backward = [(BACKWARD, batch) for batch in range(num_micro_batches)]
    orders: list[tuple[Block, ...]] = []
    for stage in range(num_stages):
        ahead = num_micro_batches if name == "gpipe" else min(num_stages - 1 - stage, num_micro_batches)
        pairs = zip(forward[ahead:], backward, strict=False)
        left = backward[num_micro_batches - ahead :]
        orders.append((*forward[:ahead], *(block for pair in pairs for block in pair), *left))
    return Schedule(tuple(orders))
