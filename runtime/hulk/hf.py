"""DiLoCo in the Trainer of Hugging Face's transformers: one line beside the script's own.

    trainer.add_callback(hulk.hf.DiLoCoCallback(trainer, sync_every=50))

Each checkpoint of the Trainer gets a file for each rank, with which training resumes from the last outer step.
"""

import os
from typing import Any

import torch
from hulk_runtime.diloco.context import DiLoCo
from transformers import Trainer, TrainerCallback

PREFIX = "checkpoint"
"""Of the Trainer's folders."""


class DiLoCoCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not there where types are checked
    """Replicas train apart while the Trainer trains; `settings` are those of `hulk.DiLoCo`."""

    def __init__(self, trainer: Trainer, **settings: Any) -> None:
        self._trainer, self._settings = trainer, settings
        self.diloco: DiLoCo | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        """The model is wrapped by now, and a checkpoint is read."""
        self._leave(KeyboardInterrupt)  # a training that broke off
        diloco = DiLoCo(self._trainer.model_wrapped, optimizer, **self._settings)
        path = _path(args, state)
        if state.global_step and os.path.exists(path):
            diloco.load_state_dict(torch.load(path, weights_only=True))
        self.diloco = diloco.__enter__()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Beside what the Trainer saves."""
        assert self.diloco is not None
        os.makedirs(os.path.dirname(_path(args, state)), exist_ok=True)
        torch.save(self.diloco.state_dict(), _path(args, state))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """All replicas come together once more."""
        self._leave(None)

    def _leave(self, kind: type[BaseException] | None) -> None:
        left, self.diloco = self.diloco, None
        if left is not None:
            left.__exit__(kind, None, None)


def _path(args: Any, state: Any) -> str:
    return os.path.join(args.output_dir, f"{PREFIX}-{state.global_step}", f"diloco-{args.process_index}.pt")
