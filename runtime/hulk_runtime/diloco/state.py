"""A fragment's state as values by the names of parameters, and back; shards stay DTensors, which can be resharded.

global           where all replicas began, by name
outer            of the outer step
begun            the step after which the last sum began
under_way        its outer gradient by name, where it has not been merged
own_feedback     what quantised payloads have not held, by name
sums_feedback    the same of the sums that this rank has sent, as one vector
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from hulk_runtime.diloco.fragment import Fragment, UnderWay
from hulk_runtime.diloco.sums import Feedback

Named = dict[str, torch.Tensor]


def of_fragment(fragment: Fragment) -> dict[str, Any]:
    """What of it goes into a checkpoint; tensors are the fragment's own memory."""
    found: dict[str, Any] = {
        "global": _named(fragment, fragment.anchor_N),
        "outer": {
            name: _named(fragment, value) if _is_vector(fragment, value) else value
            for name, value in fragment.outer.state().items()
        },
        "begun": fragment.begun,
    }
    if fragment.under_way is not None:
        found["under_way"] = _named(fragment, fragment.under_way.gradient_N)
    if fragment.feedback.own_N is not None and fragment.feedback.sums_N is not None:
        found["own_feedback"] = _named(fragment, fragment.feedback.own_N)
        found["sums_feedback"] = fragment.feedback.sums_N
    return found


def of_all(fragment: Fragment) -> dict[str, Any]:
    """What any replica can go on from: of a sum under way, which is waited for, the mean; and no feedback."""
    found = {key: value for key, value in of_fragment(fragment).items() if key in ("global", "outer", "begun")}
    if fragment.under_way is not None and fragment.under_way.sum is not None:
        found["under_way"] = _named(fragment, fragment.under_way.sum.wait()[0])
    return found


def load(fragment: Fragment, state: Mapping[str, Any]) -> None:
    """The other way around, copied. Raises ValueError where it is of other parameters."""
    fragment.anchor_N.copy_(_flat(fragment, state["global"]))
    fragment.outer.load(
        {name: _flat(fragment, value) if _is_named(value) else value for name, value in state["outer"].items()}
    )
    fragment.begun = state["begun"]
    gradient = state.get("under_way")
    fragment.under_way = None if gradient is None else UnderWay(fragment.begun, _flat(fragment, gradient), None)
    own = state.get("own_feedback")
    fragment.feedback = Feedback()
    if own is not None:
        fragment.feedback = Feedback(_flat(fragment, own).float(), state["sums_feedback"].clone())


def shared(fragment: Fragment) -> dict[str, Any]:
    """What a replica that is behind takes from another one."""
    return {
        "anchor": fragment.anchor_N.cpu(),
        "outer": fragment.outer.state(),
        "begun": fragment.begun,
        "is_under_way": fragment.under_way is not None,
    }


def adopt(fragment: Fragment, found: Mapping[str, Any]) -> None:
    """Begin where the other one began; to what is under way this replica adds nothing."""
    fragment.anchor_N.copy_(found["anchor"])
    fragment.outer.load(found["outer"])
    fragment.begun, fragment.feedback, fragment.under_way = found["begun"], Feedback(), None
    if found["is_under_way"]:
        fragment.under_way = UnderWay(fragment.begun, torch.zeros_like(fragment.anchor_N), None)
    fragment.merge(0.0)


def _is_vector(fragment: Fragment, value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == fragment.anchor_N.shape


def _is_named(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(name, str) for name in value)


def _named(fragment: Fragment, values_N: torch.Tensor) -> Named:
    parts = zip(fragment.parameters.items(), fragment.split(values_N), strict=True)
    return {name: _as(parameter, part_N) for (name, parameter), part_N in parts}


def _as(parameter: torch.Tensor, part_N: torch.Tensor) -> torch.Tensor:
    """In the parameter's shape, and sharded as it is."""
    if not isinstance(parameter, DTensor):
        return part_N.view(parameter.shape)
    return DTensor.from_local(
        part_N.view(parameter.to_local().shape),
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _flat(fragment: Fragment, named: Named) -> torch.Tensor:
    if named.keys() != fragment.parameters.keys():
        missing = sorted(fragment.parameters.keys() ^ named.keys())
        raise ValueError(f"state of {len(named)} parameters for {len(fragment.parameters)}: {', '.join(missing[:4])}")
    found = [_whole_or_shard(named[name]) for name in fragment.parameters]
    sizes, wanted = [one.numel() for one in found], [one.numel() for one in fragment.split(fragment.anchor_N)]
    if sizes != wanted:
        raise ValueError(f"state of parameters of {sizes} values for {wanted}")
    return torch.cat([one.detach().flatten() for one in found]).to(fragment.anchor_N)


def _whole_or_shard(value: torch.Tensor) -> torch.Tensor:
    return value.to_local() if isinstance(value, DTensor) else value
