"""The name by which scripts import `LayeredModel`."""

from hulk_runtime.training.layered_model import LayeredModel as Whole

__all__ = ["Whole"]
