"""What DiLoCo knows of this replica <-> a part of the state dict: where all began, the outer step, sums under way.

What quantised outer gradients have rounded off is of ranks, not of parameters, and is left out: a resumed replica
begins with none.
"""

from collections.abc import Collection
from typing import Any, Final

import torch

from hulk_runtime.diloco.context import DiLoCo

KEY: Final = "diloco"
_KEPT: Final = ("global", "outer", "begun", "under_way")


def of_replica(diloco: DiLoCo) -> dict[str, Any]:
    """Tensors are DiLoCo's own memory."""
    found = diloco.state_dict()
    fragments = {
        str(number): {key: fragment[key] for key in _KEPT if key in fragment}
        for number, fragment in enumerate(found["fragments"])
    }
    return {KEY: {"step": found["step"], "fragments": fragments}}


def to_fill(diloco: DiLoCo, names: Collection[str]) -> dict[str, Any]:
    """The same with room for sums that were under way in a checkpoint with these names."""
    found = of_replica(diloco)
    for number, fragment in found[KEY]["fragments"].items():
        if any(name.startswith(f"{KEY}.fragments.{number}.under_way.") for name in names):
            fragment["under_way"] = {name: torch.zeros_like(value) for name, value in fragment["global"].items()}
    return found


def load(diloco: DiLoCo, state: dict[str, Any]) -> None:
    """Go on from there; the model and the inner optimizer are loaded already."""
    found = state[KEY]
    fragments = [found["fragments"][str(number)] for number in range(len(found["fragments"]))]
    diloco.load_state_dict({"step": found["step"], "fragments": fragments}, keep_model=True)
