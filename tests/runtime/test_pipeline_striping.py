"""Messages in pieces over several connections, of which gloo makes as many as it is told of interfaces."""

import hulk_native
import pytest
import torch
from hulk_runtime.entry import NUM_CONNECTIONS, several
from hulk_runtime.pipeline.striping import AT_ONCE_BYTES, MOST_PIECES, beside, stripes

MESSAGES = """
import os, torch, torch.distributed as dist
from hulk_runtime.collective import tcp_info
from hulk_runtime.pipeline.posted_receives import Posted
from hulk_runtime.pipeline.striping import num_connections
dist.init_process_group("gloo")
own = dist.get_rank()
line = Posted(1 - own, None, tag=5)
for number in range(3):
    mine = torch.arange(50_001, dtype=torch.float32) + own + 2 * number
    line.expect(torch.empty_like(mine))
    line.send(mine)
    assert torch.equal(line.take(), mine + (1 - 2 * own))
def used():  # connections of this process that have carried more than a greeting
    found = os.popen(f"ss -tnpi state established").read().splitlines()
    pairs = [(head, more) for head, more in zip(found, found[1:]) if f"pid={os.getpid()}," in head]
    sent = [int(word.split(":")[1]) for _, more in pairs for word in more.split() if word.startswith("bytes_sent:")]
    return sum(20_000 < number for number in sent)
print("connections", num_connections(), "used", used())
dist.barrier()
dist.destroy_process_group()
"""


def test_an_interface_is_named_several_times_and_a_list_stays_as_it_is() -> None:
    assert several("eth0").split(",") == ["eth0"] * 9
    assert several("eth0,eth1") == "eth0,eth1"


def test_predictions_count_the_connections_and_pieces_that_there_are() -> None:
    assert (hulk_native.MOST_PIECES, hulk_native.AT_ONCE_BYTES) == (MOST_PIECES, AT_ONCE_BYTES)


def test_a_short_message_has_a_connection_of_its_own() -> None:
    message, num = torch.zeros(10**6), NUM_CONNECTIONS
    taken = {tag % num for _, tag in stripes(message, tag=3, num=num)}
    assert len(taken) == MOST_PIECES
    assert [tag % num in taken for _, tag in beside(message[:9], tag=4, num=num)] == [False]
    assert [tag for _, tag in beside(message[:9], tag=4, num=1)] == [4]


@pytest.mark.parametrize(
    ("num_values", "num_pieces"), [(1, 1), (2_500, 1), (2_501, 2), (7_000, 3), (24_576, 8), (10**6, 8)]
)
def test_pieces_are_what_a_connection_sends_at_once(num_values: int, num_pieces: int) -> None:
    message = torch.arange(num_values, dtype=torch.float32)
    found = stripes(message, tag=3, num=8)
    assert len(found) == num_pieces
    assert torch.equal(torch.cat([piece for piece, _ in found]), message)
    assert [tag for _, tag in found] == list(range(24, 24 + num_pieces))
    assert num_pieces == 8 or max(piece.nbytes for piece, _ in found) <= AT_ONCE_BYTES


def test_a_message_takes_all_connections(job, make_plan) -> None:
    """200 KB to each other three times, over four connections: 50 KB on each, three times."""
    for rank in job.run_ranks(make_plan((1, 1)), "-c", MESSAGES, GLOO_SOCKET_IFNAME="lo,lo,lo,lo"):
        assert "connections 4 used 4" in rank.output
