"""One rank of a pipeline that torch.distributed.pipelining runs, and then Hulk, with the same schedule and model."""

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from hulk_runtime.pipeline.executor import Pipeline
from hulk_runtime.pipeline.grid import Grid
from hulk_runtime.pipeline.stages import Part
from hulk_runtime.plan import pipeline_schedule
from pipeline_cases import given, keep
from pipeline_model import NUM_STEPS, Momentum, batch, model_of, named
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

NUM_SAMPLES = 8


def torchs(case, schedule):
    """The stages of this rank, in torch's pipeline."""
    make = model_of(schedule)
    num_stages = len({block.stage for block in schedule.blocks})
    numbers = range(dist.get_rank(), num_stages, dist.get_world_size())
    modules = {str(number): make(Part(str(number))) for number in numbers}
    stages = [PipelineStage(modules[str(n)], n, num_stages, torch.device("cpu")) for n in numbers]
    kinds = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}
    given = stages if case["kind"] == "interleaved" else stages[0]
    return modules, kinds[case["kind"]](given, schedule.num_micro_batches, loss_fn=torch.nn.functional.mse_loss)


def by_torch(case, schedule):
    modules, running = torchs(case, schedule)
    optimizer = Momentum(parameter for module in modules.values() for parameter in module.parameters())
    last = dist.get_rank() == dist.get_world_size() - 1
    losses, seconds = [], []
    for step in range(NUM_STEPS):
        for module in modules.values():
            module.zero_grad()
        of, each = batch(step, NUM_SAMPLES), []
        started = time.perf_counter()
        inputs = (of.data,) if dist.get_rank() == 0 else ()
        running.step(*inputs, target=of.targets if last else None, losses=each if last else None)
        seconds.append(time.perf_counter() - started)
        losses.append(float(torch.stack(each).mean().detach()) if last else None)
        optimizer.step()
    return {"losses": losses, "seconds": seconds, "gradients": named(modules, gradients=True)}


def by_hulk(case, schedule):
    pipeline = Pipeline(schedule, Grid(1, schedule.num_devices), model_of(schedule))
    optimizer = Momentum(pipeline.parameters())
    losses, seconds = [], []
    for step in range(NUM_STEPS):
        started = time.perf_counter()
        losses.append(pipeline.step(batch(step, NUM_SAMPLES), pipeline.even_shares(NUM_SAMPLES)).loss)
        seconds.append(time.perf_counter() - started)
        optimizer.step()
    pipeline.close()
    return {"losses": losses, "seconds": seconds, "gradients": named(pipeline.modules, gradients=True)}


def main():
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    found = {}
    for name, case in given(folder).items():
        print(f"case {name}", flush=True)
        schedule = pipeline_schedule.read(case["schedule"])
        found[name] = {"torch": by_torch(case, schedule), "hulk": by_hulk(case, schedule)}
    keep(folder, found)


if __name__ == "__main__":
    main()
