"""A group's first sums, over the backend `hulk` or one that is instrumented: `first_sums_script.py KIND`."""

import os
import sys
import time

import torch
import torch.distributed as dist
from hulk_runtime.collective import backend, planned_sums  # noqa: F401  # registers `hulk`


def crossed() -> None:
    """The world's and two groups', which each rank begins in another order; nobody waits before all are begun."""
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [None, dist.new_group(list(range(size))), dist.new_group([0, size - 1])]
    mine = [group for group in groups if group is not dist.GroupMember.NON_GROUP_MEMBER]
    order = mine[rank % len(mine) :] + mine[: rank % len(mine)]
    values = [[torch.full((length,), float(rank)) for length in (3, 1000)] for _ in order]
    begun = [(group, each) for group, pair in zip(order, values, strict=True) for each in pair]
    works = [dist.all_reduce(each, group=group, async_op=True) for group, each in begun]
    for work in reversed(works):
        work.wait()
    for group, pair in zip(order, values, strict=True):
        total = float(sum(dist.get_process_group_ranks(group)))
        assert [each.unique().tolist() for each in pair] == [[total], [total]]
    assert planned_sums.num_connected() == len(mine)


def destroyed() -> None:
    """Groups that end before anything was summed in them, and one that is made after them."""
    size = dist.get_world_size()
    for ranks in (list(range(size)), [0, size - 1]):
        group = dist.new_group(ranks)
        dist.barrier()  # gloo's own connections are there
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    values = torch.ones(10)
    dist.all_reduce(values, group=dist.new_group(list(range(size))))
    assert values.tolist() == [float(size)] * 10
    assert planned_sums.num_connected() == 1


def late() -> None:
    """A rank comes to its first sum when others have waited longer than ranks may take to connect."""
    if dist.get_rank() == 1:
        dist.recv(torch.ones(1), src=0)
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < 2 * float(os.environ["HULK_RENDEZVOUS_SECONDS"]):
            time.sleep(0.01)
    values = torch.ones(10)
    work = dist.all_reduce(values, async_op=True)
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), dst=1)
    work.wait()
    assert values.tolist() == [float(dist.get_world_size())] * 10


def lost() -> None:
    """One rank ends before its first sum."""
    dist.barrier()
    if dist.get_rank() == int(os.environ["LEAVES"]):
        os._exit(3)
    dist.all_reduce(torch.ones(10))


if __name__ == "__main__":
    dist.init_process_group("hulk")
    {"crossed": crossed, "destroyed": destroyed, "late": late, "lost": lost}[sys.argv[1]]()
    print("all right", flush=True)
    dist.barrier()
    dist.destroy_process_group()
