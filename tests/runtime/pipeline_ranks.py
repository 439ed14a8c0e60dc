"""One rank that runs the cases of a folder, one after the other, and saves what came of them.

A case is a schedule with the samples of each micro-batch of each replica.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from hulk_runtime.errors import HulkError, report
from hulk_runtime.pipeline.executor import Pipeline
from hulk_runtime.pipeline.grid import Grid
from hulk_runtime.plan import pipeline_schedule
from pipeline_cases import given, keep
from pipeline_model import NUM_STEPS, Momentum, batch, model_of, named


def train(pipeline, shares):
    optimizer = Momentum(pipeline.parameters())
    losses = []
    for step in range(NUM_STEPS):
        result = pipeline.step(batch(step, sum(map(sum, shares))), shares)
        losses.append(result.loss)
        optimizer.step()
    gradients, parameters = (named(pipeline.modules, gradients) for gradients in (True, False))
    logs = pipeline.gather(result.log)
    return {"losses": losses, "logs": logs, "gradients": gradients, "parameters": parameters}


def run(case):
    schedule = pipeline_schedule.read(case["schedule"])
    shares = case["shares"]
    rings = tuple(map(tuple, case["rings"])) if "rings" in case else None
    grid = Grid(len(shares), schedule.num_devices, rings=rings)
    pipeline = Pipeline(schedule, grid, model_of(schedule), lines_apart=case.get("lines_apart", False))
    if schedule.is_training:
        found = train(pipeline, shares)
    else:
        results = pipeline.infer(batch(0, sum(map(sum, shares))), shares)
        found = {"results": [(samples, values[0]) for samples, values in results]}
    pipeline.close()
    return found


def go_on(folder):
    """Steps without an end, until one rank is gone."""
    case = next(iter(given(folder).values()))
    schedule, silence_s = pipeline_schedule.read(case["schedule"]), float(os.environ["SILENCE_S"])
    pipeline = Pipeline(schedule, Grid(1, 4), model_of(schedule), silence_s=silence_s)
    for step in range(10**9):
        pipeline.step(batch(step, sum(map(sum, case["shares"]))), case["shares"])
        print(f"step={step}", flush=True)
        if str(step) == os.environ.get("DIES_AT"):
            pipeline._transfers.take = lambda receive: os.kill(os.getpid(), int(os.environ["SIGNAL"]))


def main():
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ.get("SILENCE_S", "120"))))
    if "DIES_AT" in os.environ:
        try:
            go_on(folder)
        except HulkError as error:
            sys.exit(report(error))
    cases = given(folder)
    found = {}
    for name, case in cases.items():
        print(f"case {name} {time.monotonic():.2f}", flush=True)
        found[name] = run(case)
    keep(folder, found)


if __name__ == "__main__":
    main()
