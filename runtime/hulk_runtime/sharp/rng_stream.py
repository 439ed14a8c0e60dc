"""A trial's random numbers: those that it would have drawn alone, though other models draw at the same time."""

import threading
from collections.abc import Callable
from typing import Any, Final

import torch

from hulk_runtime.errors import ConfigurationError

DEFAULT_GENERATOR: Final = threading.Lock()
"""Torch has one default generator for all threads."""


class Stream:
    """The state of the default generators as the trial sees them, one for the host and one for all GPUs."""

    def __init__(self, seed: int, state: torch.Tensor) -> None:
        self.seed = seed
        self.host = state
        self.gpu: torch.Tensor | None = None
        self.is_sealed = False
        """Whether nothing may be drawn: what a backward pass draws is not what it would be alone."""

    def copy(self) -> "Stream":
        """Another one that goes on from here. A state is never changed, only put in another's place."""
        other = Stream(self.seed, self.host)
        other.gpu = self.gpu
        return other

    def sealed(self) -> "Stream":
        """A copy from which nothing may be drawn."""
        other = self.copy()
        other.is_sealed = True
        return other

    def draw(self, function: Callable[[], Any]) -> Any:
        """What the function makes with the trial's state as torch's default one. Raises ConfigurationError (sealed)."""
        if self.is_sealed:
            raise ConfigurationError(
                "random numbers are drawn in a backward pass or an update (torch.utils.checkpoint over dropout, an "
                "optimizer with noise): they would not be those of the model alone"
            )
        with DEFAULT_GENERATOR:
            others = torch.get_rng_state()
            torch.set_rng_state(self.host)
            try:
                return function()
            finally:
                self.host = torch.get_rng_state()
                torch.set_rng_state(others)
