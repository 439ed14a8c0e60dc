"""Accelerators by product: what their data sheets say (`table`), and how much of it a step reaches (`efficiency`)."""

from hulk_placement.accelerators.table import Accelerator, fastest, look_up

__all__ = ["Accelerator", "fastest", "look_up"]
