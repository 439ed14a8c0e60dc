"""Trained weights as files of the package: arrays by name, and in the same file how they were made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Single = NDArray[np.float32]
MADE = "made"
"""The array that is a text: JSON of the command, the version of the data, the score."""


@cache
def packaged(name: str) -> Mapping[str, Single]:
    """The weights of that name that are part of the package."""
    with resources.as_file(resources.files("hulk_placement.gnn").joinpath(f"{name}.npz")) as path:
        return read(path)[0]


def read(path: Path) -> tuple[dict[str, Single], dict[str, Any]]:
    """Weights, and how they were made."""
    with np.load(path) as loaded:
        return {name: loaded[name] for name in loaded.files if name != MADE}, json.loads(str(loaded[MADE]))


def write(path: Path, weights: Mapping[str, Single], made: Mapping[str, Any]) -> None:
    """Weights and how they were made into one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {**weights, MADE: np.array(json.dumps(made))}
    np.savez(path, **arrays)
