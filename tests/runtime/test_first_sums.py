"""A group connects in its first sum: in any order of groups, also late; who is lost meanwhile is named."""

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from hulk_runtime.collective.members import Introduction, addresses_of, read_members
from hulk_runtime.errors import PeerLostError
from test_backend import two_regions

SCRIPT = str(Path(__file__).with_name("first_sums_script.py"))


@pytest.mark.parametrize(
    ("kind", "variables"), [("crossed", {}), ("destroyed", {}), ("late", {"HULK_RENDEZVOUS_SECONDS": "0.5"})]
)
def test_first_sums_are_right(job, make_plan, kind: str, variables: dict[str, str]) -> None:
    ranks = job.run_ranks(two_regions(make_plan), SCRIPT, kind, **variables)
    assert all("all right" in rank.output for rank in ranks)


@pytest.mark.parametrize(("leaves", "why"), [(0, ""), (1, "refused"), (3, "refused")])
def test_who_is_gone_before_its_first_sum_is_named_at_once(job, make_plan, leaves: int, why: str) -> None:
    """Not after the time that ranks may take to come there: half an hour, as torch's. Rank 0 has the store, too.

    Each names the partner that it misses: the one that left, or one that has gone because it misses another.
    """
    ranks = job.start_ranks(two_regions(make_plan), SCRIPT, "lost", LEAVES=str(leaves))
    assert [rank.wait() for rank in ranks] == [3 if number == leaves else 69 for number in range(4)]
    named = {}
    for number, rank in enumerate(ranks):
        if number != leaves:
            found = re.search(rf"^PeerLostError: rank (\d).*{why}", rank.output, re.MULTILINE)
            assert found, rank.output
            named[number] = int(found[1])
    assert leaves in named.values()
    for missing in named.values():
        for _ in ranks:
            missing = named.get(missing, leaves)
        assert missing == leaves, named


def test_a_rank_whose_name_server_failed_is_named_and_the_attempt_may_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    store = dist.HashStore()
    introductions = [Introduction(store, 0)]
    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", failing)
        patch.setenv("MASTER_ADDR", "mine-0.mine")
        introductions.append(Introduction(store, 1))
    with pytest.raises(PeerLostError, match=r"^rank 1 did not find .* mine-0.mine: .*Temporary failure"):
        addresses_of(read_members(store, 2))
    for own in introductions:
        own.listener.close()
