"""Objects <-> bytes of a checkpoint, read without running what the bytes name.

Where nothing is signed, as by hand and with `trustStore`, anybody may have written them.
"""

import io
import pickle
from typing import Any, Final

import torch
from torch.distributed.checkpoint.metadata import Metadata
from torch.serialization import get_unsafe_globals_in_checkpoint

from hulk_runtime.errors import CheckpointError, ConfigurationError
from hulk_runtime.pipeline.checkpoint_reader import Index

_OF_OBJECTS: Final = ("torch.distributed.checkpoint.metadata", "BytesStorageMetadata")


class _Index(Index):
    """Of tensors, and of objects, which `unpacked` reads."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) == _OF_OBJECTS:
            return pickle.Unpickler.find_class(self, module_name, global_name)
        return super().find_class(module_name, global_name)


def metadata(content: bytes) -> Metadata:
    """Raises CheckpointError where they name anything that no index has."""
    try:
        found = _Index(io.BytesIO(content)).load()
    except Exception as error:  # a made-up pickle raises whatever it likes
        raise CheckpointError(str(error)) from error
    if not isinstance(found, Metadata):
        raise CheckpointError(f"an index is a {type(found).__name__}")
    return found


def packed(name: str, state: object) -> bytes:
    """As torch saves it. Raises ConfigurationError where it could not be read again."""
    file = io.BytesIO()
    torch.save(state, file)
    try:
        unpacked(name, file.getvalue())
    except CheckpointError as error:
        raise ConfigurationError(
            f"{error}: keep it as numbers, text, lists, dicts and tensors, or name it in torch.serialization."
            "add_safe_globals"
        ) from error
    return file.getvalue()


def unpacked(name: str, content: bytes | memoryview) -> Any:
    """Raises CheckpointError where it has more than numbers, text, lists, dicts and tensors."""
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        unsafe = ", ".join(get_unsafe_globals_in_checkpoint(io.BytesIO(content))) or str(error).partition("\n")[0]
        raise CheckpointError(f"the state of {name} has {unsafe}, which reading it would run") from error
