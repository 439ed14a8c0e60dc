"""The state of a model in stages is a list of parts, one object of each stage."""

import hashlib
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.errors import CheckpointError


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


def fault(content: bytes | None, sha256: str, num_bytes: int | None = None) -> str:
    """Why this is not what was written, empty when it is.

    >>> fault(b"te", "", 3), fault(None, "")
    ('has 2 bytes, and 3 were written', 'is missing')
    """
    if content is None:
        return "is missing"
    if num_bytes is not None and len(content) != num_bytes:
        return f"has {len(content)} bytes, and {num_bytes} were written"
    found = hashlib.sha256(content).hexdigest()
    return "" if found == sha256 else f"has SHA-256 {found}, and {sha256} was written"


def fault_of_parts(index: bytes, store: Store) -> str:
    """Why not all parts are what was written, empty when they are."""
    for part in Index.model_validate_json(index).parts:
        try:
            part.read(store)
        except CheckpointError as error:
            return f"cannot be put together: {error}"
    return ""
