"""The name by which scripts import `LayeredModel`."""

from hulk_runtime.training.layered_model import Whole

__all__ = ["Whole"]
