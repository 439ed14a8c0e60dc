"""One optimizer update of a model that is cut into stages: alone, to measure this machine, or with all ranks, to train.

What the ranks tell each other in each step (losses, wishes, timings) goes directly between all of them as soon as a
rank has computed, while gradients are still summed: it is one way over the longest link, and mostly there when it is
needed.
"""

import json
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch import nn

from hulk_runtime.collective.process_group import Group, lost_peers_inside
from hulk_runtime.collective.tcp_info import LinkSample, Traffic
from hulk_runtime.errors import ConfigurationError, HulkError
from hulk_runtime.names import ENV_PIPELINE_LOG
from hulk_runtime.pipeline import event_log
from hulk_runtime.pipeline.executor import Pipeline, Result
from hulk_runtime.pipeline.grid import Grid
from hulk_runtime.pipeline.micro_batches import Values, even_shares
from hulk_runtime.pipeline.stages import Layers, Part, layers
from hulk_runtime.pipeline.stages import Model as StageMaker
from hulk_runtime.plan.wire import Layout, Plan
from hulk_runtime.training.bulletin import Bulletin
from hulk_runtime.training.data_parallel import RankReport, StepReport
from hulk_runtime.training.divided_tensor import DividedState, divisions
from hulk_runtime.training.layered_model import LayeredModel, own_of, ranges_of, ties_of
from hulk_runtime.training.optimizers import OptimizerOfParts
from hulk_runtime.training.stepper import AUTOCAST, LossScale, Timing

FIRST_LOOK: Final = 2
LOOK_EVERY: Final = 5
"""Steps whose logs the ranks show each other."""

_FIELDS: Final = 7  # step, loss, stop, save, compute_s, rtt_s, bandwidth_bytes_per_s


class StagedTask(Protocol):
    """What is trained in stages: the model as a list of layers, what its first one gets, and the last one's loss."""

    @property
    def learning_rate(self) -> float:
        """Step size of the optimizer."""

    def whole(self) -> LayeredModel:
        """A new model, with the same parameters on every rank."""

    def inputs(self, step: int, sequences: range) -> Values:
        """Of sequences, numbered within the step's global batch. Must not depend on the rank."""

    def loss_of(self, step: int, outputs: Values, sequences: range) -> torch.Tensor:
        """Mean loss over `sequences`, by what the last layer gives out."""


def divided_layers(task: Any, layout: Layout, whole: LayeredModel, ranges: Mapping[str, range]) -> StageMaker:
    """The stages of which tensor ranks have parts. Raises ConfigurationError where the task cannot be divided."""
    if not all(hasattr(task, name) for name in ("divided_layer", "parts_of")):
        raise ConfigurationError(
            f"the plan has {layout.pipeline} stages of {layout.tensor} tensor ranks, and the program's task cannot be "
            f"divided: it lacks divided_layer or parts_of"
        )

    def make(part: Part) -> nn.Module:
        of, numbers = list(whole.layers), ranges[part.stage]
        for number in numbers:
            of[number] = task.divided_layer(of[number], part.mesh)
        return Layers(of, numbers)

    return make


@dataclass(frozen=True, slots=True)
class StepBatch:
    """A task's batch of one step, as pipelines want it."""

    task: StagedTask
    step: int

    def inputs(self, stage: str, samples: range) -> Values:
        """Of the first stage."""
        return self.task.inputs(self.step, samples)

    def loss(self, stage: str, outputs: Values, samples: range) -> torch.Tensor:
        """Of the last one."""
        return self.task.loss_of(self.step, outputs, samples)


class StageStepper:
    """Runs steps of one task as the plan's pipeline says.

    In the folder `orders` every rank writes down what it did when, a line for each step. Raises ConfigurationError
    where the task cannot be cut so.
    """

    def __init__(
        self, plan: Plan, group: Group, task: Any, metrics_port: int, silence_s: float, orders: str = ""
    ) -> None:
        told = plan.pipeline
        assert told is not None
        if not all(hasattr(task, name) for name in ("whole", "inputs", "loss_of")):
            raise ConfigurationError(
                f"the plan has {len(told.stages)} stages, and the program's task is no list of layers: "
                f"it lacks whole, inputs or loss_of"
            )
        if plan.training.precision == "fp16":
            raise ConfigurationError("fp16 in stages: gradients of all stages would need one scale; use bf16 or fp32")
        if orders and not Path(orders).is_dir():
            raise ConfigurationError(f"{ENV_PIPELINE_LOG}: {orders} is no folder")
        self._orders = Path(orders) / f"rank-{group.rank}.jsonl" if orders else None
        self._group, self._task, self._last = group, task, plan.training.steps
        self._autocast = AUTOCAST[plan.training.precision]
        self._traffic = Traffic(group.peers, metrics_port)
        self._shares = [even_shares(share, 1, told.schedule.num_micro_batches)[0] for share in plan.shares]
        layout = plan.layout
        grid = Grid(layout.data, layout.pipeline, layout.tensor, layout.shard, told.rings or None)
        whole = task.whole()
        ranges = ranges_of(told, len(whole.layers))
        self.own, ties = own_of(whole, ranges), ties_of(whole, ranges)
        model = layers(whole.layers, ranges) if layout.tensor == 1 else divided_layers(task, layout, whole, ranges)
        on = str(group.device)
        self.pipeline = Pipeline(told.schedule, grid, model, ties, on, silence_s=silence_s, precision=self._autocast)
        parameters = dict(self.pipeline.named_parameters())
        self.optimizer = OptimizerOfParts(plan.training.optimizer, parameters)
        self._next_rank = (group.rank - layout.ranks_apart) % group.world_size
        self.divided = self._divided(task, parameters)
        self.scale = LossScale(plan.training.precision)
        self._board = Bulletin(group, _FIELDS)
        self._link, self._update_s, self._result = LinkSample(0.0, 0.0), 0.0, Result(0.0, event_log.Log(0))

    @property
    def num_parameters(self) -> int:
        """Of the whole model."""
        return sum(num for _, num in self.own.of_model)

    @property
    def buckets(self) -> tuple[int, int]:
        """Each stage's gradients are summed at once."""
        return 1, 4 * sum(values.numel() for values in self.optimizer.vector(0).values())

    @property
    def sent_bytes(self) -> int:
        """Bytes this rank has sent to the others, up to its last completed step."""
        return self._traffic.sent_bytes

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters of this rank's stage before its ranks divide it, in the order of its checkpoint's part."""
        return self.own.in_stages[self.pipeline.place.device]

    def set_timeout(self, seconds: float) -> None:
        """As `Group.set_timeout`, of all its groups."""
        self._group.set_timeout(seconds)
        self.pipeline.set_timeout(seconds)

    def part(self) -> None:
        """As `Group.part`."""
        self._group.part()

    @property
    def summing_group(self) -> Group:
        """All ranks, of which each stage's sum in groups of their own."""
        return self._group

    def goes_on(self, is_wanted: bool) -> bool:
        """While all ranks of the stage want to."""
        return self.divided.group.holds_on_all(is_wanted)

    def alone(self) -> float:
        """Seconds this machine needs for its stage's blocks of a step and the update; changes no parameter."""
        with self._precision(), lost_peers_inside():
            computed_s = self.pipeline.alone(StepBatch(self._task, 1), self._shares)
        for parameter in self.pipeline.parameters():
            parameter.grad = None
        started = self._now()
        self.optimizer.update(step=1, learning_rate=0.0)
        return computed_s + self._now() - started

    def together(self, step: int, stop: bool, save: bool) -> tuple[Timing, StepReport]:
        """One step of all ranks, of which any may wish to stop and rank 0 to save the state after it.

        Raises PeerLostError with the parameters still those of the last step of all.
        """
        started = self._now()
        self._board.expect()

        def computed(so_far: Result) -> None:
            # Since the ranks met, this one has updated its parameters: it computed.
            seconds = self._update_s + sum(event.seconds for event in so_far.log.of("run"))
            self._tell(RankReport(step, seconds, self._link), so_far.loss, stop, save)
            if step < self._last:
                self.pipeline.ahead(StepBatch(self._task, step + 1), self._shares)

        with self._precision():
            result = self._result = self.pipeline.compute(StepBatch(self._task, step), self._shares, computed)
        result.log.events.insert(0, event_log.Event("run", None, 0, 0.0, self._update_s))
        report = self._hear(step)
        compute_s = report.ranks[self._group.rank].compute_s
        self.pipeline.met()
        communicated = self._now()
        self.optimizer.update(step, self._task.learning_rate)
        link = self._traffic.look(self._next_rank)
        if self.pipeline.place.device:  # to whom gradients go; the first stage's next rank gets little
            self._link = link
        ended = self._now()
        self._update_s = ended - communicated
        if self._orders:
            self._write_down(self._orders, step)
        if step % LOOK_EVERY == FIRST_LOOK:
            report = replace(report, stages=self._look(result.log))
        return Timing(ended - started, compute_s, ended - started - compute_s), report

    def _divided(self, task: Any, parameters: Mapping[str, nn.Parameter]) -> DividedState:
        """The stage's state: which part of it this one of its ranks has."""
        grid, place, group = self.pipeline.grid, self.pipeline.place, self._group
        number = place.shard * grid.num_tensor + place.tensor
        cell = Group(number, grid.width, group.backend, group.device, {}, process_group=self.pipeline.inside)
        of = {name: task.parts_of(name) if grid.num_tensor > 1 else (name,) for name in self.names}
        found = divisions(list(parameters.values()), grid.num_shards, grid.num_tensor)
        return DividedState(cell, (place.shard, place.tensor), of, dict(zip(parameters, found, strict=True)))

    def _tell(self, mine: RankReport, loss: float, stop: bool, save: bool) -> None:
        own = [mine.step, loss, stop, save, mine.compute_s, mine.link.rtt_s, mine.link.bandwidth_bytes_per_s]
        self._board.tell(torch.tensor(own, dtype=torch.float64))

    def _hear(self, step: int) -> StepReport:
        """Every rank's report. The last step is always saved, and so is the one after which all stop."""
        rows = self._board.hear(self.pipeline.patience).tolist()
        others = {rank: round(row[0]) for rank, row in enumerate(rows) if round(row[0]) != step}
        if others:
            raise HulkError(f"at step {step} other ranks are at another step: {others}")
        ranks = tuple(RankReport(step, row[4], LinkSample(row[5], row[6])) for row in rows)
        stops = any(row[2] for row in rows)
        saves = stops or step >= self._last or any(row[3] for row in rows)
        return StepReport(sum(row[1] for row in rows), stops, ranks, saves)

    def _look(self, own: event_log.Log) -> tuple[event_log.Parts, ...]:
        """Where the time of the step went on each stage of this replica, all of them until the last is done."""
        packed = torch.frombuffer(bytearray(event_log.packed(own)), dtype=torch.uint8)
        lengths = self._group.exchange(torch.tensor([len(packed)])).flatten().tolist()
        padded = nn.functional.pad(packed, (0, max(lengths) - len(packed)))
        rows = self._group.exchange(padded)
        grid, place = self.pipeline.grid, self.pipeline.place
        ranks = [grid.rank(replace(place, device=device)) for device in range(grid.num_devices)]
        logs = [event_log.unpacked(bytes(rows[rank][: lengths[rank]].tolist())) for rank in ranks]
        self.pipeline.met()
        return event_log.until_the_last(event_log.parts(logs))

    def _write_down(self, orders: Path, step: int) -> None:
        ran, blocks = self._result.log.of("run"), self.pipeline.schedule.blocks
        turns = [
            [blocks[e.of].name, e.micro_batch, round(e.start_s, 6), round(e.end_s, 6)]
            for e in ran
            if isinstance(e.of, int)
        ]
        with orders.open("a") as file:
            file.write(json.dumps({"step": step, "device": self.pipeline.place.device, "turns": turns}) + "\n")

    def _precision(self) -> Any:
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self._group.device.type, self._autocast)

    def _now(self) -> float:
        if self._group.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()
