"""Reads what torch.distributed.checkpoint has written, without running what its index might say.

The index is a pickle, which names what is called when it is read. Here it may name only what an index of tensors is
made of; torch itself reads the tensors as weights only.
"""

import pickle
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

INDEX: Final = ".metadata"
_OF_TENSORS: Final = frozenset(
    {
        ("pathlib", "PosixPath"),
        ("pathlib._local", "PosixPath"),
        ("torch", "Size"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.distributed.checkpoint.metadata", "ChunkStorageMetadata"),
        ("torch.distributed.checkpoint.metadata", "Metadata"),
        ("torch.distributed.checkpoint.metadata", "MetadataIndex"),
        ("torch.distributed.checkpoint.metadata", "StorageMeta"),
        ("torch.distributed.checkpoint.metadata", "TensorProperties"),
        ("torch.distributed.checkpoint.metadata", "TensorStorageMetadata"),
        ("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"),
        ("torch.serialization", "_get_layout"),
    }
)
"""Without BytesStorageMetadata: what it describes torch reads as a pickle again."""


class TensorReader(FileSystemReader):
    """Of a folder that holds tensors only."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """The index. Raises RuntimeError where it names something else."""
        with (Path(self.path) / INDEX).open("rb") as file:
            found = Index(file).load()
        if not isinstance(found, Metadata):
            raise RuntimeError(f"{INDEX} is a {type(found).__name__} and no index")
        found.storage_meta = found.storage_meta or StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


class Index(pickle.Unpickler):
    """Of tensors: raises RuntimeError where it names something else."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        is_dtype = module_name == "torch" and isinstance(getattr(torch, global_name, None), torch.dtype)
        if is_dtype or (module_name, global_name) in _OF_TENSORS:
            return super().find_class(module_name, global_name)
        raise RuntimeError(f"{INDEX} names {module_name}.{global_name}, which no index of tensors has")
