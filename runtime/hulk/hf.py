"""DiLoCo in the Trainer of Hugging Face's transformers: one line beside the script's own.

    trainer.add_callback(hulk.hf.DiLoCoCallback(trainer, sync_every=50))

Each checkpoint of the Trainer gets a file for each rank, with its own weights and inner optimizer: training resumes bit
for bit.
Replicas come together when the Trainer stops, before it saves its last checkpoint or loads its best one.
"""

import functools
import os
import sys
from typing import Any

import torch
from hulk_runtime.diloco import trained
from hulk_runtime.diloco.context import DiLoCo
from transformers import Trainer, TrainerCallback

PREFIX = "checkpoint"
"""Of the Trainer's folders."""


class DiLoCoCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not there where types are checked
    """Replicas train apart while the Trainer trains; `settings` are those of `hulk.DiLoCo`."""

    def __init__(self, trainer: Trainer, **settings: Any) -> None:
        trainer.remove_callback(DiLoCoCallback)  # the one that Hulk gave it by itself
        self._trainer, self._settings = trainer, settings
        self._resumed: Any = None
        self._is_apart = False
        self.diloco: DiLoCo | None = None
        self._watch_resumption()

    def on_train_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        """The model is wrapped by now, and a checkpoint is read."""
        self._leave(KeyboardInterrupt)  # a training that broke off
        self.diloco = DiLoCo(self._trainer.model_wrapped, optimizer, **self._settings)
        self._optimizer = trained.one_optimizer(optimizer)
        if state.global_step:
            folder = _folder(args, state) if isinstance(self._resumed, bool | None) else self._resumed
            self._load(_path(folder, args))
        self.diloco.__enter__()
        self._is_apart = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the last step all replicas come together, before the Trainer evaluates and saves."""
        self._leave_at_the_end(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Where an evaluation after a step has stopped the training."""
        self._leave_at_the_end(control)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Where one after an epoch has: the Trainer logs once more before it loads its best checkpoint."""
        self._leave_at_the_end(control)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Beside what the Trainer saves."""
        assert self.diloco is not None
        os.makedirs(_folder(args, state), exist_ok=True)
        own = {name: one.detach() for name, one in self._trained().items()}
        found = {"diloco": self.diloco.state_dict(), "model": own, "optimizer": self._optimizer.state_dict()}
        torch.save(found, _path(_folder(args, state), args))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Of a Trainer that has not said that it stops."""
        self._leave(None)
        self.diloco = None

    def _load(self, path: str) -> None:
        if not os.path.exists(path):
            print(
                f"hulk: training resumes without DiLoCo's state, {path} is not there: this replica begins a first "
                "round at the checkpoint's weights, or where others have their state, at their last outer step",
                file=sys.stderr,
                flush=True,
            )
            return
        assert self.diloco is not None
        found = torch.load(path, weights_only=True)
        self.diloco.load_state_dict(found["diloco"], keep_model=True)
        for name, one in self._trained().items():
            one.detach().copy_(found["model"][name])
        self._optimizer.load_state_dict(found["optimizer"])

    def _trained(self) -> dict[str, torch.nn.Parameter]:
        return trained.parameters(self._trainer.model_wrapped, self._optimizer)

    def _leave_at_the_end(self, control: Any) -> None:
        if control.should_training_stop:
            self._leave(None)

    def _leave(self, kind: type[BaseException] | None) -> None:
        was_apart, self._is_apart = self._is_apart, False
        if was_apart:
            assert self.diloco is not None
            self.diloco.__exit__(kind, None, None)

    def _watch_resumption(self) -> None:
        """Callbacks do not hear which checkpoint `train` was given."""
        train = self._trainer.train

        @functools.wraps(train)
        def watched(*arguments: Any, **options: Any) -> Any:
            self._resumed = options.get("resume_from_checkpoint", arguments[0] if arguments else None)
            return train(*arguments, **options)

        self._trainer.train = watched


def _folder(args: Any, state: Any) -> str:
    return os.path.join(args.output_dir, f"{PREFIX}-{state.global_step}")


def _path(folder: str, args: Any) -> str:
    return os.path.join(folder, f"diloco-{args.process_index}.pt")
