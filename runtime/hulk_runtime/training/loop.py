"""The whole run of one rank: join, measure if the plan asks, resume, train, stop in good order."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hulk_runtime.checkpoints.fenced_checkpoints import Checkpoints
from hulk_runtime.collective import init_process_group, replica_groups
from hulk_runtime.collective.peer_timeout import peer_timeout_s
from hulk_runtime.collective.process_group import Group
from hulk_runtime.collective.replica_groups import ReplicaGroups
from hulk_runtime.errors import EXIT_DONE, EXIT_STOPPED, MembershipChangedError, PeerLostError
from hulk_runtime.job.environment import Environment
from hulk_runtime.job.shutdown import Stop
from hulk_runtime.plan.wire import Plan
from hulk_runtime.training import metrics, pipeline_state, preflight, region_loss, sharded_state, state
from hulk_runtime.training.local_sgd import LocalStepper
from hulk_runtime.training.pipeline_state import Keeper
from hulk_runtime.training.pipeline_stepper import StageStepper
from hulk_runtime.training.progress_server import ProgressServer
from hulk_runtime.training.rank0_reporter import AnyStepper, Rank0Reporter, open_store, say
from hulk_runtime.training.sharded_state import ShardKeeper
from hulk_runtime.training.sharded_stepper import ShardedStepper
from hulk_runtime.training.stepper import Stepper, Task

SEED = 20260
TaskMaker = Callable[[Plan, torch.device], Task]


def run(environment: Environment, plan: Plan, make_task: TaskMaker, stop: Stop) -> int:
    """Train as planned; returns the exit code. Raises HulkError."""
    registry = metrics.process_registry()
    torch.manual_seed(SEED)  # every rank must make the same module
    task = make_task(plan, init_process_group.device(environment.local_rank))
    with contextlib.ExitStack() as stack:
        progress = None
        if environment.local_rank == 0:
            progress = stack.enter_context(
                ProgressServer(registry, environment.attempt, environment.metrics_port, environment.start_digest)
            )
        is_divided = plan.layout.width > 1 and not plan.pipeline
        group = stack.enter_context(init_process_group.connect(environment, None if is_divided else plan))
        groups = stack.enter_context(replica_groups.connect(environment, plan, group)) if is_divided else None
        stepper = make_stepper(environment, plan, group, task, groups)
        reporter = Rank0Reporter(environment, plan, registry, stepper.summing_group) if group.is_first else None
        if reporter:
            reporter.introduce(stepper)
        slowest_s = _preflight(group, stepper, progress) if plan.preflight else 0.0
        bound_s = peer_timeout_s(environment, plan, slowest_s)
        keeper = keep(environment, plan, group, stepper, bound_s)
        resumed = _resume(plan, group, stepper, reporter.checkpoints if reporter else None, keeper)
        if reporter:
            reporter.resumed(resumed)
        if plan.preflight and reporter and progress:
            _wait_for_start(progress, environment.start_s)
        stepper.set_timeout(bound_s)
        stop.training_begins()
        own_step = metrics.own_step(registry, environment.attempt)
        run = Run(
            plan,
            group,
            stepper,
            stop,
            reporter,
            lambda: Rank0Reporter(environment, plan, registry, stepper.summing_group),
            own_step.set,
        )
        run.keeper = keeper
        last = run.train(resumed)
        if run.reporter:
            run.reporter.close(last, stepper)
        return EXIT_DONE if last >= plan.training.steps else EXIT_STOPPED


@dataclass
class Run:
    """The steps of one rank. The lowest rank has a reporter; `make_reporter` makes one where a region with it was lost.

    `say_step` is told of each completed step.
    """

    plan: Plan
    group: Group
    stepper: AnyStepper
    stop: Stop
    reporter: Rank0Reporter | None
    make_reporter: Callable[[], Rank0Reporter]
    say_step: Callable[[int], None] = lambda _: None
    keeper: Keeper | ShardKeeper | None = None
    """Of a pipeline, or of replicas of several ranks, who save together."""

    def train(self, resumed: int) -> int:
        """Until the last step, or until all ranks agree to stop; returns the last step that all have in common.

        A rank leaves when all have come so far: whoever goes on without a region may need what this one has.
        """
        common, going = resumed, True
        while True:
            try:
                if not going or common >= self.plan.training.steps:
                    self.stepper.part()
                    return common
                common, going = self._round(common)
            except MembershipChangedError as error:
                say(f"after step {common}: {error}")
                common, going = self._go_on(common), True
            except PeerLostError as error:
                # Told to stop while a peer has already left: the state is still that of the last step of all.
                if not self.stop.wanted:
                    raise
                say(f"stopping after step {common} without agreement: {error}")
                return common

    def _round(self, step: int) -> tuple[int, bool]:
        """Steps until all ranks have one in common again: its number, and whether another one follows."""
        while True:
            saves = self.reporter is not None and self.reporter.wants(step + 1)
            timing, report = self.stepper.together(step + 1, self.stop.wanted, saves)
            step += 1
            self.say_step(step)
            saved = None
            if self.keeper and report.save:
                saved = self.keeper.save(step, is_last=report.stop or step >= self.plan.training.steps)
            if self.reporter:
                self.reporter.completed(step, timing, report, self.stepper, saved)
            if report.of_all:
                return step, not report.stop

    def _go_on(self, step: int) -> int:
        """Without a region that was cut off, from the step that the ranks that are left have in common."""
        assert not isinstance(self.stepper, StageStepper | ShardedStepper), (
            "stages and shards cannot go on without a region"
        )
        found = region_loss.regroup(self.plan, self.group, self.stepper, step)
        if self.group.rank == min(found.membership.members):
            self.reporter = self.reporter or self.make_reporter()
            self.reporter.regrouped(found)
        return found.step


def make_stepper(
    environment: Environment, plan: Plan, group: Group, task: Any, groups: ReplicaGroups | None = None
) -> AnyStepper:
    """For the whole model on every rank, every step together or not, for stages, or for replicas of several ranks."""
    if plan.pipeline:
        bound_s = peer_timeout_s(environment, plan)
        return StageStepper(plan, group, task, environment.metrics_port, bound_s, environment.pipeline_log)
    if groups is not None:
        return ShardedStepper(plan, group, groups, task, environment.metrics_port)
    return (LocalStepper if plan.inner_steps else Stepper)(plan, group, task, environment.metrics_port)


def keep(
    environment: Environment, plan: Plan, group: Group, stepper: AnyStepper, silence_s: float
) -> Keeper | ShardKeeper | None:
    """What saves states that no rank has alone."""
    optimizer = plan.training.optimizer
    if isinstance(stepper, StageStepper):
        return Keeper(group, stepper, optimizer, environment.attempt, open_store(environment), silence_s)
    if isinstance(stepper, ShardedStepper) and environment.checkpointing:
        return ShardKeeper(group, stepper, optimizer)
    return None


def _resume(
    plan: Plan,
    group: Group,
    stepper: AnyStepper,
    checkpoints: Checkpoints | None,
    keeper: Keeper | ShardKeeper | None,
) -> int:
    """Bring all ranks to the newest checkpoint, whichever layout has written it; its step, 0 when there is none."""
    optimizer = plan.training.optimizer
    if isinstance(stepper, StageStepper):
        assert isinstance(keeper, Keeper)
        return pipeline_state.resume(group, stepper, optimizer, checkpoints, keeper.store)

    def joined(index: bytes) -> bytes:
        assert checkpoints is not None
        return pipeline_state.joined(index, stepper.names, checkpoints.store)

    if isinstance(stepper, ShardedStepper):
        return sharded_state.resume(group, stepper, optimizer, checkpoints, joined)
    return state.resume(group, stepper, optimizer, checkpoints, joined)


def _preflight(group: Group, stepper: AnyStepper, progress: ProgressServer | None) -> float:
    """Measure and publish; what the slowest rank of a step takes, in seconds."""
    found = preflight.gather(group, preflight.measure(stepper))
    if group.is_first and progress:
        progress.publish_preflight(found)
        each = ",".join(f"{seconds:.4f}" for seconds in found.compute_s)
        say(f"preflight compute_s={each} slowest_s={found.slowest_s:.4f}")
    return found.slowest_s


def _wait_for_start(progress: ProgressServer, timeout_s: float) -> None:
    if progress.wait_for_start(timeout_s):
        say("start: the prediction is written")
    else:
        say(f"start: no go from the operator within {timeout_s:g} s, starting without it")
