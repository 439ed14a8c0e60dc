"""Model, optimizer and whatever else a script has <-> one state dict of full names, as torch shards it.

model        parameters and buffers; shards are DTensors
optimizer    its states and settings by the names of parameters, so that another layout finds its own
diloco       of replicas that train apart: what `replica_state` says
others       what other objects' `state_dict` answer, as bytes: the same on all ranks, or each takes the first one's
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from hulk_runtime.diloco.context import DiLoCo
from hulk_runtime.sharded_checkpoints import replica_state
from hulk_runtime.sharded_checkpoints.safe_pickle import packed, unpacked

Model = torch.nn.Module | Sequence[torch.nn.Module]
Optimizers = torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None


class Stateful(Protocol):
    """A scheduler, a data loader or anything else that goes on where it was."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


class TrainingState:
    """What is saved and resumed. `model`: or its parts, such as a rank's stages."""

    def __init__(
        self, model: Model, optimizers: Optimizers, diloco: DiLoCo | None, others: Mapping[str, Stateful]
    ) -> None:
        self._diloco = diloco
        self._parts = [model] if isinstance(model, torch.nn.Module) else list(model)
        given = [optimizers] if isinstance(optimizers, torch.optim.Optimizer) else list(optimizers or ())
        self._optimizers = [_of_part(part, given) for part in self._parts]
        self._others = dict(others)

    def trained(self) -> dict[str, Any]:
        """Model and optimizer; tensors are their own memory."""
        model: dict[str, Any] = {}
        optimizer: dict[str, Any] = {}
        for part, optimizers in zip(self._parts, self._optimizers, strict=True):
            model |= get_model_state_dict(part)
            if optimizers:
                optimizer |= get_optimizer_state_dict(part, optimizers, options=_flat())
        return {
            "model": model,
            "optimizer": optimizer,
            **(replica_state.of_replica(self._diloco) if self._diloco else {}),
        }

    def to_fill(self, names: Collection[str]) -> dict[str, Any]:
        """What a checkpoint with these names is read into."""
        replica = replica_state.to_fill(self._diloco, names) if self._diloco else {}
        return {**self.trained(), **replica, **self.others()}

    def others(self) -> dict[str, Any]:
        """The other objects' states."""
        return {"others": {name: packed(name, other.state_dict()) for name, other in self._others.items()}}

    def load(self, state: dict[str, Any]) -> None:
        """The other way around."""
        for part, optimizers in zip(self._parts, self._optimizers, strict=True):
            own = get_model_state_dict(part)
            set_model_state_dict(part, {name: state["model"][name] for name in own})
            if optimizers:
                names = get_optimizer_state_dict(part, optimizers, options=_flat())
                found = {name: state["optimizer"][name] for name in names}
                set_optimizer_state_dict(part, optimizers, found, options=_flat())
        if self._diloco:
            replica_state.load(self._diloco, state)
        for name, other in self._others.items():
            other.load_state_dict(unpacked(name, state["others"][name]))


def _flat() -> StateDictOptions:
    """By name also in the groups of parameters, which stages have in common."""
    return StateDictOptions(flatten_optimizer_state_dict=True)


def _of_part(part: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> list[torch.optim.Optimizer]:
    """The optimizers that train parameters of it."""
    own = {id(parameter) for parameter in part.parameters()}
    return [
        optimizer
        for optimizer in optimizers
        if any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"])
    ]
