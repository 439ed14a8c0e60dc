"""What a layout costs: the crate's `closed_form::evaluate`, which all searches go by and `cost.predict` agrees with."""

from __future__ import annotations

from hulk_native import evaluate, lacking_cells, memory_bytes, time_replicas

__all__ = ["evaluate", "lacking_cells", "memory_bytes", "time_replicas"]
