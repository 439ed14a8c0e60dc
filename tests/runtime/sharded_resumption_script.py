"""Ranks that resume a sharded checkpoint, and what happens to one of them: `sharded_resumption_script.py CASE STEPS`.

plain     replicas that hold the same
gone      rank 1 ends before it resumes
loader    what rank 1 has beside the model cannot go on
apart     replicas that train apart
stages    ranks 0 and 1 have the first stage, the others the second one
"""

import os
import sys

import hulk
import torch
import torch.distributed as dist
from hulk_runtime import errors
from hulk_runtime.job import step_record


class Loader:
    """Goes on where it was, or not."""

    def __init__(self, is_broken: bool) -> None:
        self.is_broken = is_broken

    def state_dict(self) -> dict[str, int]:
        return {"at": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        if self.is_broken:
            raise RuntimeError(f"no file of {state}")


def main(case: str, num_steps: int) -> None:
    """A checkpoint at the end; rank 0 says how far the job is."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, step_record.NUM_BYTES)
    step_record.own = step_record.StepRecord(descriptor)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    name = "second" if case == "stages" and rank > 1 else "first"
    net = torch.nn.ModuleDict({name: torch.nn.Linear(3, 3)})
    optimizer = torch.optim.AdamW(net.parameters())
    diloco = hulk.DiLoCo(net, optimizer, sync_every=4) if case == "apart" else None
    checkpointer = hulk.Checkpointer(net, optimizer, diloco=diloco, loader=Loader(case == "loader" and rank == 1))
    if case == "gone" and rank == 1:
        os._exit(0)
    first = checkpointer.resume()
    with checkpointer:
        checkpointer.step(num_steps)
    print(f"from {first}, saved {step_record.own.read().checkpoint_step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except errors.HulkError as error:
        sys.exit(errors.report(error))
