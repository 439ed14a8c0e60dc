"""A step's global batch -> the samples of every micro-batch of every pass, and what they weigh.

Micro-batches need not be equal: the loss of one counts as many samples as it has, so that gradients, summed over all
micro-batches, passes and replicas, are those of the mean loss over the global batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from hulk_runtime.errors import PlanError

Values = tuple[torch.Tensor, ...]


class Batch(Protocol):
    """One step's samples, by their numbers in the global batch. Nothing may depend on the rank."""

    def inputs(self, stage: str, samples: range) -> Values:
        """What a stage with no stage before it gets."""

    def loss(self, stage: str, outputs: Values, samples: range) -> torch.Tensor:
        """Mean loss over `samples`, of the outputs of a stage with no stage behind it."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """A batch that is in memory: `loss` is the mean over the samples of outputs and their targets."""

    data: torch.Tensor
    targets: torch.Tensor
    mean_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def inputs(self, stage: str, samples: range) -> Values:
        """The same for all stages."""
        return (self.data[samples.start : samples.stop],)

    def loss(self, stage: str, outputs: Values, samples: range) -> torch.Tensor:
        """Of the one tensor that the last stage gives out."""
        return self.mean_loss(outputs[0], self.targets[samples.start : samples.stop])


def as_values(outputs: Any) -> Values:
    """What a module gave out, as a tuple.

    >>> as_values([1, 2]), as_values(3)
    ((1, 2), (3,))
    """
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


@dataclass(frozen=True, slots=True)
class Division:
    """The samples of each micro-batch of one replica's shard: a range for each pass through the pipeline.

    `uncounted`: (micro-batch, pass) of which other shards have all samples. This one computes any: they gather and
    reduce together.
    """

    total: int
    pieces: tuple[tuple[range, ...], ...]
    uncounted: frozenset[tuple[int, int]] = frozenset()

    def weight(self, m: int, number: int) -> float:
        """What the mean loss over the samples of a pass of a micro-batch counts in that over the global batch."""
        return 0.0 if (m, number) in self.uncounted else len(self.pieces[m][number]) / self.total


def divide(
    shares: Sequence[Sequence[int]], replica: int, num_passes: int, shard: int = 0, num_shards: int = 1
) -> Division:
    """The samples of a replica; `shares` are those of each micro-batch of each replica, in their order.

    Each of several shards has its part of every micro-batch.

    Two passes (shape X) get halves of every micro-batch.

    >>> divide([[4, 3], [2, 2]], replica=0, num_passes=2).pieces
    ((range(0, 2), range(2, 4)), (range(4, 5), range(5, 7)))
    >>> divide([[4, 3], [2, 2]], replica=1, num_passes=1).pieces
    ((range(7, 9),), (range(9, 11),))

    The second of two shards; the first one has no sample of a micro-batch of one:

    >>> divide([[3, 1]], replica=0, num_passes=1, shard=1, num_shards=2).pieces
    ((range(1, 3),), (range(3, 4),))
    >>> divide([[3, 1]], replica=0, num_passes=1, shard=0, num_shards=2)
    Division(total=4, pieces=((range(0, 1),), (range(3, 4),)), uncounted=frozenset({(1, 0)}))

    PlanError where a pass gets none.
    """
    first = sum(map(sum, shares[:replica]))
    pieces, uncounted = [], set()
    for m, size in enumerate(shares[replica]):
        if size < num_passes:
            raise PlanError(f"micro-batch {m} of replica {replica} has {size} samples for {num_passes} passes")
        num = num_passes * num_shards
        edges = [first + size * n // num for n in range(num + 1)]
        own = [range(*edges[n : n + 2]) for n in range(shard, num, num_shards)]
        uncounted |= {(m, number) for number, samples in enumerate(own) if not samples}
        pieces.append(tuple(samples or range(first, first + 1) for samples in own))
        first += size
    return Division(sum(map(sum, shares)), tuple(pieces), frozenset(uncounted))


def even_shares(num_samples: int, num_replicas: int, num_micro_batches: int) -> list[list[int]]:
    """As even as can be.

    >>> even_shares(10, num_replicas=2, num_micro_batches=2)
    [[2, 3], [2, 3]]
    """
    num = num_replicas * num_micro_batches
    sizes = [num_samples * (n + 1) // num - num_samples * n // num for n in range(num)]
    return [sizes[r * num_micro_batches : (r + 1) * num_micro_batches] for r in range(num_replicas)]
