"""A script's model and optimizer -> the parameters that come together, by name, and the fragments they are in."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from hulk_runtime.diloco.fragments import strided


def one_optimizer(found: object) -> torch.optim.Optimizer:
    if isinstance(found, list | tuple):
        raise ValueError(f"{len(found)} inner optimizers: DiLoCo counts the steps of one, with several groups")
    while isinstance(inner := getattr(found, "optimizer", None), torch.optim.Optimizer):  # as Accelerate wraps them
        found = inner
    if not isinstance(found, torch.optim.Optimizer):
        raise ValueError(f"inner_optimizer is {type(found).__name__}, not one of torch's optimizers")
    return found


def parameters(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.nn.Parameter]:
    """By name, what the optimizer changes; a parameter that several modules have once."""
    held = {id(one): one for group in optimizer.param_groups for one in group["params"] if one.requires_grad}
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise ValueError("FullyShardedDataParallel keeps parameters in vectors of its own: use fully_shard")
    inside = model.module if isinstance(model, DistributedDataParallel) else model
    named = ((name.replace("_orig_mod.", ""), one) for name, one in inside.named_parameters())
    trained = {name: one for name, one in named if id(one) in held}
    if len(trained) < len(held):
        raise ValueError(
            f"the inner optimizer trains {len(held)} parameters, of which the model has {len(trained)}: the others "
            "would never come together"
        )
    if not trained:
        raise ValueError("the inner optimizer trains no parameter of the model")
    if devices := {one.device for one in trained.values()} - {next(iter(trained.values())).device}:
        raise ValueError(f"parameters are on several devices, such as {devices.pop()}")
    return trained


def count(optimizer: torch.optim.Optimizer) -> int:
    return sum(one.requires_grad for group in optimizer.param_groups for one in group["params"])


def num_steps(optimizer: torch.optim.Optimizer) -> float:
    """How many steps an optimizer's state says were made; infinitely many where it has one that counts none.

    What DCP makes to load into has no step behind it: it is zeros, and counts one.
    """
    states = [state for state in optimizer.state.values() if state]
    counted = [float(state["step"]) for state in states if "step" in state]
    if counted:
        return max(counted)
    tensors = (value for state in states for value in state.values() if isinstance(value, torch.Tensor))
    return math.inf if any(bool(value.any()) for value in tensors) else 0


def modules(fragments: Any) -> Sequence[torch.nn.Module] | None:
    """Those of each fragment, where a script gives them rather than a number."""
    return fragments if hasattr(fragments, "__len__") and not isinstance(fragments, str) else None


def parts(
    trained: dict[str, torch.nn.Parameter],
    modules: Sequence[torch.nn.Module] | None,
    num_fragments: int,
) -> list[list[str]]:
    if modules is None:
        return strided({name: one.numel() for name, one in trained.items()}, num_fragments)
    name_of = {id(one): name for name, one in trained.items()}
    found = [[name_of[id(one)] for one in module.parameters() if id(one) in name_of] for module in modules]
    named = [name for part in found for name in part]
    if len(named) != len(set(named)) or len(named) != len(trained) or not all(found):
        raise ValueError(
            f"fragments of {[len(part) for part in found]} parameters: each of {len(trained)} must be in one, and in "
            "no other"
        )
    return found
