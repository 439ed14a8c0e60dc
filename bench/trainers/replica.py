"""A replica that trains apart: `replica.py torchft|hulk NUM_STEPS COMPUTE_S`; what rank 0 prints:

    ready                               all begin
    trained                             all steps are done
    look STEP SECONDS LOSS              what all replicas have in common right after a merge, in nats per byte of other
                                        text; seconds since the first round's end, by when both ways have connected

A small GPT really trains, on a step's own sequences; an emulated accelerator takes `COMPUTE_S` for a step in all.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import hulk
import torch
import torch.distributed as dist
from hulk_runtime.examples import text
from hulk_runtime.examples.byte_gpt import ByteTask
from hulk_runtime.examples.gpt_model import Gpt

from bench.diloco.modes import TRAINED

SYNC_EVERY, FRAGMENTS, DELAY, MIXING = 20, 4, 3, 0.5
TRAINED_HERE = replace(TRAINED["1m"], num_ranks=3)
HELD_OUT_BYTES, NUM_HELD_OUT = 400_000, 10
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9
STORE_PORT, LIGHTHOUSE_PORT, REPLICA_PORT = 29510, 29511, 29512
MERGED = {"hulk": DELAY, "torchft": 0}
"""After which step of a round a fragment has just been merged: torchft counts back from a round's end."""
TIMEOUT = timedelta(seconds=60)

Shared = Callable[[], dict[str, torch.Tensor]]
"""A copy of what all replicas have in common."""


class Meeting:
    """Where ranks wait for one another, whoever trains them."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.store = dist.TCPStore(  # type: ignore[attr-defined]  # public, but not in torch's __all__
            os.environ["MASTER_ADDR"], STORE_PORT, self.size, self.rank == 0, TIMEOUT
        )

    def wait(self, what: str) -> None:
        """Until all have come here."""
        if self.store.add(what, 1) == self.size:
            self.store.set(f"all {what}", "")
        self.store.wait([f"all {what}"], timedelta(minutes=10))

    def leave(self) -> None:
        """The rank that has the store goes last."""
        self.wait("left")
        if self.rank == 0:
            self.store.wait(["all gone"], timedelta(minutes=10))
        elif self.store.add("gone", 1) == self.size - 1:
            self.store.set("all gone", "")


def fragments(model: Gpt) -> list[torch.nn.Module]:
    """FRAGMENTS, of one block each."""
    first, *between, last = model.blocks
    edges = (model.token, model.position, first), *((block,) for block in between), (last, model.norm)
    return [torch.nn.ModuleList(modules) for modules in edges]


def outer(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    """DiLoCo's own."""
    return torch.optim.SGD(parameters, lr=OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True)


@contextlib.contextmanager
def by_hulk(model: Gpt, optimizer: torch.optim.Optimizer, meeting: Meeting) -> Iterator[Shared]:
    """Over the planned flows, as an instrumented script gets them."""
    dist.init_process_group("gloo")
    with hulk.DiLoCo(
        model,
        optimizer,
        sync_every=SYNC_EVERY,
        fragments=fragments(model),
        delay=DELAY,
        mixing=MIXING,
        outer=outer,
        compression="none",
    ) as diloco:
        yield lambda: {
            name: values.clone() for part in diloco.state_dict()["fragments"] for name, values in part["global"].items()
        }
    dist.destroy_process_group()


@contextlib.contextmanager
def by_torchft(model: Gpt, optimizer: torch.optim.Optimizer, meeting: Meeting) -> Iterator[Shared]:
    """A replica group of one rank; the lighthouse is in rank 0's process."""
    from torchft.coordination import LighthouseServer
    from torchft.local_sgd import DiLoCo
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo

    own, first = os.environ["ADDRESSES"].split(",")[meeting.rank], os.environ["MASTER_ADDR"]
    lighthouse = None
    if meeting.rank == 0:
        lighthouse = LighthouseServer(bind=f"0.0.0.0:{LIGHTHOUSE_PORT}", min_replicas=meeting.size)
    store = dist.TCPStore(own, REPLICA_PORT, 1, True, TIMEOUT)  # type: ignore[attr-defined]  # as above
    meeting.wait("lighthouse")
    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT),
        load_state_dict=None,
        state_dict=None,
        min_replica_size=meeting.size,
        use_async_quorum=False,
        init_sync=False,  # models begin the same
        rank=0,
        world_size=1,
        store_addr=own,
        store_port=store.port,
        hostname=own,
        lighthouse_addr=f"http://{first}:{LIGHTHOUSE_PORT}",
        replica_id=f"replica-{meeting.rank}",
    )
    parts, names = fragments(model), {id(values): name for name, values in model.named_parameters()}
    with DiLoCo(
        manager,
        parts,
        optimizer,
        [outer(list(part.parameters())) for part in parts],
        sync_every=SYNC_EVERY,
        use_bucketization=True,
        fragment_sync_delay=DELAY,
        fragment_update_alpha=MIXING,
    ) as diloco:
        yield lambda: {
            names[id(values)]: fragment.original_parameters[name].clone()
            for part, fragment in zip(parts, diloco._fragments, strict=True)
            for name, values in part.named_parameters()
        }
    meeting.wait("end")
    manager.shutdown()
    if lighthouse is not None:
        lighthouse.shutdown()


def main() -> None:
    """Train, then see what each look was worth."""
    way, num_steps, compute_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    source, meeting = text.standard_library_source(), Meeting()
    task = ByteTask(TRAINED_HERE.plan(), torch.device("cpu"), TRAINED_HERE.learning_rate, source[:-HELD_OUT_BYTES])
    model, share = task.module, TRAINED_HERE.share
    optimizer = torch.optim.AdamW(model.parameters(), lr=TRAINED_HERE.learning_rate, weight_decay=0.01)
    sequences = range(meeting.rank * share, (meeting.rank + 1) * share)
    looks: list[tuple[int, float, dict[str, torch.Tensor]]] = []
    with {"hulk": by_hulk, "torchft": by_torchft}[way](model, optimizer, meeting) as shared:
        meeting.wait("begin")
        _say(meeting, "ready")
        for step in range(1, num_steps + 1):
            started_s = time.monotonic()
            optimizer.zero_grad()
            torch.autograd.backward(task.loss(step, sequences))
            time.sleep(max(0.0, started_s + compute_s - time.monotonic()))
            optimizer.step()
            if step == SYNC_EVERY + DELAY:
                connected_s = time.monotonic()
            if step > SYNC_EVERY and step % SYNC_EVERY == MERGED[way]:
                looks.append((step, time.monotonic(), shared()))
        meeting.wait("trained")
        _say(meeting, "trained")
    judge = ByteTask(TRAINED_HERE.plan(), torch.device("cpu"), 0.0, source[-HELD_OUT_BYTES:])
    for step, at_s, values in looks if meeting.rank == 0 else []:
        print(f"look {step} {at_s - connected_s:.4f} {_loss(judge, values):.5f}", flush=True)
    meeting.leave()


@torch.no_grad()
def _loss(judge: ByteTask, values: dict[str, torch.Tensor]) -> float:
    judge.module.load_state_dict(values)
    every = range(TRAINED_HERE.plan().training.global_batch)
    return sum(float(judge.loss(step, every)) for step in range(NUM_HELD_OUT)) / NUM_HELD_OUT


def _say(meeting: Meeting, line: str) -> None:
    if meeting.rank == 0:
        print(line, flush=True)


if __name__ == "__main__":
    main()
