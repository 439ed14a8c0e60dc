"""One rank: its part of every way, the same values from all of them, and what each takes."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from hulk_runtime.pipeline.executor import Pipeline
from hulk_runtime.pipeline.grid import Grid
from hulk_runtime.pipeline.micro_batches import as_values
from hulk_runtime.pipeline.stages import Part
from hulk_runtime.plan import pipeline_schedule
from hulk_runtime.plan.wire import Model
from torch import nn

from bench.shapes.accelerator import Accelerator
from bench.shapes.batches import LayersOf, Pairs, Text, gpt_layers, stages_of, tokens, tower_layers
from bench.shapes.ways import K, Way

NUM_PROBES = 21
NUM_UPDATES = 2
RATE = 0.05
TOLERANCE = 1e-4
MAX_LATE_SHARE = 0.01
"""Of a step, by which a rank's processor may have been later than its accelerator; else it does not count."""

MOST_TRIES = 3
"""Times the rounds that are wanted, of which some may not count."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A step, or an inference, of one way."""

    way: str
    round: int
    predicted_s: float
    observed_s: float
    late_s: float
    num_parameters: int
    """Of the rank that has most."""

    @property
    def counts(self) -> bool:
        """Whether accelerators were emulated."""
        return self.late_s <= MAX_LATE_SHARE * self.observed_s


def start(rank: int, num_ranks: int, port: int) -> None:
    """Join the others."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(num_ranks))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo")


@dataclass(frozen=True, slots=True)
class Running:
    """This rank's part of a way, and how it is run once."""

    way: Way
    pipeline: Pipeline
    once: Callable[[], object]


def told(do: Callable[..., Any], *about: Any) -> tuple[int, Any]:
    """Which rank this is, and what it answers."""
    return dist.get_rank(), do(*about)


def sums_s(model: Model, nums_samples: Sequence[int]) -> dict[int, float]:
    """What a sum of so many samples' activations takes."""
    found = {}
    for num in nums_samples:
        values = torch.ones(num, model.sequence_length, model.hidden)
        each = [timed(partial(dist.all_reduce, values)) for _ in range(NUM_PROBES)]
        found[num] = statistics.median(each)
        dist.barrier()
    return found


def timed(do: Callable[[], object]) -> float:
    """Seconds that this rank takes once all have come."""
    dist.barrier()
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


def train(model: Model, ways: Sequence[Way], num_samples: int, flops_per_s: float, num_rounds: int) -> list[Timed]:
    """Steps of all ways in turns. RuntimeError where their losses are not those of one process."""
    accelerator = Accelerator(flops_per_s)
    layers_of = gpt_layers(model, accelerator)
    given = tokens(model, num_samples, seed=0)
    wanted = losses_alone(gpt_layers(model, Accelerator(float("inf"))), given)
    runs: list[Running] = []
    for way in ways:
        pipeline = pipeline_of(way, layers_of)
        text, shares = Text(given, pipeline.modules), pipeline.even_shares(num_samples)
        found = []
        for _ in range(NUM_UPDATES):
            found.append(torch.tensor(pipeline.step(text, shares).loss))
            update(pipeline.modules.values())
        require_same(way.name, torch.stack(found), wanted)
        runs.append(Running(way, pipeline, partial(pipeline.step, text, shares)))
    return in_turns(runs, accelerator, num_rounds)


def infer(
    model: Model, num_tower: int, ways: Sequence[Way], num_samples: int, flops_per_s: float, num_rounds: int
) -> list[Timed]:
    """Inferences of all ways in turns. RuntimeError where their results are not those of one process."""
    accelerator = Accelerator(flops_per_s)
    both = tokens(model, num_samples, seed=1), tokens(model, num_samples, seed=2)
    alone = tower_layers(model, num_tower, Accelerator(float("inf")), one_by_one=True)(Part("all"))
    wanted = results_alone(alone, Pairs(both, ()), num_samples)
    runs: list[Running] = []
    for way in ways:
        pipeline = pipeline_of(way, tower_layers(model, num_tower, accelerator, one_by_one=way.name != K))
        pairs, shares = Pairs(both, ("0", "2") if way.name == K else ()), pipeline.even_shares(num_samples)
        results = pipeline.infer(pairs, shares)
        if results:
            require_same(way.name, torch.cat([values[0] for _, values in results]), wanted)
        runs.append(Running(way, pipeline, partial(pipeline.infer, pairs, shares)))
    return in_turns(runs, accelerator, num_rounds)


def pipeline_of(way: Way, layers_of: LayersOf) -> Pipeline:
    """This rank's part of a way."""
    schedule = pipeline_schedule.read(way.schedule)
    return Pipeline(schedule, Grid(1, schedule.num_devices), stages_of(layers_of, way.ranges))


def update(modules: Iterable[nn.Module]) -> None:
    """Plain gradient descent, so that the next loss shows whether gradients are right."""
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                assert parameter.grad is not None
                parameter.sub_(RATE * parameter.grad)


def losses_alone(layers_of: LayersOf, given: torch.Tensor) -> torch.Tensor:
    """Those of one process that has all layers."""
    module = stages_of(layers_of, {"all": range(len(layers_of(Part("all"))))})(Part("all"))
    text, found = Text(given, {"all": module}), []
    for _ in range(NUM_UPDATES):
        module.zero_grad()
        loss = text.loss("all", module(*text.inputs("all", range(len(given)))), range(len(given)))
        loss.backward()  # type: ignore[no-untyped-call]
        found.append(loss.detach())
        update([module])
    return torch.stack(found)


@torch.no_grad()
def results_alone(layers: Sequence[nn.Module], pairs: Pairs, num_samples: int) -> torch.Tensor:
    """What one process that has all layers gives out."""
    values = pairs.inputs("all", range(num_samples))
    for layer in layers:
        values = as_values(layer(*values))
    return values[0]


def require_same(name: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Nothing where both are the same but for rounding; else RuntimeError: a wrong program must not win."""
    error = float((found - wanted).abs().max() / wanted.abs().max())
    if not error <= TOLERANCE:
        raise RuntimeError(f"{name}: {error:g} off what one process computes, more than {TOLERANCE:g}")


def in_turns(runs: Sequence[Running], accelerator: Accelerator, num_rounds: int) -> list[Timed]:
    """Each way once a round, until each has as many that count as are wanted, or there were too many tries."""
    found: list[Timed] = []
    for number in range(MOST_TRIES * num_rounds):
        for running in runs:
            accelerator.late_s = 0.0
            observed_s = timed(running.once)
            num = sum(parameter.numel() for parameter in running.pipeline.parameters())
            most = torch.tensor([observed_s, accelerator.late_s, num], dtype=torch.float64)
            dist.all_reduce(most, dist.ReduceOp.MAX)
            way, (observed_s, late_s, num) = running.way, most.tolist()
            found.append(Timed(way.name, number, way.predicted_s, observed_s, late_s, int(num)))
        if all(sum(one.counts for one in found if one.way == run.way.name) >= num_rounds for run in runs):
            break
    for running in runs:
        running.pipeline.close()
    return found
