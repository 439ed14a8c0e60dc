"""torchtitan's own program, on processors: `torchtitan_script.py --module torchtitan_script ...`.

It takes CUDA where torch names no accelerator: here torch names the processor, and says of it what it says of others.
"""

from types import SimpleNamespace
from typing import Any

import torch
from hulk_runtime.collective import backend
from torch.distributed.fsdp import FSDPModule

PLANNED: list[int] = []
"""Numbers in what was summed over planned flows."""


class Counted(backend.PlannedWork):
    """Is told of."""

    def __init__(self, between: Any, carried: Any) -> None:
        PLANNED.append(carried.vector_N.numel())
        super().__init__(between, carried)


def on_processors() -> None:
    """Before torchtitan is imported, which asks torch once."""
    torch._utils._get_available_device_type = lambda: "cpu"  # type: ignore[attr-defined]
    vars(torch.cpu).update(
        current_device=lambda: 0,
        empty_cache=lambda: None,
        get_device_name=lambda device: "cpu",
        get_device_properties=lambda device: SimpleNamespace(total_memory=1),
        memory_stats=lambda device: {},
        reset_peak_memory_stats=lambda: None,
    )


def llama3() -> Any:
    """Its smallest model, with the attention that torch can train without CUDA."""
    from torchtitan.models.common.attention import ScaledDotProductAttention
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    config = llama3_debugmodel()
    for layer in config.model_spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    config.model_spec.post_optimizer_build_fn = sum_without_factors
    return config


def sum_without_factors(optimizers: Any, parts: list[torch.nn.Module], dimensions: Any) -> None:
    """Gloo has no sum that multiplies, which FSDP2 takes where it is not to divide."""
    for module in (module for part in parts for module in part.modules()):
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)


if __name__ == "__main__":
    on_processors()
    from torchtitan.train import main

    backend.PlannedWork = Counted  # type: ignore[misc]
    main()
    print(f"planned {sum(PLANNED)}", flush=True)
