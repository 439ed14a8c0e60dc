"""The whole run of one rank: join, measure if the plan asks, resume, train, stop in good order."""

import contextlib
from collections.abc import Callable

import torch

from hulk_runtime import groups, metrics, preflight, state
from hulk_runtime.environment import Environment
from hulk_runtime.errors import EXIT_DONE, EXIT_STOPPED, PeerLostError
from hulk_runtime.groups import Group
from hulk_runtime.local_sgd import LocalStepper
from hulk_runtime.progress import Progress
from hulk_runtime.scribe import Scribe, say
from hulk_runtime.steps import Stepper, Task
from hulk_runtime.stopping import Stop
from hulk_runtime.wire import Plan

SEED = 20260
SILENT_STEPS = 10
SILENT_ROUNDS = 2
TaskMaker = Callable[[Plan, torch.device], Task]


def run(environment: Environment, plan: Plan, make_task: TaskMaker, stop: Stop) -> int:
    """Train as planned; returns the exit code. Raises HulkError."""
    registry = metrics.process_registry()
    torch.manual_seed(SEED)  # every rank must make the same module
    task = make_task(plan, groups.device(environment.local_rank))
    with contextlib.ExitStack() as stack:
        progress = None
        if environment.local_rank == 0:
            progress = stack.enter_context(Progress(registry, environment.attempt, environment.metrics_port))
        group = stack.enter_context(groups.connect(environment, plan))
        stepper = (LocalStepper if plan.inner_steps else Stepper)(plan, group, task, environment.metrics_port)
        scribe = Scribe(environment, plan, registry, group.backend) if group.is_first else None
        if scribe:
            scribe.introduce(stepper, group.backend)
        slowest_s = _preflight(group, stepper, progress) if plan.preflight else 0.0
        resumed = state.resume(group, stepper, plan.training.optimizer, scribe.checkpoints if scribe else None)
        if scribe:
            scribe.resumed(resumed)
        if plan.preflight and scribe and progress:
            _wait_for_start(progress, environment.start_s)
        group.bound_silence(silence_s(environment, plan, slowest_s))
        stop.training_begins()
        last = _train(plan, stepper, scribe, stop, resumed)
        if last >= plan.training.steps:
            group.part()
        if scribe:
            scribe.close(last, stepper)
        return EXIT_DONE if last >= plan.training.steps else EXIT_STOPPED


def silence_s(environment: Environment, plan: Plan, slowest_s: float) -> float:
    """How long a rank waits for a peer within a step: a slow peer may take some steps' time, a lost one takes more.

    Between two outer steps of local SGD the ranks drift apart: a slow peer may take some rounds' time more. `slowest_s`
    is what the slowest rank computed for in the preflight, after which rank 0 alone waits for the go.
    """
    num_steps = SILENT_STEPS + SILENT_ROUNDS * (plan.inner_steps or 0)
    predicted_s = plan.prediction.step_seconds if plan.prediction else 0.0
    waits_s = environment.start_s if plan.preflight else 0.0
    return max(environment.silence_s, num_steps * max(predicted_s, slowest_s)) + waits_s


def _train(plan: Plan, stepper: Stepper, scribe: Scribe | None, stop: Stop, resumed: int) -> int:
    """Steps until the last, or until all ranks agree to stop; returns the last step that all have in common."""
    step = common = resumed
    try:
        while step < plan.training.steps:
            timing, report = stepper.together(step + 1, stop.wanted, scribe is not None and scribe.wants(step + 1))
            step += 1
            common = step if report.of_all else common
            if scribe:
                scribe.completed(step, timing, report, stepper)
            if report.stop:
                break
    except PeerLostError as error:
        # Told to stop while a peer has already left: the state is still that of the last step of all.
        if not stop.wanted:
            raise
        say(f"stopping after step {common} without agreement: {error}")
    return common


def _preflight(group: Group, stepper: Stepper, progress: Progress | None) -> float:
    """Measure and publish; what the slowest rank of a step takes, in seconds."""
    found = preflight.gather(group, preflight.measure(stepper))
    if group.is_first and progress:
        progress.publish_preflight(found)
        each = ",".join(f"{seconds:.4f}" for seconds in found.compute_s)
        say(f"preflight compute_s={each} slowest_s={found.slowest_s:.4f}")
    return found.slowest_s


def _wait_for_start(progress: Progress, timeout_s: float) -> None:
    if progress.wait_for_start(timeout_s):
        say("start: the prediction is written")
    else:
        say(f"start: no go from the operator within {timeout_s:g} s, starting without it")
