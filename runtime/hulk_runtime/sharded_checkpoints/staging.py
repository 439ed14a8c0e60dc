"""A state dict -> its copy in the CPU's memory, so that training goes on while the copy is written.

Torch's own asynchronous save copies only what is on another device in some of its versions, and changes its stagers
from one version to the next. The memory is taken once and used again: pinned, where there is a GPU, so that its copies
take a fraction of the time.
"""

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from hulk_runtime.errors import ConfigurationError


class Staging:
    """The copy's memory."""

    def __init__(self) -> None:
        self._held: dict[tuple[object, ...], torch.Tensor] = {}

    def copied(self, state: dict[str, Any]) -> dict[str, Any]:
        """The same values, which nobody changes before the next call."""
        with torch.no_grad():
            found: dict[str, Any] = self._copied(state, ())
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return found

    def _copied(self, value: Any, path: tuple[object, ...]) -> Any:
        if isinstance(value, dict):
            return {key: self._copied(each, (*path, key)) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._copied(each, (*path, number)) for number, each in enumerate(value))
        if not isinstance(value, torch.Tensor):
            return value
        if hasattr(value, "local_shards"):
            raise ConfigurationError(
                f"{'.'.join(map(str, path))} is a ShardedTensor, of FullyShardedDataParallel without a device mesh: "
                "give it one, or use fully_shard"
            )
        return self._tensor(value.detach(), path)

    def _tensor(self, value: torch.Tensor, path: tuple[object, ...]) -> torch.Tensor:
        held = self._held.get(path)
        if held is None or _layout(held) != _layout(value):
            held = self._held[path] = _memory(value)
        into, of = (held.to_local(), value.to_local()) if isinstance(value, DTensor) else (held, value)  # type: ignore[attr-defined]
        into.copy_(of, non_blocking=of.is_cuda)
        return held


def _layout(value: torch.Tensor) -> tuple[object, ...]:
    sharded = (value.device_mesh, value.placements) if isinstance(value, DTensor) else ()
    return value.shape, value.dtype, sharded


def _memory(value: torch.Tensor) -> torch.Tensor:
    """Of a shard a DTensor of the same mesh: where its values are is of no matter to who writes them."""
    found = torch.empty_like(value, device="cpu")
    if not value.is_cuda:
        return found
    if isinstance(found, DTensor):
        found._local_tensor = found._local_tensor.pin_memory()
        return found
    return found.pin_memory()
