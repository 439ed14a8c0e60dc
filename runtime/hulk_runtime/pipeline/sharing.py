"""Which parameters several ranks have, and the sum of their gradients.

A stage may be computed by several blocks (shape X has each on two devices), and every replica has all stages; some
parameters of different stages may be one (a tied embedding). What is shared starts alike, gets the sum of all
gradients, and so stays alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hulk_runtime.errors import ConfigurationError
from hulk_runtime.groups import lost_peers
from hulk_runtime.pipeline.actions import Shared
from hulk_runtime.pipeline.flows import Flows


@dataclass(frozen=True, slots=True)
class Tie:
    """Parameters that are one: (stage, name in its module) of each."""

    parameters: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The first's."""
        return "/".join(self.parameters[0])


def shared(flows: Flows, num_replicas: int, ties: Sequence[Tie]) -> list[Shared]:
    """The ties, then each stage (and shard) that more than one rank has, in the same order on all ranks.

    Raises ConfigurationError.
    """
    places: dict[str, dict[tuple[int, ...], None]] = {}
    for block in flows.schedule.blocks:
        places.setdefault(block.stage, {})[block.devices] = None
    found = [Shared(tie.name, _devices_of(tie, places)) for tie in ties]
    for stage, teams in places.items():
        for shard, devices in enumerate(zip(*teams, strict=True)):
            if len(devices) * num_replicas > 1:
                found.append(Shared(f"{stage}#{shard}", dict.fromkeys(devices, frozenset([stage]))))
    return found


def _devices_of(tie: Tie, places: Mapping[str, Iterable[tuple[int, ...]]]) -> dict[int, frozenset[str]]:
    found: dict[int, frozenset[str]] = {}
    for stage, name in tie.parameters:
        for devices in places.get(stage, ()):
            if len(devices) > 1:
                raise ConfigurationError(f"{name} of stage {stage} is tied, and the stage is cut over {devices}")
            found[devices[0]] = found.get(devices[0], frozenset()) | {stage}
    return found


class Sums:
    """The sums of one rank: `parameters[n]` are those of the n-th that are shared, `groups[n]` who shares them.

    Each is a list of one parameter, or of several that are one. Without a group nobody else has them.
    """

    def __init__(
        self, parameters: Mapping[int, list[list[nn.Parameter]]], groups: Mapping[int, dist.ProcessGroup]
    ) -> None:
        self._parameters = parameters
        self._groups = groups
        self._under_way: list[tuple[int, torch.Tensor, dist.Work | None]] = []

    def begin(self, number: int) -> None:
        """Begin to sum the gradients of one that is shared; they are final. Raises PeerLostError."""
        slots = self._parameters[number]
        if not slots:
            return
        total = torch.cat([sum(local_gradient(one) for one in slot).reshape(-1) for slot in slots])  # type: ignore[union-attr]
        work = None
        if number in self._groups:
            with lost_peers():
                work = dist.all_reduce(total, group=self._groups[number], async_op=True)
        self._under_way.append((number, total, work))

    def finish(self) -> None:
        """Wait for all; every parameter then has the sum as its gradient. Raises PeerLostError."""
        under_way, self._under_way = self._under_way, []
        for number, total, work in under_way:
            if work is not None:
                with lost_peers():
                    work.wait()
            slots = self._parameters[number]
            parts = torch.split(total, [local(slot[0]).numel() for slot in slots])
            for slot, part in zip(slots, parts, strict=True):
                for parameter in slot:
                    gradient = local_gradient(parameter)
                    gradient.copy_(part.view_as(gradient))


def parameters_of(
    wanted: Sequence[Shared], ties: Sequence[Tie], modules: Mapping[str, nn.Module], device: int
) -> dict[int, list[list[nn.Parameter]]]:
    """What a device has of each that is shared. Raises ConfigurationError where a module lacks a tied parameter."""
    found: dict[int, list[list[nn.Parameter]]] = {}
    tied: set[int] = set()
    for number, one in enumerate(wanted):
        if device not in one.stages:
            continue
        if number < len(ties):
            slot = [_named(modules[stage], stage, name) for stage, name in ties[number].parameters if stage in modules]
            tied.update(map(id, slot))
            found[number] = [slot]
        else:
            (stage,) = one.stages[device]
            own = [p for p in modules[stage].parameters() if p.requires_grad and id(p) not in tied]
            found[number] = [[parameter] for parameter in own]
    return found


def _named(module: nn.Module, stage: str, name: str) -> nn.Parameter:
    parameters = dict(module.named_parameters())
    if name not in parameters:
        raise ConfigurationError(f"stage {stage} has no parameter {name}, it has {', '.join(parameters)}")
    return parameters[name]


def local(values: Any) -> torch.Tensor:
    """What this rank has of a tensor that tensor parallelism has cut."""
    found: torch.Tensor = values.to_local() if hasattr(values, "to_local") else values
    return found


def local_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """What this rank has of a parameter's gradient: zeros where the parameter was not used."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return local(parameter.grad)
