"""A trial's random numbers: those that it would have drawn alone, though other models draw at the same time."""

import threading
from collections.abc import Callable
from typing import Any, Final

import torch

DEFAULT_GENERATOR: Final = threading.Lock()
"""Torch has one default generator for all threads."""


class Stream:
    """The state of the default generators as the trial sees them, one for the host and one for all GPUs."""

    def __init__(self, seed: int, state: torch.Tensor) -> None:
        self.seed = seed
        self.host = state
        self.gpu: torch.Tensor | None = None

    def copy(self) -> "Stream":
        """Another one that goes on from here."""
        other = Stream(self.seed, self.host.clone())
        other.gpu = None if self.gpu is None else self.gpu.clone()
        return other

    def draw(self, function: Callable[[], Any]) -> Any:
        """What the function makes with the trial's state as torch's default one, on the host."""
        with DEFAULT_GENERATOR:
            others = torch.get_rng_state()
            torch.set_rng_state(self.host)
            try:
                return function()
            finally:
                self.host = torch.get_rng_state()
                torch.set_rng_state(others)
