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
        if held is None or hashlib.sha256(held).hexdigest() != self.sha256:
            found = "is missing" if held is None else f"has {len(held)} bytes of other content"
            raise CheckpointError(f"{store.url}/{self.key} {found}")
        return held


class Index(BaseModel):
    """All parts; each has as many vectors: the parameters, then those of the optimizer."""

    model_config = ConfigDict(frozen=True)

    num_vectors: Annotated[int, Field(ge=1)]
    parts: tuple[Part, ...]


def wrong(index: bytes, store: Store) -> str:
    """What is not as it was written, empty when all is."""
    for part in Index.model_validate_json(index).parts:
        try:
            part.read(store)
        except CheckpointError as error:
            return str(error)
    return ""
