"""What a script takes from Hulk, where it wants more than a plan; each name is imported when it is first used.

hulk.report              tell the step and the loss to whoever watches the job
hulk.device_mesh         the plan as torch's DeviceMesh
hulk.Checkpointer        sharded checkpoints: written while training goes on, resumed on another layout
hulk.DiLoCo              replicas train apart and come together once a round
hulk.Outer               DiLoCo's outer learning rate and momentum
hulk.hf                  DiLoCo in the Trainer of Hugging Face's transformers
hulk.lightning           DiLoCo in PyTorch Lightning's Trainer
hulk.pytorch_lightning   the same, where a script imports pytorch_lightning
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hulk_runtime.collective.device_mesh import device_mesh
    from hulk_runtime.diloco.context import DiLoCo
    from hulk_runtime.diloco.outer_step import Outer
    from hulk_runtime.job.step_record import report
    from hulk_runtime.sharded_checkpoints.checkpointer import Checkpointer

__all__ = ["Checkpointer", "DiLoCo", "Outer", "device_mesh", "report"]

_MODULES: Final = {
    "Checkpointer": "hulk_runtime.sharded_checkpoints.checkpointer",
    "DiLoCo": "hulk_runtime.diloco.context",
    "Outer": "hulk_runtime.diloco.outer_step",
    "device_mesh": "hulk_runtime.collective.device_mesh",
    "report": "hulk_runtime.job.step_record",
}
_TRAINERS: Final = ("hf", "lightning", "pytorch_lightning")
"""Modules that import other projects, so that `from hulk import *` leaves them out."""


def __getattr__(name: str) -> Any:
    if name in _TRAINERS:
        return importlib.import_module(f"hulk.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'hulk' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, *_TRAINERS]
