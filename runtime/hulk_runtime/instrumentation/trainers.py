"""Trainers of which it is known where their optimizer is train apart by themselves, where the job's replicas do so.

Also in one region, where no sums are planned.
"""

import functools
import importlib
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def hugging_face(transformers_trainer: ModuleType) -> None:
    """Its Trainer gets the callback that a script would give it."""

    def add(trainer: Any) -> None:
        from hulk.hf import DiLoCoCallback  # imports the Trainer

        if not any(isinstance(each, DiLoCoCallback) for each in trainer.callback_handler.callbacks):
            trainer.add_callback(DiLoCoCallback(trainer))
            _say("Hugging Face's Trainer")

    _once_made(transformers_trainer.Trainer, add)


def lightning(lightning_trainer: ModuleType) -> None:
    """As its Trainer's first callback; of whichever package it is, it takes that one's callbacks."""
    package = lightning_trainer.__name__.partition(".")[0]

    def add(trainer: Any) -> None:
        from hulk_runtime.diloco.in_lightning import Hooks  # imports torch

        if not any(isinstance(each, Hooks) for each in trainer.callbacks):
            trainer.callbacks.insert(0, importlib.import_module(f"hulk.{package}").DiLoCoCallback())
            _say("Lightning's Trainer")

    _once_made(lightning_trainer.Trainer, add)


def _once_made(trainer: Any, add: Callable[[Any], None]) -> None:
    """`add` gets each new trainer of a class, where the job's replicas train apart."""
    init = trainer.__init__

    @functools.wraps(init)
    def with_callback(self: Any, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        if _trains_apart():
            add(self)

    trainer.__init__ = with_callback


def _trains_apart() -> bool:
    from hulk_runtime.collective import planned_sums  # imports torch

    plan = planned_sums.plan()
    return plan is not None and plan.inner_steps is not None


def _say(trainer: str) -> None:
    from hulk_runtime.collective import planned_sums
    from hulk_runtime.job import environment

    plan = planned_sums.plan()
    assert plan is not None
    if environment.read(os.environ).rank == 0:
        print(f"hulk: {trainer} trains by DiLoCo in rounds of {plan.inner_steps} steps", file=sys.stderr, flush=True)
