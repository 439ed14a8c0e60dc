"""Steps of replicas of several ranks, which divide parameters, gradients and optimizer states, and each layer.

Inside a replica torch shards (fully_shard) and divides layers (parallelize_module). Between replicas each rank sums its
part of the gradients with its likes, in the plan's buckets and over the plan's flows, while backward still runs. Of
torch's own sums over replicas (HSDP) there would be one for each layer, over links on which few large ones win, and on
CPUs backward would wait for each. Optimizers work value by value, so each rank updates what it has.

The share of a replica is divided among its shards; tensor ranks have the same sequences. All shards of a replica make
equally many passes, because they gather each layer together: who has no sequence left for one computes any, and counts
none.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hulk_runtime.collective.process_group import Group, lost_peers, lost_peers_inside
from hulk_runtime.collective.replica_groups import ReplicaGroups
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.pipeline.layer_shards import shard
from hulk_runtime.pipeline.micro_batches import even_shares
from hulk_runtime.plan.wire import Plan
from hulk_runtime.training.data_parallel import FlatGradients, StepReport, Tail
from hulk_runtime.training.divided_tensor import DividedState, divisions
from hulk_runtime.training.optimizers import OptimizerOfParts
from hulk_runtime.training.sharded_model import ShardedTask
from hulk_runtime.training.state import SAVING_S
from hulk_runtime.training.stepper import AUTOCAST, BatchStepper, Timing


class ShardedStepper(BatchStepper):
    """Runs steps of one task as the plan says. Raises ConfigurationError where the task cannot be divided so."""

    def __init__(self, plan: Plan, group: Group, groups: ReplicaGroups, task: Any, metrics_port: int) -> None:
        layout = plan.layout
        if not all(hasattr(task, name) for name in ("divided", "inputs", "loss_of")):
            raise ConfigurationError(
                f"the plan has shard {layout.shard} and tensor {layout.tensor}, and the program's task cannot be "
                f"divided: it lacks divided, inputs or loss_of"
            )
        self._task: ShardedTask = task
        self._groups, self._last = groups, plan.training.steps
        model = task.divided(groups.mesh["tp"] if layout.tensor > 1 else None)
        self._module, self._place = model.module, divmod(groups.inside.rank, layout.tensor)
        named = dict(self._module.named_parameters())
        parts = dict(zip(named, divisions(list(named.values()), layout.shard, layout.tensor), strict=True))
        self.divided = DividedState(groups.inside, self._place, model.whole, parts)
        if layout.shard > 1:
            shard(self._module, model.layers, groups.mesh["dp_shard"], AUTOCAST[plan.training.precision])
        else:
            self._module.to(group.device)
        parameters = _in_order_of_backward(self._module, model.layers)
        tail = Tail(group.rank, group.world_size)
        flat = FlatGradients(list(parameters.values()), groups.between.all_reduce, plan.num_buckets, tail.length)
        super().__init__(plan, group, flat, groups.between.wan, tail, metrics_port)
        self.optimizer = OptimizerOfParts(plan.training.optimizer, parameters)
        self._passes = _passes(plan, groups, self._place[0])
        self._timeout_s, self._saves = SAVING_S, False

    @property
    def num_parameters(self) -> int:
        """Of the whole model."""
        return sum(num for _, num in self.names)

    @property
    def learning_rate(self) -> float:
        """The task's."""
        return self._task.learning_rate

    @property
    def names(self) -> list[tuple[str, int]]:
        """Parameters of the undivided model and their sizes, in its order."""
        return [(name, self.divided.num_values(name)) for name in self.divided.whole]

    @property
    def groups(self) -> ReplicaGroups:
        """Of this rank."""
        return self._groups

    def set_timeout(self, seconds: float) -> None:
        """Of all groups."""
        self._timeout_s = seconds
        self._wait_for(seconds)

    def wait_for_a_save(self) -> None:
        """Until all have met in the next step: only replica 0's ranks gather the state, and only rank 0 commits it."""
        self._saves = True
        self._wait_for(SAVING_S)

    def part(self) -> None:
        """Wait for its likes, then for all."""
        self._groups.between.part()
        super().part()

    @property
    def summing_group(self) -> Group:
        """Its likes."""
        return self._groups.between

    def goes_on(self, is_wanted: bool) -> bool:
        """While all ranks of the replica want to."""
        return self._groups.inside.holds_on_all(is_wanted)

    def loss_of(self, step: int, sequences: range) -> torch.Tensor:
        """By what the module gives out."""
        return self._task.loss_of(step, (self._module(*self._task.inputs(step, sequences)),), sequences)

    def passes(self) -> Iterator[tuple[range, int]]:
        """Equally many on all shards of the replica."""
        return iter(self._passes)

    def alone(self) -> float:
        """Together with the replica's other ranks."""
        with lost_peers_inside():
            return super().alone()

    def together(self, step: int, stop: bool, save: bool) -> tuple[Timing, StepReport]:
        """One step of all ranks; the last one is saved, and so is the one after which all stop."""
        with lost_peers_inside():
            timing, report = super().together(step, stop, save)
        if self._saves:
            self._saves = False
            self._wait_for(self._timeout_s)
        return timing, replace(report, save=report.save or report.stop or step >= self._last)

    def unscale(self) -> bool:
        """Each rank has a part of the gradients: all of the replica agree, and replicas have the same."""
        return self.scale.unscale(self._gradients.gradients_N, self._groups.inside.holds_on_all)

    def update(self, step: int, learning_rate: float) -> None:
        """Of what this rank has."""
        self.optimizer.update(step, learning_rate)

    def _backward(self, step: int, together: bool) -> float:
        """Tensor ranks have the same loss, which counts once."""
        loss = super()._backward(step, together)
        return loss if self._place[1] == 0 else 0.0

    def _meet(self, tail: torch.Tensor) -> StepReport:
        """What its likes of other replicas say comes with the gradients; then those of a replica tell each other."""
        self._gradients.finish(tail)
        with lost_peers():
            dist.all_reduce(self._gradients.tail, group=self._groups.inside.process_group)
        return self._tail.unpack(self._gradients.tail)

    def _wait_for(self, seconds: float) -> None:
        super().set_timeout(seconds)
        self._groups.set_timeout(seconds)


def _in_order_of_backward(module: nn.Module, layers: Any) -> dict[str, nn.Parameter]:
    """The last layer's first; what is in no layer is final when all is."""
    named = dict(module.named_parameters())
    names = {id(parameter): name for name, parameter in named.items()}
    of_layers = [names[id(p)] for layer in reversed(layers) for p in layer.parameters()]
    others = [name for name in named if name not in set(of_layers)]
    return {name: named[name] for name in (*of_layers, *others)}


def _passes(plan: Plan, groups: ReplicaGroups, shard: int) -> list[tuple[range, int]]:
    """Sequences of this shard, as they are numbered in the global batch, in passes; and how many of each count."""
    replica, num_shards = groups.between.rank, plan.layout.shard
    shares = even_shares(plan.shares[replica], 1, num_shards)[0]
    num_passes = -(-max(shares) // (plan.training.micro_batch or max(shares)))
    first = sum(plan.shares[:replica]) + sum(shares[:shard])
    found = []
    for num in even_shares(shares[shard], 1, num_passes)[0]:
        some = range(first, first + num) if num else range(sum(plan.shares[:replica]), sum(plan.shares[:replica]) + 1)
        found.append((some, num))
        first += num
    return found
