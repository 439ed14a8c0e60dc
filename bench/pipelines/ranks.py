"""One rank of the bundled GPT in a pipeline, by Hulk and by torch.distributed.pipelining, in turns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from hulk_runtime.examples.gpt_model import initialized
from hulk_runtime.examples.gpt_stages import gpt_layers, num_layers
from hulk_runtime.pipeline.executor import Pipeline
from hulk_runtime.pipeline.grid import Grid
from hulk_runtime.pipeline.micro_batches import Tensors
from hulk_runtime.pipeline.stages import Layers, cut, layers
from hulk_runtime.plan import pipeline_schedule
from hulk_runtime.plan.wire import Model
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional

MODEL = Model(layers=6, hidden=256, heads=4, sequence_length=128, vocabulary=256)
BATCH = 16
TORCHS = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}


def run(rank: int, num_ranks: int, port: int, schedules: Mapping[str, dict[str, Any]], num_rounds: int) -> Any:
    """Seconds of every step, by schedule and by who ran it; steps of both alternate, the first of each is left out."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(num_ranks))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(MODEL.vocabulary, (BATCH, MODEL.sequence_length + 1), generator=generator)
    of = Tensors(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), mean_loss)
    found: dict[str, dict[str, list[float]]] = {}
    for name, schedule in schedules.items():
        ways = {"hulk": hulk(schedule, of), "torch": by_torch(TORCHS[name], schedule["numMicroBatches"], of)}
        found[name] = {way: [] for way in ways}
        for number in range(num_rounds + 1):
            for way, step in ways.items():
                seconds = timed(step)
                if number:
                    found[name][way].append(seconds)
    dist.barrier()
    dist.destroy_process_group()
    return found


def mean_loss(logits_BSV: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:  # noqa: N803 - shape suffixes
    """In nats per byte."""
    return functional.cross_entropy(logits_BSV.flatten(0, 1), targets_BS.flatten())


def timed(step: Callable[[], object]) -> float:
    """Seconds until all ranks are done."""
    dist.barrier()
    started = time.perf_counter()
    step()
    dist.barrier()
    return time.perf_counter() - started


def hulk(schedule: dict[str, Any], of: Tensors) -> Callable[[], object]:
    """A step by Hulk."""
    read = pipeline_schedule.read(schedule)
    ranges = cut(num_layers(MODEL), [str(device) for device in range(read.num_devices)])
    pipeline = Pipeline(read, Grid(1, read.num_devices), layers(gpt_layers(initialized(MODEL)), ranges))
    return lambda: pipeline.step(of, pipeline.even_shares(BATCH))


class _One(nn.Module):
    """A stage as torch wants it: one tensor in, one out."""

    def __init__(self, stage: Layers) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (output,) = self.stage(x)
        assert isinstance(output, torch.Tensor)
        return output


def by_torch(kind: type, num_micro_batches: int, of: Tensors) -> Callable[[], object]:
    """The same by torch.distributed.pipelining."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    ranges = cut(num_layers(MODEL), [str(device) for device in range(num_ranks)])
    module = _One(Layers(gpt_layers(initialized(MODEL)), ranges[str(rank)]))
    stage = PipelineStage(module, rank, num_ranks, torch.device("cpu"))
    running = kind(stage, num_micro_batches, loss_fn=mean_loss)
    last = rank == num_ranks - 1

    def step() -> None:
        module.zero_grad()
        inputs = (of.data,) if rank == 0 else ()
        running.step(*inputs, target=of.targets if last else None, losses=[] if last else None)

    return step
