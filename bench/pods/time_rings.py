"""Runs in the pods of a job: times an all-reduce over rings of different rank orders, all inside one process set.

Nothing of Hulk is imported. Orders are lists of ranks as JSON in ORDERS, sizes in bytes in SIZES; rank 0 prints one
JSON line per order and size: {"order": [...], "num_bytes": n, "seconds": [...]} with RUNS all-reduces one after the
other, as training does them. The first, which pays for connecting and for small windows, is left out. An all-reduce
ends only when every rank has taken part, so that in a row the slowest rank sets the pace of all.
"""

import json
import os
import time

import torch
import torch.distributed as dist


def timed(group: dist.ProcessGroup, values: torch.Tensor) -> float:
    """Seconds of one all-reduce on this rank."""
    start = time.perf_counter()
    dist.all_reduce(values, group=group)
    return time.perf_counter() - start


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    orders, sizes = json.loads(os.environ["ORDERS"]), json.loads(os.environ["SIZES"])
    num_runs = int(os.environ.get("RUNS", "3"))
    for order in orders:
        # Sorted ranks would undo the order.
        group = dist.new_group(order, backend="gloo", sort_ranks=False)
        assert isinstance(group, dist.ProcessGroup)  # every rank is in every order
        for num_bytes in sizes:
            values = torch.zeros(num_bytes // 4)
            seconds = [timed(group, values) for _ in range(num_runs + 1)][1:]
            if dist.get_rank() == 0:
                print(json.dumps({"order": order, "num_bytes": num_bytes, "seconds": seconds}), flush=True)
        dist.destroy_process_group(group)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
