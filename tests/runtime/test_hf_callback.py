"""hulk.hf in a Trainer that calls back in the order of transformers': what it saves, loads and leaves at its end."""

import copy
import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import hulk
import pytest
import torch

RATE = 0.1
SETTINGS = {"sync_every": 2, "outer": hulk.Outer(0.5, 0.0)}


class Callback:
    """As transformers.TrainerCallback."""


class Trainer:
    """One process that trains by steps of gradients of one; it evaluates and saves after each step, or each epoch.

    `best`: the step whose weights it loads at its end. `stops`: the step whose evaluation stops the training.
    """

    def __init__(
        self, folder: Path, num_steps: int, best: int = 0, stops: int = 0, epoch: int = 0, momentum: float = 0.0
    ) -> None:
        torch.manual_seed(0)
        self.model = self.model_wrapped = torch.nn.Linear(2, 2, bias=False)
        self.args = SimpleNamespace(output_dir=str(folder), process_index=0)
        self.callbacks: list[Any] = []
        self.saved: dict[int, torch.Tensor] = {}
        self._num_steps, self._best, self._stops, self._epoch = num_steps, best, stops, epoch
        self._momentum = momentum

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def remove_callback(self, kind: type) -> None:
        self.callbacks = [one for one in self.callbacks if not isinstance(one, kind)]

    def train(self, resume_from_checkpoint: str | None = None) -> torch.Tensor:
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE, momentum=self._momentum)
        first = int(resume_from_checkpoint.rpartition("-")[2]) if resume_from_checkpoint else 0
        self._state, self._control = SimpleNamespace(global_step=first), SimpleNamespace(should_training_stop=False)
        self._call("on_train_begin", optimizer=self._optimizer)
        while not self._control.should_training_stop:
            self._train_epoch()
        self._call("on_log")
        if self._best:
            self.model.weight.data.copy_(self.saved[self._best])
        self._call("on_train_end")
        return self.model.weight.detach()

    def _train_epoch(self) -> None:
        for _ in range(self._epoch or self._num_steps):
            self._train_step()
            if self._control.should_training_stop:
                break
        self._call("on_epoch_end")
        if self._epoch:
            self._evaluate_and_save()

    def _train_step(self) -> None:
        self.model.weight.grad = torch.ones(2, 2)
        self._optimizer.step()
        self._state.global_step += 1
        self._control.should_training_stop = self._state.global_step == self._num_steps
        self._call("on_step_end")
        if not self._epoch:
            self._evaluate_and_save()

    def _evaluate_and_save(self) -> None:
        self._control.should_training_stop |= self._state.global_step == self._stops
        self.saved[self._state.global_step] = self.model.weight.detach().clone()
        self._call("on_save")

    def _call(self, event: str, **named: Any) -> None:
        for callback in self.callbacks:
            if method := getattr(callback, event, None):
                method(self.args, self._state, self._control, **named)


@pytest.fixture
def hf(monkeypatch: pytest.MonkeyPatch) -> Any:
    """hulk.hf over this module's Trainer."""
    transformers = ModuleType("transformers")
    vars(transformers).update(Trainer=Trainer, TrainerCallback=Callback)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.delitem(sys.modules, "hulk.hf", raising=False)
    yield importlib.import_module("hulk.hf")
    sys.modules.pop("hulk.hf", None)


def apart(hf: Any, trainer: Trainer, **settings: Any) -> Trainer:
    trainer.add_callback(hf.DiLoCoCallback(trainer, **(SETTINGS | settings)))
    return trainer


@pytest.mark.parametrize(
    ("best", "end"),
    [(1, {}), (3, {"stops": 3}), (5, {"stops": 5, "epoch": 5})],
    ids=["last step", "stopped after a step", "stopped after an epoch"],
)
def test_the_best_model_stays_as_it_was_loaded(hf: Any, tmp_path: Path, best: int, end: dict[str, Any]) -> None:
    """The training ends one step into a round, which is merged before the best checkpoint is loaded."""
    trainer = apart(hf, Trainer(tmp_path, 7 if end else 5, best=best, **end))
    assert torch.equal(trainer.train(), trainer.saved[best])


def test_the_last_checkpoint_holds_what_all_replicas_have(hf: Any, tmp_path: Path) -> None:
    """Outer steps with 0.5 go half of the way: of two steps, and of the third alone."""
    trainer = apart(hf, Trainer(tmp_path, 3))
    start = trainer.model.weight.detach().clone()
    last = trainer.train()
    torch.testing.assert_close(last, start - RATE - RATE / 2)
    assert torch.equal(trainer.saved[3], last)
    state = torch.load(tmp_path / "checkpoint-3" / "diloco-0.pt")["diloco"]
    assert state["step"] == 3
    assert torch.equal(state["fragments"][0]["global"]["weight"], last)


def test_it_resumes_from_a_checkpoint_in_any_folder(hf: Any, tmp_path: Path) -> None:
    """Which was saved after step 3, one step into a round: the replica goes on from its own weights and momentum."""
    whole = apart(hf, Trainer(tmp_path / "first", 4, momentum=0.9)).train()
    second = apart(hf, Trainer(tmp_path / "second", 4, momentum=0.9))
    assert torch.equal(second.train(resume_from_checkpoint=str(tmp_path / "first" / "checkpoint-3")), whole)


def test_what_it_does_not_find_it_says(hf: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apart(hf, Trainer(tmp_path, 4)).train(str(tmp_path / "elsewhere" / "checkpoint-3"))
    path = tmp_path / "elsewhere" / "checkpoint-3" / "diloco-0.pt"
    assert f"resumes without DiLoCo's state, {path} is not there" in capsys.readouterr().err
    apart(hf, Trainer(tmp_path, 2)).train()
    assert not capsys.readouterr().err


def test_a_scripts_own_callback_takes_the_place_of_the_one_that_came_by_itself(hf: Any, tmp_path: Path) -> None:
    trainer = apart(hf, Trainer(tmp_path, 2))
    start = copy.deepcopy(trainer.model)
    torch.testing.assert_close(apart(hf, trainer, outer=hulk.Outer(1.0, 0.0)).train(), start.weight.detach() - 2 * RATE)
