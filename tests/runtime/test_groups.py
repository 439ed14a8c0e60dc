"""A rank joins only the group of its plan, and the kernel tells what the job's own connections are like."""

import pytest

SAMPLED = """
import torch, torch.distributed as dist
from hulk_runtime import sockets
dist.init_process_group("gloo")
peers = {1 - dist.get_rank(): sockets.canonical("127.0.0.1")}
before = sockets.sample(peers, 1 - dist.get_rank(), exclude_port=0)[1]
dist.all_reduce(torch.ones(1 << 20))
link, after = sockets.sample(peers, 1 - dist.get_rank(), exclude_port=0)
assert 4 << 20 <= after - before < 6 << 20, after - before
assert 0 < link.rtt_s < 0.1 and link.bandwidth_bytes_per_s > 1e6, link
print("sampled")
dist.barrier()  # gloo closes its connection as soon as the peer has
dist.destroy_process_group()
"""


def test_links_are_measured_on_the_jobs_own_connections(job, make_plan):
    """A ring all-reduce of 4 MiB between 2 ranks sends 4 MiB per rank."""
    for rank in job.run_ranks(make_plan((1, 1)), "-c", SAMPLED):
        assert "sampled" in rank.output


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
