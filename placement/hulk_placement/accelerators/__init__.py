"""Accelerators by product: what their data sheets say, and how much of it a training step reaches."""

from hulk_placement.accelerators.efficiency import layer_seconds, seconds
from hulk_placement.accelerators.table import Accelerator, look_up

__all__ = ["Accelerator", "layer_seconds", "look_up", "seconds"]
