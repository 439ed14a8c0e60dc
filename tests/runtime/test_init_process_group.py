"""A rank joins only the group of its plan, and the kernel tells what the job's own connections are like."""

import pytest

SAMPLED = """
import time, torch, torch.distributed as dist
from hulk_runtime.collective import tcp_info
dist.init_process_group("gloo")
peers = {1 - dist.get_rank(): tcp_info.canonical("127.0.0.1")}
traffic = tcp_info.Traffic(peers, exclude_port=0)
traffic.look(1 - dist.get_rank())
before = traffic.sent_bytes
dist.all_reduce(torch.ones(1 << 20))
deadline_s = time.monotonic() + 30
while traffic.sent_bytes - before < 4 << 20 and time.monotonic() < deadline_s:
    link = traffic.look(1 - dist.get_rank())  # the last bytes may be on their way when the sum is there
assert 4 << 20 <= traffic.sent_bytes - before < 6 << 20, traffic.sent_bytes - before
assert 0 < link.rtt_s < 0.1 and link.bandwidth_bytes_per_s > 1e6, link
print("sampled")
dist.barrier()  # gloo closes its connection as soon as the peer has
dist.destroy_process_group()
"""

PARTING = """
import os, sys
from hulk_runtime.collective import init_process_group
from hulk_runtime.job import environment
with init_process_group.connect(environment.read(os.environ)) as group:
    if sys.argv[1] == "lost" and not group.is_first:
        os._exit(0)
    group.part()
    print("parted")
"""


def test_links_are_measured_on_the_jobs_own_connections(job, make_plan):
    """A ring all-reduce of 4 MiB between 2 ranks sends 4 MiB per rank."""
    for rank in job.run_ranks(make_plan((1, 1)), "-c", SAMPLED):
        assert "sampled" in rank.output


@pytest.mark.parametrize(("peer", "num_parted"), [("there", 2), ("lost", 1)])
def test_ranks_part_also_from_a_peer_that_is_lost(job, make_plan, peer, num_parted):
    ranks = job.run_ranks(make_plan((1, 1)), "-c", PARTING, peer)
    assert sum("parted" in rank.output for rank in ranks) == num_parted


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"WORLD_SIZE": "3"}, "world of 3 ranks, the plan has 2"),
        ({"HULK_ATTEMPT": "2"}, "attempt 2 was given the plan of attempt 1"),
    ],
)
def test_an_environment_that_is_not_the_plans_is_refused(job, make_plan, variables, complaint):
    job.write_plan(make_plan((1, 1)))
    rank = job.start("-m", "hulk_runtime.examples.gpt", RANK="0", **variables)
    assert rank.wait() == 65
    assert complaint in rank.output
