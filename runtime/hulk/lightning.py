"""DiLoCo in PyTorch Lightning's Trainer: a callback beside the script's own.

    lightning.Trainer(strategy="ddp", callbacks=[hulk.lightning.DiLoCoCallback(sync_every=50)], ...)

Lightning's checkpoints hold where all replicas began and the outer step's state: training resumes from there.
"""

from typing import Any

import lightning
from hulk_runtime.diloco.context import DiLoCo

_OF_ALL = ("global", "outer", "begun")
"""What is the same on all replicas: of a Lightning checkpoint all ranks read what the first has written."""


class DiLoCoCallback(lightning.Callback):  # type: ignore[misc]  # lightning is not there where types are checked
    """Replicas train apart while the Trainer fits; `settings` are those of `hulk.DiLoCo`."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._loaded: dict[str, Any] | None = None
        self.diloco: DiLoCo | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The model is wrapped by now, and a checkpoint is read."""
        found = trainer.optimizers
        diloco = DiLoCo(trainer.strategy.model, found[0] if len(found) == 1 else found, **self._settings)
        if self._loaded:
            diloco.load_state_dict(self._loaded)
        self.diloco = diloco.__enter__()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """All replicas come together once more."""
        self._leave(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Nobody is waited for."""
        self._leave(exception)

    def state_dict(self) -> dict[str, Any]:
        """As Lightning asks for it."""
        if self.diloco is None:
            return {}
        found = self.diloco.state_dict()
        shared = [{key: fragment[key] for key in _OF_ALL} for fragment in found["fragments"]]
        return {**found, "fragments": shared}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Used when training starts."""
        self._loaded = state_dict

    def _leave(self, error: BaseException | None) -> None:
        left, self.diloco = self.diloco, None
        if left is not None:
            left.__exit__(None if error is None else type(error), error, None)
