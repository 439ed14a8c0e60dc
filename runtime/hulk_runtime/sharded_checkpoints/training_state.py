"""Model, optimizer and whatever else a script has <-> one state dict of full names, as torch shards it.

model        parameters and buffers; shards are DTensors
optimizer    its states and settings by the names of parameters, so that another layout finds its own
diloco       of replicas that train apart: what `replica_state` says
others       what other objects' `state_dict` answer, as bytes: the same on all ranks, or each takes the first one's
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    _get_fqns,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from hulk_runtime.diloco.context import DiLoCo
from hulk_runtime.errors import ConfigurationError
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
        self._optimizers = _by_part(self._parts, given)
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
        """What a checkpoint with these names is read into. ConfigurationError where it lacks one of the others."""
        saved = [name.removeprefix("others.") for name in _beginning(sorted(names), "others.")]
        if lacking := [name for name in self._others if name not in saved]:
            raise ConfigurationError(
                f"it has no state of {', '.join(lacking)}, only of {', '.join(['model, optimizer', *saved])}: "
                f"to resume from it, leave {', '.join(lacking)} out of hulk.Checkpointer"
            )
        replica = replica_state.to_fill(self._diloco, names) if self._diloco else {}
        found = {**self.trained(), **replica, **self.others()}
        optimizer, held = sorted(found["optimizer"]), sorted(names)
        for name in (name for part in self._parts for name in _parameters(part)):
            if not _beginning(held, f"optimizer.state.{name}."):  # it had no gradient yet
                for key in _beginning(optimizer, f"state.{name}."):
                    del found["optimizer"][key]
        return found

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
                found = {name: state["optimizer"].get(name, value) for name, value in names.items()}
                set_optimizer_state_dict(part, optimizers, found, options=_flat())
                _forget(part, optimizers, set(names).difference(state["optimizer"]))
        if self._diloco:
            replica_state.load(self._diloco, state)
        for name, other in self._others.items():
            other.load_state_dict(unpacked(name, state["others"][name]))


def _flat() -> StateDictOptions:
    """By name also in the groups of parameters, which stages have in common."""
    return StateDictOptions(flatten_optimizer_state_dict=True)


def _parameters(part: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """By the names that they have in a checkpoint."""
    return {name: parameter for key, parameter in part.named_parameters() for name in _get_fqns(part, key)}


def _beginning(ordered: Sequence[str], prefix: str) -> list[str]:
    """Those of sorted names that begin so, with a dot at its end.

    >>> _beginning(["a.b", "c.d", "c.e"], "c.")
    ['c.d', 'c.e']
    """
    after = prefix[:-1] + chr(ord(".") + 1)
    return list(ordered[bisect_left(ordered, prefix) : bisect_left(ordered, after)])


def _forget(part: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], keys: Iterable[str]) -> None:
    """What an optimizer keeps of parameters, by the keys of a state: they are as before their first gradient."""
    ordered = sorted(keys)
    for name, parameter in _parameters(part).items():
        if _beginning(ordered, f"state.{name}."):
            for optimizer in optimizers:
                optimizer.state.pop(parameter, None)


def _by_part(
    parts: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]
) -> list[list[torch.optim.Optimizer]]:
    """The optimizers that train each part. Raises ConfigurationError for one that trains anything besides one part."""
    held = [{id(parameter) for parameter in part.parameters()} for part in parts]
    found: list[list[torch.optim.Optimizer]] = [[] for _ in parts]
    for optimizer in optimizers:
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        place = next((place for place, some in enumerate(held) if own <= some), None)
        if place is None:
            what, counts = type(optimizer).__name__, [len(own & some) for some in held]
            raise ConfigurationError(
                f"{what} trains {len(own)} parameters, of which the model's parts have {counts}: each optimizer must "
                "train one part alone, and be made after the model is divided"
                if any(counts)
                else f"{what} trains none of the model's parameters: make it after the model is divided"
            )
        found[place].append(optimizer)
    return found
