"""The file that names the trials of a worker -> trials, devices and settings; and the file that says how they are.

The trials' file, all but `version` and `trials` may be left out:

    {"version": 1,
     "devices": {"kind": "host", "count": 2, "memoryBytes": 50000000},
     "scheduler": "lrtf", "doubleBuffer": true,
     "trials": [{"name": "a", "model": "my_models:make", "parameters": {"width": 64}, "steps": 100, "seed": 0}]}

`model` is a function of the parameters that returns a `hulk_runtime.sharp.Model`. Devices are `cuda` (all GPUs of the
worker, `memoryBytes` of each) or `host`. Checkpoints are where HULK_CHECKPOINT_URL says, one folder per trial.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from hulk_runtime.errors import ConfigurationError
from hulk_runtime.sharp.trial import Model, Trial


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="forbid")


class TrialDocument(_Part):
    """One trial."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
    model: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    parameters: dict[str, Any] = {}
    steps: Annotated[int, Field(ge=1)]
    seed: int = 0

    def trial(self) -> Trial:
        """Import the function. Raises ConfigurationError."""
        function = _function(self.name, self.model)
        return Trial(self.name, lambda: function(**self.parameters), self.steps, self.seed)


class DevicesDocument(_Part):
    """The worker's devices. `memory_bytes` None: all of a GPU's; of the host's devices it must be said."""

    kind: Literal["host", "cuda"] = "cuda"
    count: Annotated[int, Field(ge=1)] | None = None
    memory_bytes: Annotated[int, Field(ge=1)] | None = None


class SweepDocument(_Part):
    """The whole file."""

    version: Literal[1]
    devices: DevicesDocument = DevicesDocument()
    scheduler: Literal["lrtf", "random", "fifo", "exact"] = "lrtf"
    double_buffer: bool = True
    trials: Annotated[tuple[TrialDocument, ...], Field(min_length=1)]


def read(path: str) -> SweepDocument:
    """Raises ConfigurationError that names the field."""
    try:
        document = SweepDocument.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"trials: cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigurationError(f"trials: {path}: {where}: {first['msg']}") from error
    names = [trial.name for trial in document.trials]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"trials: {path}: {', '.join(twice)}: more than one trial has this name")
    return document


def _function(trial: str, path: str) -> Callable[..., Model]:
    module, _, name = path.partition(":")
    try:
        return cast(Callable[..., Model], getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"trial {trial}: cannot import {path}: {error}") from error
