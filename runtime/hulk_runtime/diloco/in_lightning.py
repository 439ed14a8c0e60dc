"""What Lightning's Trainer calls in DiLoCo's callback, whichever of its two packages it is of."""

from typing import Any

from hulk_runtime.diloco.context import DiLoCo


class Hooks:
    """Before the package's own Callback among a class's bases; `settings` are those of `hulk.DiLoCo`."""

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
        """Of a Lightning checkpoint all ranks read what the first has written."""
        return {} if self.diloco is None else self.diloco.shared_state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Used when training starts."""
        self._loaded = state_dict

    def _leave(self, error: BaseException | None) -> None:
        left, self.diloco = self.diloco, None
        if left is not None:
            left.__exit__(None if error is None else type(error), error, None)
