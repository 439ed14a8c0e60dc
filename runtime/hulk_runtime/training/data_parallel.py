"""Data parallelism with few large buckets: one vector of gradients, summed over all ranks while backward still runs.

Parameters and gradients of the module become views of two vectors, in the order in which backward finishes them. The
gradient vector is cut into exactly `num_buckets` equal parts; a part is all-reduced in place as soon as the last
gradient in it is ready. Over a WAN few large buckets win (each collective costs 2(n-1) round trips), so the plan says
how many.

torch's DistributedDataParallel does the same with buckets that end at parameters, but its constructor imports the
compiler (4.2 CPU seconds, half a minute at 0.15 core), broadcasts the whole model over the WAN, and it averages where
unequal shares need a weighted sum. Here the weight is in the loss: with share s_r of the global batch S, rank r
backpropagates (s_r/S) x mean loss, and the sum over ranks is the mean over the global batch.

Numbers that the ranks must exchange each step (loss, wish to stop, timings) ride behind the last bucket (`Tail`),
because a collective of their own would cost as many round trips as the gradients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from hulk_runtime.collective.process_group import Work
from hulk_runtime.collective.tcp_info import LinkSample
from hulk_runtime.pipeline.event_log import Parts
from hulk_runtime.pipeline.shared_parameters import local

_SHARED_FIELDS = 3
_RANK_FIELDS = 7
_STEP_BASE = 1 << 20
"""fp32 holds whole numbers only up to 2**24, so a step travels as two digits of this base: exact up to 2**44."""


@dataclass(frozen=True, slots=True)
class SumSample:
    """One all-reduce between regions, from its begin on one rank; zeros where there was none."""

    num_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RankReport:
    """What one rank tells the others about a step. `link` is towards the next rank of the ring.

    `sum` is the former step's largest all-reduce: one that has ended.
    """

    step: int
    compute_s: float
    link: LinkSample
    sum: SumSample = SumSample()


@dataclass(frozen=True, slots=True)
class StepReport:
    """What all ranks know after a step: mean loss of the global batch, whether any rank must stop, each rank's own.

    `save`: rank 0 wants the state after this step in a checkpoint. Where `of_all` is False the ranks have not spoken
    to each other in this step: the report is one rank's own, with the loss of its share of the batch.
    """

    loss: float
    stop: bool
    ranks: tuple[RankReport, ...]
    save: bool = False
    of_all: bool = True
    stages: tuple[Parts, ...] = ()
    """Where the time of the step went on each stage, of a pipeline and now and then."""

    @property
    def sum(self) -> SumSample:
        """An all-reduce from its begin on the rank that began last, for which the others have waited."""
        told = [own.sum for own in self.ranks if own.sum.num_bytes]
        return min(told, key=lambda sample: sample.seconds, default=SumSample())


@dataclass(frozen=True, slots=True)
class Tail:
    """Packs reports into a vector whose sum over ranks holds them all: each rank fills its own slots only.

    [weighted loss, wishes to stop, wishes to save, then per rank: two digits of the step, compute_s, rtt_s,
    bandwidth_bytes_per_s, an all-reduce's bytes and seconds]
    """

    rank: int
    world_size: int

    @property
    def length(self) -> int:
        """Number of values."""
        return _SHARED_FIELDS + _RANK_FIELDS * self.world_size

    def pack(self, weighted_loss: float, stop: bool, mine: RankReport, save: bool = False) -> torch.Tensor:
        """One rank's contribution."""
        values = torch.zeros(self.length, dtype=torch.float64)
        values[:_SHARED_FIELDS] = torch.tensor([weighted_loss, float(stop), float(save)], dtype=torch.float64)
        start = _SHARED_FIELDS + _RANK_FIELDS * self.rank
        link, summed = mine.link, mine.sum
        high, low = divmod(mine.step, _STEP_BASE)
        own = [high, low, mine.compute_s, link.rtt_s, link.bandwidth_bytes_per_s, summed.num_bytes, summed.seconds]
        values[start : start + _RANK_FIELDS] = torch.tensor(own, dtype=torch.float64)
        return values

    def unpack(self, summed: torch.Tensor) -> StepReport:
        """The sum over all ranks."""
        loss, stop, save, *rest = summed.tolist()
        rows = [rest[i : i + _RANK_FIELDS] for i in range(0, len(rest), _RANK_FIELDS)]
        ranks = tuple(
            RankReport(
                round(high) * _STEP_BASE + round(low), compute, LinkSample(rtt, rate), SumSample(round(size), seconds)
            )
            for high, low, compute, rtt, rate, size, seconds in rows
        )
        return StepReport(loss, stop > 0, ranks, save > 0)


class FlatGradients:
    """Gradients of parameters as views of `gradients_N`, in the order given, summed in buckets while backward runs.

    `tail_length` more values follow the gradients in the buffer that is reduced. `all_reduce` (see `Group.all_reduce`)
    begins to sum a part of it, a bucket by its number, over all ranks. Of a parameter that is divided among ranks, a
    DTensor, it has what this rank has.
    """

    def __init__(
        self,
        ordered: Sequence[torch.nn.Parameter],
        all_reduce: Callable[[torch.Tensor, int, int], Work],
        num_buckets: int,
        tail_length: int,
    ) -> None:
        locals_ = [local(parameter.detach()) for parameter in ordered]
        num_values = sum(values.numel() for values in locals_)
        first = locals_[0]
        self._all_reduce = all_reduce
        self._buffer = torch.zeros(num_values + tail_length, dtype=first.dtype, device=first.device)
        self.gradients_N = self._buffer[:num_values]
        self.tail = self._buffer[num_values:]
        self._edges = bucket_edges(num_values, min(num_buckets, num_values))
        self._work: list[Work] = []
        self._live = False
        self._buckets_of: list[range] = []
        end = 0
        for index, (parameter, values) in enumerate(zip(ordered, locals_, strict=True)):
            start, end = end, end + values.numel()
            parameter.grad = as_divided(self.gradients_N[start:end].view_as(values), parameter)
            self._buckets_of.append(_overlapping(self._edges, start, end))
            self._watch(parameter, index)

    @property
    def num_buckets(self) -> int:
        """Number of collectives per step."""
        return len(self._edges) - 1

    @property
    def bucket_bytes(self) -> int:
        """Of gradients in the largest bucket."""
        largest = max(end - start for start, end in pairwise(self._edges))
        return largest * self.gradients_N.element_size()

    def start(self) -> None:
        """Begin a step: no gradients, nothing in flight."""
        self._buffer.zero_()
        self._work = []

    def overlap(self) -> None:
        """From now on gradients are final: the step's last backward pass is about to run."""
        self._missing = [0] * self.num_buckets
        for buckets in self._buckets_of:
            for bucket in buckets:
                self._missing[bucket] += 1
        self._live = True

    def finish(self, tail: torch.Tensor) -> None:
        """Send what backward has not sent, with `tail` behind the last bucket, and wait for all of it."""
        self._live = False
        self.tail.copy_(tail)
        while len(self._work) < self.num_buckets:
            self._launch()
        for work in self._work:
            work.wait()
        self._work = []

    def _watch(self, parameter: torch.nn.Parameter, index: int) -> None:
        def hook(_: torch.Tensor) -> None:
            self._ready(index)

        parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def _ready(self, index: int) -> None:
        """One gradient is final. Buckets leave in order, the same on all ranks; the last waits for its tail."""
        if not self._live:
            return
        for bucket in self._buckets_of[index]:
            self._missing[bucket] -= 1
        while len(self._work) < self.num_buckets - 1 and self._missing[len(self._work)] == 0:
            self._launch()

    def _launch(self) -> None:
        bucket = len(self._work)
        last = bucket == self.num_buckets - 1
        end = len(self._buffer) if last else self._edges[bucket + 1]
        num_exact = len(self.tail) if last else 0
        self._work.append(self._all_reduce(self._buffer[self._edges[bucket] : end], num_exact, bucket))


class FlatModel(FlatGradients):
    """A module whose parameters, too, are views of one vector, `parameters_N`, in the order of backward."""

    def __init__(
        self,
        module: torch.nn.Module,
        all_reduce: Callable[[torch.Tensor, int, int], Work],
        num_buckets: int,
        tail_length: int,
    ) -> None:
        ordered = list(module.parameters())[::-1]
        self.module = module
        self.parameters_N = torch.cat([parameter.detach().reshape(-1) for parameter in ordered])
        parts = torch.split(self.parameters_N, [parameter.numel() for parameter in ordered])
        for parameter, part in zip(ordered, parts, strict=True):
            parameter.data = part.view_as(parameter)
        super().__init__(ordered, all_reduce, num_buckets, tail_length)


def bucket_edges(num_values: int, num_buckets: int) -> list[int]:
    """Where equal buckets begin and end.

    >>> bucket_edges(10, 3)
    [0, 3, 6, 10]
    """
    return [num_values * index // num_buckets for index in range(num_buckets + 1)]


def _overlapping(edges: Sequence[int], start: int, end: int) -> range:
    """The buckets that hold values of [start, end); none of an empty part, as of a small tensor."""
    touched = [b for b in range(len(edges) - 1) if max(start, edges[b]) < min(end, edges[b + 1])]
    return range(touched[0], touched[-1] + 1) if touched else range(0)


def as_divided(values: torch.Tensor, parameter: torch.nn.Parameter) -> torch.Tensor:
    """What this rank has, as a tensor that is divided among ranks as the parameter is."""
    if not hasattr(parameter, "device_mesh"):
        return values
    from torch.distributed.tensor import DTensor  # slow to import, and most programs divide nothing

    assert isinstance(parameter, DTensor)
    shape, stride = parameter.shape, parameter.stride()
    whole: torch.Tensor = DTensor.from_local(
        values, parameter.device_mesh, parameter.placements, run_check=False, shape=shape, stride=stride
    )
    return whole
