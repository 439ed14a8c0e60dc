"""One optimizer update, alone (to measure this machine) or with all ranks (to train)."""

import abc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from hulk_runtime.collective.process_group import Group
from hulk_runtime.collective.staging import AllReduce
from hulk_runtime.collective.tcp_info import LinkSample, Traffic
from hulk_runtime.errors import HulkError
from hulk_runtime.plan.wire import Plan
from hulk_runtime.training.data_parallel import FlatGradients, FlatModel, RankReport, StepReport, SumSample, Tail
from hulk_runtime.training.optimizers import OPTIMIZERS

AUTOCAST: Final = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
FIRST_SCALE: Final = 2.0**16
STEPS_PER_DOUBLING: Final = 200


class Task(Protocol):
    """What is trained: a module, and the loss of any sequences of any step's global batch."""

    @property
    def module(self) -> torch.nn.Module:
        """What is trained."""

    @property
    def learning_rate(self) -> float:
        """Step size of the optimizer."""

    def loss(self, step: int, sequences: range) -> torch.Tensor:
        """Mean loss over `sequences`, numbered within the step's global batch. Must not depend on the rank."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One rank's seconds of a step. Communication is what backward could not hide."""

    step_s: float
    compute_s: float
    communication_s: float


class LossScale:
    """Keeps fp16 gradients in range: halved when any overflowed (that step is skipped), doubled after 200 good steps.

    Every rank decides from the same summed gradients, so all decide alike. 1 for other precisions.
    """

    def __init__(self, precision: str) -> None:
        self._used = precision == "fp16"
        self.restart(FIRST_SCALE if self._used else 1.0)

    def restart(self, value: float) -> None:
        """Go on from a scale as if it were new."""
        self.value = value
        self._num_good = 0

    def unscale(self, gradients_N: torch.Tensor, of_all: Callable[[bool], bool] = bool) -> bool:
        """Divide in place by the scale; False when the step must be skipped.

        `of_all`: whether something holds on all ranks, where each has a part of the gradients.
        """
        if not self._used:
            return True
        gradients_N.div_(self.value)
        finite = of_all(bool(torch.isfinite(gradients_N).all()))
        self._num_good = self._num_good + 1 if finite else 0
        if not finite:
            self.value = max(1.0, self.value / 2)
        elif self._num_good % STEPS_PER_DOUBLING == 0:
            self.value *= 2
        return finite


class BatchStepper(abc.ABC):
    """What runs whole passes of a task: a rank's share of the batch forward and backward, then the sum over replicas.

    `wan` is the sum between regions, where the plan says how.
    """

    loss = math.nan
    """Of the global batch in the last step of all; nan before the first."""

    def __init__(
        self, plan: Plan, group: Group, flat: FlatGradients, wan: AllReduce | None, tail: Tail, metrics_port: int
    ) -> None:
        training = plan.training
        self._group, self._gradients, self._wan, self._tail = group, flat, wan, tail
        self._autocast = AUTOCAST[training.precision]
        self._traffic = Traffic(group.peers, metrics_port)
        self._next_rank = (group.rank - plan.layout.ranks_apart) % group.world_size
        self._divisor = training.global_batch
        self._members = frozenset(range(group.world_size))
        self._sum = SumSample()
        self._link = LinkSample(0.0, 0.0)
        self._update_s = 0.0
        self.scale = LossScale(training.precision)

    @property
    @abc.abstractmethod
    def learning_rate(self) -> float:
        """Step size of the optimizer."""

    @abc.abstractmethod
    def passes(self) -> Iterator[tuple[range, int]]:
        """The sequences of each pass over a step's share, and how many of them count."""

    @abc.abstractmethod
    def loss_of(self, step: int, sequences: range) -> torch.Tensor:
        """Mean loss over sequences of a step's global batch."""

    @abc.abstractmethod
    def unscale(self) -> bool:
        """Divide gradients by their scale; whether all ranks' are finite."""

    @abc.abstractmethod
    def update(self, step: int, learning_rate: float) -> None:
        """The optimizer's."""

    @property
    def buckets(self) -> tuple[int, int]:
        """How many sums of gradients a step has, and the bytes of the largest."""
        return self._gradients.num_buckets, self._gradients.bucket_bytes

    @property
    def sent_bytes(self) -> int:
        """Bytes this rank has sent to the others, up to its last completed step."""
        return self._traffic.sent_bytes

    def set_timeout(self, seconds: float) -> None:
        """As `Group.set_timeout`, of all its groups."""
        self._group.set_timeout(seconds)

    def part(self) -> None:
        """As `Group.part`, of all its groups."""
        self._group.part()

    @property
    def summing_group(self) -> Group:
        """In which gradients are summed between replicas."""
        return self._group

    def goes_on(self, is_wanted: bool) -> bool:
        """Whether those that measure together make another step alone."""
        return is_wanted

    def alone(self) -> float:
        """Seconds this machine needs for its share of a step, without other replicas; changes no parameter."""
        started = self._now()
        self._gradients.start()
        self._backward(step=1, together=False)
        computed_s = self._now() - started
        self._gradients.start()
        started = self._now()
        self.update(step=1, learning_rate=0.0)
        return computed_s + self._now() - started

    def together(self, step: int, stop: bool, save: bool) -> tuple[Timing, StepReport]:
        """One step of all ranks, of which any may wish to stop and rank 0 to save the state after it.

        Raises PeerLostError with `vectors` still those of the last step of all.
        """
        started = self._now()
        self._gradients.start()
        loss = self._backward(step, together=True)
        computed = self._now()
        compute_s = computed - started + self._update_s
        report = self._meet(self._tail.pack(loss, stop, RankReport(step, compute_s, self._link, self._sum), save))
        communicated = self._now()
        self._require_lockstep(step, report)
        if self.unscale():
            self.update(step, self.learning_rate)
        self.loss = report.loss
        self._look_at_links()
        ended = self._now()
        self._update_s = ended - communicated
        return Timing(ended - started, computed - started + self._update_s, communicated - computed), report

    def _meet(self, tail: torch.Tensor) -> StepReport:
        """The sum of all ranks' gradients and reports is there."""
        self._gradients.finish(tail)
        return self._tail.unpack(self._gradients.tail)

    def _backward(self, step: int, together: bool) -> float:
        """The sum of losses over this rank's sequences / `_divisor`; its gradients are in the flat buffer."""
        total = torch.zeros((), device=self._group.device, dtype=self._gradients.gradients_N.dtype)
        passes = list(self.passes())
        for index, (sequences, num_counted) in enumerate(passes):
            if together and index == len(passes) - 1:
                self._gradients.overlap()
            with torch.autocast(self._group.device.type, self._autocast, enabled=self._autocast is not None):
                loss = self.loss_of(step, sequences) * (num_counted / self._divisor)
            torch.autograd.backward(loss * self.scale.value)
            total += loss.detach()
        return float(total)

    def _look_at_links(self) -> None:
        """Between two all-reduces, so that bytes are those of whole steps; told to the others with the next step."""
        if self._group.world_size > 1:
            self._link = self._traffic.look(self._next_rank)
        if self._wan is not None:
            found = self._wan.collective.largest()
            self._sum = SumSample(found.num_bytes, found.seconds) if found else SumSample()

    def _now(self) -> float:
        if self._group.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def _require_lockstep(self, step: int, report: StepReport) -> None:
        others = {rank: own.step for rank, own in enumerate(report.ranks) if own.step != step and rank in self._members}
        if others:
            raise HulkError(f"at step {step} other ranks are at another step: {others}")


class Stepper(BatchStepper):
    """Runs steps of one task as the plan says, each rank with the whole model."""

    def __init__(self, plan: Plan, group: Group, task: Task, metrics_port: int) -> None:
        tail = Tail(group.rank, group.world_size)
        self.flat = FlatModel(task.module, group.all_reduce, plan.num_buckets, tail.length)
        super().__init__(plan, group, self.flat, group.wan, tail, metrics_port)
        self._task = task
        self._micro_batch = plan.training.micro_batch or max(1, plan.shares[group.rank])
        self.share_out(dict(enumerate(plan.shares)))
        self.optimizer = OPTIMIZERS[plan.training.optimizer](self.flat.parameters_N)

    def share_out(self, shares: Mapping[int, int]) -> None:
        """From now on these ranks train, each so many sequences of the global batch, in the order of their ranks."""
        self._members = frozenset(shares)
        self._sum = SumSample()
        first = sum(count for rank, count in shares.items() if rank < self._group.rank)
        self._sequences = range(first, first + shares[self._group.rank])

    @property
    def num_parameters(self) -> int:
        """Of the model."""
        return self.flat.parameters_N.numel()

    @property
    def names(self) -> list[tuple[str, int]]:
        """Parameters of the model and their sizes."""
        return [(name, parameter.numel()) for name, parameter in self.flat.module.named_parameters()]

    @property
    def learning_rate(self) -> float:
        """The task's."""
        return self._task.learning_rate

    @property
    def vectors(self) -> list[torch.Tensor]:
        """What a checkpoint must hold, the parameters first; the same on all ranks after a step of all."""
        return [self.flat.parameters_N, *self.optimizer.states]

    def loss_of(self, step: int, sequences: range) -> torch.Tensor:
        """The task's."""
        return self._task.loss(step, sequences)

    def passes(self) -> Iterator[tuple[range, int]]:
        """As many sequences as a micro-batch has, and what is left."""
        for start in range(self._sequences.start, self._sequences.stop, self._micro_batch):
            found = range(start, min(start + self._micro_batch, self._sequences.stop))
            yield found, len(found)

    def unscale(self) -> bool:
        """All ranks have the same gradients."""
        return self.scale.unscale(self.flat.gradients_N)

    def update(self, step: int, learning_rate: float) -> None:
        """Of the whole model."""
        self.optimizer.update(self.flat.parameters_N, self.flat.gradients_N, step, learning_rate)
