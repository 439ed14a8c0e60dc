"""One rank that trains the bundled GPT in every case of a folder, and saves what came of it."""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from hulk_runtime.errors import HulkError, report
from hulk_runtime.examples.gpt_divided import parts_of
from hulk_runtime.examples.gpt_model import initialized
from hulk_runtime.examples.gpt_stages import gpt_layers, gpt_stages, num_layers, ties
from hulk_runtime.pipeline import checkpoint
from hulk_runtime.pipeline.executor import Pipeline
from hulk_runtime.pipeline.grid import Grid
from hulk_runtime.pipeline.micro_batches import Tensors
from hulk_runtime.pipeline.stages import cut, layers
from hulk_runtime.plan import pipeline_schedule
from hulk_runtime.plan.wire import Model
from pipeline_cases import given, keep
from pipeline_model import Momentum

MODEL = Model(layers=6, hidden=8, heads=2, sequence_length=5, vocabulary=13, feed_forward=12)
NUM_SAMPLES = 12
NUM_STEPS = 3


def batch(step):
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(MODEL.vocabulary, (NUM_SAMPLES, MODEL.sequence_length + 1), generator=generator)
    return Tensors(tokens[:, :-1], tokens[:, 1:], mean_loss)


def mean_loss(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def pipeline_of(case):
    schedule = pipeline_schedule.read(case["schedule"])
    stages = sorted({block.stage for block in schedule.blocks}, key=int)
    ranges = cut(num_layers(MODEL), stages)
    if case["kind"] == "list":
        model = layers(gpt_layers(initialized(MODEL).double()), ranges)
    else:
        model = gpt_stages(MODEL, ranges, torch.float64)
    grid = Grid(case.get("replicas", 1), schedule.num_devices, case.get("tensor", 1))
    return Pipeline(schedule, grid, model, ties(ranges))


def saved_apart(name, values):
    """Under the names of divided blocks, so that a checkpoint is the same whether blocks are divided or not."""
    parts = parts_of(name)
    if len(parts) == 1:  # as they are: of values that ranks divide, a chunk is a copy, and loading would miss them
        return {name: values}
    return dict(zip(parts, values.chunk(len(parts)), strict=True))


def train(pipeline, saved=None):
    """Steps from the newest checkpoint on; one is written behind each where the case has a folder for them."""
    optimizer = Momentum(pipeline.parameters())
    slots = {"velocity": optimizer.velocities}
    begin = checkpoint.newest(saved) if saved else None
    if begin is not None:
        checkpoint.load(saved, begin, pipeline.named_parameters(), slots, saved_apart)
    losses = {}
    for step in range(begin or 0, NUM_STEPS):
        if str(step) == os.environ.get("DIES_AT"):
            pipeline._transfers.take = lambda receive: os.kill(os.getpid(), signal.SIGKILL)
        losses[step] = pipeline.step(batch(step), pipeline.even_shares(NUM_SAMPLES)).loss
        optimizer.step()
        if saved:
            checkpoint.save(saved, step + 1, pipeline.named_parameters(), slots, saved_apart)
    return losses


def whole(values):
    return values.full_tensor() if hasattr(values, "full_tensor") else values


def named(pipeline, kind):
    return {
        name: whole(parameter.grad if kind == "gradients" else parameter.detach()).clone()
        for module in pipeline.modules.values()
        for name, parameter in module.named_parameters()
    }


def main():
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    found = {}
    for name, case in given(folder).items():
        print(f"case {name}", flush=True)
        pipeline = pipeline_of(case)
        try:
            losses = train(pipeline, folder / case["saved"] if "saved" in case else None)
        except HulkError as error:
            sys.exit(report(error))
        found[name] = {"losses": losses, **{kind: named(pipeline, kind) for kind in ("gradients", "parameters")}}
        pipeline.close()
    keep(folder, found)


if __name__ == "__main__":
    main()
