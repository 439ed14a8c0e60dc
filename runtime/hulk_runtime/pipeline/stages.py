"""A model -> the module of each stage that a rank has, and the shape of what its blocks hand on.

A model is a function from a `Part` to a module, or a list of layers of which each stage takes a range (`layers`). The
module takes what the blocks before it give out, in their order, or the batch's inputs where there are none, and gives
out one tensor or several; samples are the first dimension of all of them. The same stage must be made with the same
parameters on every rank that has it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
import torch.distributed as dist
from torch import nn

from hulk_runtime.collective.process_group import lost_peers
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.pipeline.dataflow import Flows
from hulk_runtime.pipeline.grid import Grid, Place
from hulk_runtime.pipeline.micro_batches import Batch, Values, as_values

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

DTYPES: Final = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool)
TOLD_LENGTH: Final = 256
"""Numbers that tell the shapes of a block's outputs to all ranks."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a rank has of a stage: shard `shard` of `num_shards` where the stage is on several devices at once.

    Those shards compute together through `group`. `mesh` are the ranks of one device's tensor parallelism. Whether the
    ranks of a device divide parameters besides (`Grid.num_shards`) is no matter of the module.
    """

    stage: str
    shard: int = 0
    num_shards: int = 1
    group: dist.ProcessGroup | None = None
    mesh: "DeviceMesh | None" = None


Model = Callable[[Part], nn.Module]


def layers(of: Sequence[nn.Module], ranges: Mapping[str, range]) -> Model:
    """The model that is a list of layers; `ranges` are those of each stage by its name."""

    def make(part: Part) -> nn.Module:
        if part.stage not in ranges:
            raise ConfigurationError(f"stage {part.stage} has no layers; there are some for {', '.join(ranges)}")
        if part.num_shards > 1:
            raise ConfigurationError(
                f"stage {part.stage} is on {part.num_shards} devices: make it with a function, which gets its shard"
            )
        return Layers(of, ranges[part.stage])

    return make


class Layers(nn.Module):
    """Some of a list's layers, one after the other; named by their numbers in the list on any layout.

    `ends`: the list's first and last one, whether they are here or not. It is no ModuleDict: not all versions of
    fully_shard take one that computes.
    """

    def __init__(self, of: Sequence[nn.Module], numbers: range) -> None:
        super().__init__()
        self.numbers, self.ends = numbers, (0, len(of) - 1)
        for number in numbers:
            self.add_module(str(number), of[number])

    @property
    def layers(self) -> dict[int, nn.Module]:
        """By their numbers, in their order."""
        return {number: self.get_submodule(str(number)) for number in self.numbers}

    def forward(self, *values: torch.Tensor) -> Values:
        """What one gives out, the next one takes."""
        for layer in self.layers.values():
            values = as_values(layer(*values))
        return values


def cut(num_layers: int, stages: Sequence[str]) -> dict[str, range]:
    """As even ranges as can be.

    >>> cut(5, ["0", "1"])
    {'0': range(0, 2), '1': range(2, 5)}
    """
    edges = [num_layers * n // len(stages) for n in range(len(stages) + 1)]
    return {stage: range(*edges[n : n + 2]) for n, stage in enumerate(stages)}


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one tensor: all dimensions but the first, which is samples."""

    rest: tuple[int, ...]
    dtype: torch.dtype

    def empty(self, num_samples: int, device: torch.device) -> torch.Tensor:
        """A tensor for so many samples."""
        return torch.empty((num_samples, *self.rest), dtype=self.dtype, device=device)

    def num_bytes(self, num_samples: int) -> int:
        """Of so many samples."""
        return num_samples * math.prod(self.rest) * self.dtype.itemsize


Shapes = tuple[Shape, ...]


def learn_shapes(
    flows: Flows, grid: Grid, modules: Mapping[str, nn.Module], batch: Batch, device: torch.device
) -> dict[int, Shapes]:
    """What each forward block gives out, on all ranks: the first replica runs every block once, with one sample.

    In evaluation mode and without gradients, so that nothing of the modules changes. Raises PeerLostError.
    """
    found: dict[int, Shapes] = {}
    own = grid.place(dist.get_rank())
    for number in _in_order(flows):
        block = flows.schedule.blocks[number]
        told = torch.zeros(TOLD_LENGTH, dtype=torch.int64, device=device)
        if own.replica == 0 and own.device in block.devices:
            inputs = tuple(shape.empty(1, device).zero_() for n in flows.producers[number] for shape in found[n])
            values = inputs if flows.producers[number] else batch.inputs(block.stage, range(1))
            told = _tell(_probe(modules[block.stage], values), block.name).to(device)
        with lost_peers():
            dist.broadcast(told, src=grid.rank(Place(0, block.devices[0])))
        found[number] = _told(told.tolist())
    return found


def _in_order(flows: Flows) -> Iterator[int]:
    """Forward blocks, each behind those that it needs."""
    left = [number for members in flows.components for number in members]
    done: set[int] = set()
    while left:
        ready = [number for number in left if done.issuperset(flows.producers[number])]
        yield from ready
        done.update(ready)
        left = [number for number in left if number not in done]


def _probe(module: nn.Module, values: Values) -> Values:
    modes = [(one, one.training) for one in module.modules()]  # some may be fixed, as a norm that learns no more
    module.eval()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        outputs = as_values(module(*values))
    for one, was_training in modes:
        one.training = was_training
    return outputs


def _tell(outputs: Values, name: str) -> torch.Tensor:
    """[how many tensors, then of each: its type, how many dimensions but the first, and these]"""
    numbers = [len(outputs)]
    for tensor in outputs:
        if tensor.dtype not in DTYPES or not tensor.dim() or len(tensor) != 1:
            raise ConfigurationError(
                f"block {name} makes a tensor of shape {tuple(tensor.shape)} and {tensor.dtype} of one sample: "
                f"the first dimension must be samples, the type one of {', '.join(map(str, DTYPES))}"
            )
        numbers += [DTYPES.index(tensor.dtype), tensor.dim() - 1, *tensor.shape[1:]]
    if len(numbers) > TOLD_LENGTH:
        raise ConfigurationError(f"block {name} gives out {len(outputs)} tensors, more than can be told")
    return torch.tensor(numbers + [0] * (TOLD_LENGTH - len(numbers)))


def _told(numbers: list[int]) -> Shapes:
    found, place = [], 1
    for _ in range(numbers[0]):
        dtype, num_dimensions = numbers[place : place + 2]
        place += 2 + num_dimensions
        found.append(Shape(tuple(numbers[place - num_dimensions : place]), DTYPES[dtype]))
    return tuple(found)
