"""One optimizer update, alone (to measure this machine) or with all ranks (to train)."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from hulk_runtime.collective.process_group import Group
from hulk_runtime.collective.tcp_info import LinkSample, Traffic
from hulk_runtime.errors import HulkError
from hulk_runtime.plan.wire import Plan
from hulk_runtime.training.data_parallel import FlatModel, RankReport, StepReport, SumSample, Tail
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

    def unscale(self, gradients_N: torch.Tensor) -> bool:
        """Divide in place by the scale; False when the step must be skipped."""
        if not self._used:
            return True
        gradients_N.div_(self.value)
        finite = bool(torch.isfinite(gradients_N).all())
        self._num_good = self._num_good + 1 if finite else 0
        if not finite:
            self.value = max(1.0, self.value / 2)
        elif self._num_good % STEPS_PER_DOUBLING == 0:
            self.value *= 2
        return finite


class Stepper:
    """Runs steps of one task as the plan says."""

    def __init__(self, plan: Plan, group: Group, task: Task, metrics_port: int) -> None:
        training = plan.training
        self._group = group
        self._task = task
        self._autocast = AUTOCAST[training.precision]
        self._traffic = Traffic(group.peers, metrics_port)
        self._tail = Tail(group.rank, group.world_size)
        self._micro_batch = training.micro_batch or max(1, plan.shares[group.rank])
        self._divisor = training.global_batch
        self.share_out(dict(enumerate(plan.shares)))
        self.loss = math.nan
        """Of the global batch in the last step of all; nan before the first."""
        self._update_s = 0.0
        self.flat = FlatModel(task.module, group.all_reduce, plan.num_buckets, self._tail.length)
        self.optimizer = OPTIMIZERS[training.optimizer](self.flat.parameters_N)
        self.scale = LossScale(training.precision)
        self._link = LinkSample(0.0, 0.0)

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
    def buckets(self) -> tuple[int, int]:
        """How many sums of gradients a step has, and the bytes of the largest."""
        return self.flat.num_buckets, self.flat.bucket_bytes

    @property
    def sent_bytes(self) -> int:
        """Bytes this rank has sent to the others, up to its last completed step."""
        return self._traffic.sent_bytes

    @property
    def vectors(self) -> list[torch.Tensor]:
        """What a checkpoint must hold, the parameters first; the same on all ranks after a step of all."""
        return [self.flat.parameters_N, *self.optimizer.states]

    def alone(self) -> float:
        """Seconds this machine needs for its share of a step, without communication; changes no parameter."""
        started = self._now()
        self.flat.start()
        self._backward(step=1, together=False)
        computed_s = self._now() - started
        self.flat.start()
        started = self._now()
        self.optimizer.update(self.flat.parameters_N, self.flat.gradients_N, step=1, learning_rate=0.0)
        return computed_s + self._now() - started

    def together(self, step: int, stop: bool, save: bool) -> tuple[Timing, StepReport]:
        """One step of all ranks, of which any may wish to stop and rank 0 to save the state after it.

        Raises PeerLostError with `vectors` still those of the last step of all.
        """
        started = self._now()
        self.flat.start()
        loss = self._backward(step, together=True)
        computed = self._now()
        compute_s = computed - started + self._update_s
        self.flat.finish(self._tail.pack(loss, stop, RankReport(step, compute_s, self._link, self._sum), save))
        communicated = self._now()
        report = self._tail.unpack(self.flat.tail)
        self._require_lockstep(step, report)
        if self.scale.unscale(self.flat.gradients_N):
            self.optimizer.update(self.flat.parameters_N, self.flat.gradients_N, step, self._task.learning_rate)
        self.loss = report.loss
        self._look_at_links()
        ended = self._now()
        self._update_s = ended - communicated
        return Timing(ended - started, computed - started + self._update_s, communicated - computed), report

    def _backward(self, step: int, together: bool) -> float:
        """The sum of losses over this rank's sequences / `_divisor`; its gradients are in the flat buffer."""
        total = torch.zeros((), device=self._group.device)
        batches = list(self._micro_batches())
        for index, sequences in enumerate(batches):
            if together and index == len(batches) - 1:
                self.flat.overlap()
            with torch.autocast(self._group.device.type, self._autocast, enabled=self._autocast is not None):
                loss = self._task.loss(step, sequences) * (len(sequences) / self._divisor)
            torch.autograd.backward(loss * self.scale.value)
            total += loss.detach()
        return float(total)

    def _micro_batches(self) -> Iterator[range]:
        for start in range(self._sequences.start, self._sequences.stop, self._micro_batch):
            yield range(start, min(start + self._micro_batch, self._sequences.stop))

    def _look_at_links(self) -> None:
        """Between two all-reduces, so that bytes are those of whole steps; told to the others with the next step."""
        group = self._group
        if group.world_size > 1:
            self._link = self._traffic.look(group.next_rank)
        if group.wan is not None:
            found = group.wan.collective.largest()
            self._sum = SumSample(found.num_bytes, found.seconds) if found else SumSample()

    def _now(self) -> float:
        if self._group.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def _require_lockstep(self, step: int, report: StepReport) -> None:
        others = {rank: own.step for rank, own in enumerate(report.ranks) if own.step != step and rank in self._members}
        if others:
            raise HulkError(f"at step {step} other ranks are at another step: {others}")
