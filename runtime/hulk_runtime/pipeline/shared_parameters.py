"""Which parameters several ranks have, and the sum of their gradients.

A stage may be computed by several blocks (shape X has each on two devices), and every replica has all stages; some
parameters of different stages may be one (a tied embedding). What is shared starts alike, gets the sum of all
gradients, and so stays alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from hulk_runtime.collective.process_group import lost_peers
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.pipeline.actions import Shared
from hulk_runtime.pipeline.dataflow import Flows
from hulk_runtime.pipeline.posted_receives import Posted


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
    found = [_tied(tie, places) for tie in ties]
    for stage, teams in places.items():
        for shard, devices in enumerate(zip(*teams, strict=True)):
            if len(devices) * num_replicas > 1:
                found.append(Shared(f"{stage}#{shard}", dict.fromkeys(devices, frozenset([stage]))))
    return found


def _tied(tie: Tie, places: Mapping[str, Iterable[tuple[int, ...]]]) -> Shared:
    """Of two where each of two devices has one of two stages, and nobody else has either."""
    found: dict[int, frozenset[str]] = {}
    num_places = 0
    for stage, name in tie.parameters:
        for devices in places.get(stage, ()):
            if len(devices) > 1:
                raise ConfigurationError(f"{name} of stage {stage} is tied, and the stage is cut over {devices}")
            found[devices[0]] = found.get(devices[0], frozenset()) | {stage}
            num_places += 1
    return Shared(tie.name, found, of_two=len(found) == num_places == len(tie.parameters) == 2)


class Sums:
    """The sums of one rank: `parameters[n]` are those of the n-th that are shared, `groups[n]` who shares them.

    Each is a list of one parameter, or of several that are one. Without a group nobody else has them. Those of `late`
    are of gradients that are sums over all replicas already: they begin when these are there.
    """

    def __init__(
        self,
        parameters: Mapping[int, list[list[nn.Parameter]]],
        groups: Mapping[int, dist.ProcessGroup],
        late: frozenset[int] = frozenset(),
    ) -> None:
        self._parameters, self._late = parameters, late
        self._ways = {number: way_of(group) for number, group in groups.items() if parameters.get(number)}
        self._under_way: dict[int, torch.Tensor] = {}
        self.patience: timedelta | None = None
        """For what a peer sends; None: as long as the group has."""

    def expect(self) -> None:
        """A step begins: peers may send. Raises PeerLostError."""
        for number, way in self._ways.items():
            own = [local(slot[0]).detach().reshape(-1) for slot in self._parameters[number]]
            way.expect(sum(map(len, own)), torch.cat([one[:0] for one in own]))  # of the type that all go into

    def begin(self, number: int) -> None:
        """The gradients of one that is shared are final on this rank. Raises PeerLostError."""
        if number not in self._late:
            self._begin(number)

    def finish(self) -> None:
        """Wait for all; every parameter then has the sum as its gradient. Raises PeerLostError."""
        self._end_all()
        for number in sorted(self._late):
            self._begin(number)
        self._end_all()

    def _begin(self, number: int) -> None:
        slots = self._parameters[number]
        if not slots:
            return
        total = torch.cat([sum(local_gradient(one) for one in slot).reshape(-1) for slot in slots])  # type: ignore[union-attr]
        if number in self._ways:
            self._ways[number].begin(total)
        self._under_way[number] = total

    def _end_all(self) -> None:
        under_way, self._under_way = self._under_way, {}
        for number, own in under_way.items():
            total = self._ways[number].end(self.patience) if number in self._ways else own
            slots = self._parameters[number]
            parts = torch.split(total, [local(slot[0]).numel() for slot in slots])
            for slot, part in zip(slots, parts, strict=True):
                for parameter in slot:
                    gradient = local_gradient(parameter)
                    gradient.copy_(part.view_as(gradient))


class Way(Protocol):
    """How the members of a group sum."""

    def expect(self, num: int, like: torch.Tensor) -> None:
        """A step begins, at whose end so many gradients are summed, of this kind. Raises PeerLostError."""

    def begin(self, own: torch.Tensor) -> None:
        """This rank's gradients are there; they may be overwritten. Raises PeerLostError."""

    def end(self, patience: timedelta | None) -> torch.Tensor:
        """The sum, when it is there. Raises PeerLostError."""


def way_of(group: dist.ProcessGroup) -> Way:
    """Two send each other what they have, which takes one way over the link between them; more go by a ring.

    NCCL knows two by itself.
    """
    ranks = dist.get_process_group_ranks(group)
    if len(ranks) == 2 and dist.get_backend(group) == "gloo":
        (peer,) = set(ranks) - {dist.get_rank()}
        return _OfTwo(Posted(peer, group, tag=0))
    return _Ring(group)


@dataclass(slots=True)
class _Ring:
    group: dist.ProcessGroup
    under_way: tuple[torch.Tensor, dist.Work | None] | None = None

    def expect(self, num: int, like: torch.Tensor) -> None:
        """Nobody needs to know."""

    def begin(self, own: torch.Tensor) -> None:
        with lost_peers():
            self.under_way = own, dist.all_reduce(own, group=self.group, async_op=True)

    def end(self, patience: timedelta | None) -> torch.Tensor:
        assert self.under_way is not None
        total, work = self.under_way
        if work is not None:
            with lost_peers():
                work.wait()
        return total


@dataclass(slots=True)
class _OfTwo:
    """Both add the same two, so they have the same bits."""

    messages: Posted
    own: torch.Tensor | None = None

    def expect(self, num: int, like: torch.Tensor) -> None:
        self.messages.expect(like.detach().new_empty(num))

    def begin(self, own: torch.Tensor) -> None:
        self.own = own
        self.messages.send(own)

    def end(self, patience: timedelta | None) -> torch.Tensor:
        assert self.own is not None
        return self.messages.take(patience).add_(self.own)


def parameters_of(
    wanted: Sequence[Shared], ties: Sequence[Tie], modules: Mapping[str, nn.Module], device: int
) -> dict[int, list[list[nn.Parameter]]]:
    """What a device has of each that is shared. Raises ConfigurationError where a module lacks a tied parameter.

    Where two sum what is tied, it is one of its stage's parameters beside: replicas sum it first.
    """
    found: dict[int, list[list[nn.Parameter]]] = {}
    tied: set[int] = set()
    for number, one in enumerate(wanted):
        if device not in one.stages:
            continue
        if number < len(ties):
            places = ties[number].parameters
            every = [_named(modules[stage], stage, name) for stage, name in places if stage in modules]
            slot = list(dict.fromkeys(every))  # two stages of this rank may have one object
            if not one.of_two:
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
