"""Inside a region the stock backend does the work: which ranks leave it to torch, and their process groups.

A vector is cut into one contiguous piece for each rank of the region, the values that it owns in every flow.

    reduce    each rank gets its region's sum of its own piece; on a GPU it is made there, and only it is copied out
    ...       the engine sums pieces over regions, and knows nothing of the region's other ranks
    share     each rank gets the results of all other pieces

See region.py for how. NCCL sums; results are shared by gloo from host memory, where they are: NCCL must not be used by
two groups at a time, and whether a result or the next reduction comes first differs from rank to rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist

from hulk_runtime.plan.flows import CollectivePlan

NEVER: Final = timedelta(days=365)
"""The engine finds lost ranks, and whoever waits has his own patience."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Torch's process groups between the ranks of a region."""

    sums: dist.ProcessGroup
    results: dist.ProcessGroup


@dataclass(frozen=True, slots=True)
class Inside:
    """One rank's place among the ranks of its region, and their groups for each epoch of membership that may come.

    A new epoch needs new groups: some ranks may have begun what others never will.
    """

    place: int
    num_ranks: int
    groups: Sequence[Groups]
    device: torch.device


def is_wanted(device: torch.device) -> bool:
    """Whether the stock backend works inside regions: on GPUs.

    Between CPUs the engine is quicker, as its first chunks leave over the WAN while others still come in (`python -m
    bench.allreduce inside`).
    """
    return device.type == "cuda"


def join(plan: CollectivePlan, rank: int, device: torch.device) -> Inside | None:
    """Make the groups, all ranks of the region together; None for a rank that is alone in its region."""
    ranks = list(plan.regions[plan.region_of(rank)])
    if len(ranks) == 1:
        return None
    num_epochs = len(plan.regions) if plan.on_region_loss == "continue" else 1
    sums_by = "nccl" if device.type == "cuda" else "gloo"
    groups = [Groups(_group(ranks, sums_by), _group(ranks, "gloo")) for _ in range(num_epochs)]
    for each in groups:  # NCCL connects at first use, which needs the store
        to_all(
            each.sums,
            torch.zeros(len(ranks), dtype=torch.float32, device=device),
            torch.zeros(len(ranks), dtype=torch.float32, device=device),
        )
    return Inside(ranks.index(rank), len(ranks), groups, device)


def to_all(
    group: dist.ProcessGroup,
    target: torch.Tensor,
    source: torch.Tensor,
    target_lengths: list[int] | None = None,
    source_lengths: list[int] | None = None,
) -> None:
    """Torch's all-to-all, cut as unevenly as pieces are. As bytes: gloo does not know every type."""
    size = source.element_size()
    into, out_of = ([size * count for count in lengths or ()] or None for lengths in (target_lengths, source_lengths))
    dist.all_to_all_single(target.view(torch.uint8), source.view(torch.uint8), into, out_of, group=group)


def _group(ranks: Sequence[int], backend: str) -> dist.ProcessGroup:
    found = dist.new_group(list(ranks), NEVER, backend, use_local_synchronization=True, sort_ranks=False)
    assert isinstance(found, dist.ProcessGroup)
    return found
