"""Rank 0's values on every rank, to the bit, by the group's own connections: what a resumed run begins with."""

from functools import partial

import torch
from collective_ranks import group, together
from hulk_runtime.collective.group import Collective
from hulk_runtime.collective.process_group import Group
from hulk_runtime.collective.staging import PIECE_VALUES, PIECES_AHEAD, AllReduce
from hulk_runtime.plan.flows import CollectivePlan

CPU = torch.device("cpu")
REGIONS = CollectivePlan.direct([[1, 3], [0], [2]], chunk_bytes=1 << 18)
SPECIAL = [0.0, -0.0, torch.inf, -torch.inf, 1e-45, -1e-45, 3.4e38, 1 / 3]


def bits(values: torch.Tensor) -> torch.Tensor:
    return values.view(torch.int32)


def groups(ranks: list[Collective]) -> list[Group]:
    """Torch has no group here: who asks it for anything fails."""
    return [Group(rank.rank, len(ranks), "gloo", CPU, {}, AllReduce(rank, CPU)) for rank in ranks]


def test_every_rank_gets_the_bits_of_rank_0_in_more_pieces_than_are_under_way() -> None:
    num_values = (PIECES_AHEAD + 1) * PIECE_VALUES + 5
    first = torch.randn(num_values, generator=torch.Generator().manual_seed(1))
    first[: len(SPECIAL)] = first[-len(SPECIAL) :] = torch.tensor(SPECIAL)
    with group(REGIONS) as ranks:
        held = [first.clone(), *(torch.full((num_values,), torch.nan) for _ in ranks[1:])]
        together([partial(each.broadcast, mine) for each, mine in zip(groups(ranks), held, strict=True)])
        assert all(torch.equal(bits(mine), bits(first)) for mine in held)
        assert ranks[0].reports() == [], "no all-reduce of the program's"
