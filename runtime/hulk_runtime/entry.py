"""Starts a rank's training cheaply: what can fail or be refused is looked at before torch is imported.

Importing torch takes 2.7 CPU seconds, which at a quota of 0.15 core is 18 s. A SIGTERM, a plan of another version or a
wrong setting is answered before that.
"""

import os
from typing import TYPE_CHECKING, Final, NoReturn

from hulk_runtime import errors, names
from hulk_runtime.job import cpu_threads, environment, interface
from hulk_runtime.job.shutdown import Stop, exit_now
from hulk_runtime.plan import wire

if TYPE_CHECKING:
    from hulk_runtime.training.loop import TaskMaker

NUM_CONNECTIONS: Final = 9
"""Between two ranks of a pipeline whose stages are in several regions: for a message's pieces, and for short ones."""


def run(make_task: "TaskMaker") -> int:
    """Run this process's rank to its end; returns the exit code. `make_task` may import torch when it is called."""
    stop = Stop()
    try:
        here = environment.read(os.environ)
        plan = wire.load(here.plan_path)
        _require_match(here, plan)
        cpu_threads.limit_threads()
        _use_interface(plan, here)
        from hulk_runtime.training import loop

        return loop.run(here, plan, make_task, stop)
    except errors.HulkError as error:
        return errors.report(error)


def _require_match(here: environment.Environment, plan: wire.Plan) -> None:
    if here.attempt != plan.attempt:
        raise errors.ConfigurationError(f"attempt {here.attempt} was given the plan of attempt {plan.attempt}")
    if here.world_size != plan.num_ranks:
        raise errors.ConfigurationError(
            f"world of {here.world_size} ranks, the plan has {plan.num_ranks}: with several accelerators per worker, "
            f"start the program with hulk-launch or torchrun"
        )
    layout = plan.layout
    if plan.inner_steps and layout.width > 1:
        raise errors.ConfigurationError(
            f"the plan has shard {layout.shard} and tensor {layout.tensor}, and rounds of {plan.inner_steps} steps: "
            "replicas of several ranks come together in every step"
        )


def _use_interface(plan: wire.Plan, here: environment.Environment) -> None:
    """Talk over the interface that the pod's template names, else over the one of the route to rank 0.

    Stages in several regions talk over several connections.
    """
    if plan.transport is not None and plan.transport.interface is not None:
        os.environ.setdefault(names.ENV_GLOO_INTERFACE, plan.transport.interface)
    interface.choose(os.environ, here.rendezvous_s)
    chosen = os.environ.get(names.ENV_GLOO_INTERFACE)
    if chosen and plan.pipeline and len({worker.region for worker in plan.workers}) > 1:
        os.environ[names.ENV_GLOO_INTERFACE] = several(chosen)


def several(name: str) -> str:
    """An interface so that gloo makes several connections between two ranks over it; a list stays as it is.

    >>> several("eth0")
    'eth0,eth0,eth0,eth0,eth0,eth0,eth0,eth0,eth0'
    """
    return name if "," in name else ",".join([name] * NUM_CONNECTIONS)


def leave(code: int) -> NoReturn:
    """End the process at once with what `run` returned."""
    exit_now(code)
