"""The state of a model in stages is a list of parts, one object of each stage."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from hulk_runtime.checkpoints.object_store import Listed, Store
from hulk_runtime.errors import CheckpointError

_VALUE_BYTES: Final = 4


class Part(BaseModel):
    """One stage's: its parameters by their names in the whole model and how many values each has."""

    model_config = ConfigDict(frozen=True)

    key: str
    sha256: str
    tensors: tuple[tuple[str, Annotated[int, Field(ge=1)]], ...]

    def read(self, store: Store) -> bytes:
        """Its vectors, one after the other. Raises CheckpointError where it is not as it was written."""
        held = store.read(self.key)
        found = fault(held, self.sha256)
        if held is None or found:
            raise CheckpointError(f"{store.url}/{self.key} {found}")
        return held


class Index(BaseModel):
    """All parts; each has as many vectors: the parameters, then those of the optimizer."""

    model_config = ConfigDict(frozen=True)

    num_vectors: Annotated[int, Field(ge=1)]
    parts: tuple[Part, ...]


def fault_of_size(found: Listed | None, num_bytes: int) -> str:
    """Why an object that is listed so need not be read: it may have more bytes than there is memory.

    >>> fault_of_size(Listed(2, ()), 3), fault_of_size(None, 3), fault_of_size(Listed(3, ()), 3)
    ('has 2 bytes, and 3 were written', 'is missing', '')
    """
    if found is None:
        return "is missing"
    return "" if found.num_bytes == num_bytes else f"has {found.num_bytes} bytes, and {num_bytes} were written"


def fault(content: bytes | None, sha256: str) -> str:
    """Why this is not what was written, empty when it is."""
    if content is None:
        return "is missing"
    found = hashlib.sha256(content).hexdigest()
    return "" if found == sha256 else f"has SHA-256 {found}, and {sha256} was written"


def fault_of_parts(content: bytes, store: Store, there: Mapping[str, Listed]) -> str:
    """Why not all parts are what was written, empty when they are. `there`: a listing of the store."""
    index = Index.model_validate_json(content)
    for part in index.parts:
        num_bytes = _VALUE_BYTES * index.num_vectors * sum(num for _, num in part.tensors)
        if found := fault_of_size(there.get(part.key), num_bytes):
            return f"cannot be put together: {part.key} {found}"
        try:
            part.read(store)
        except CheckpointError as error:
            return f"cannot be put together: {error}"
    return ""
