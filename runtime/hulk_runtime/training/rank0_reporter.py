"""Rank 0's pen: the log line of each step, the job's metrics, and checkpoints written behind the training's back."""

import math
from concurrent.futures import Future, ThreadPoolExecutor

from prometheus_client import CollectorRegistry

from hulk_runtime import background, errors
from hulk_runtime.checkpoints.fenced_checkpoints import Checkpoints, Entry
from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.checkpoints.signing import Owner
from hulk_runtime.collective.process_group import Group
from hulk_runtime.collective.wire.membership import Membership
from hulk_runtime.errors import CheckpointError
from hulk_runtime.job import peer_secret
from hulk_runtime.job.environment import Environment
from hulk_runtime.plan.wire import Plan
from hulk_runtime.training import state
from hulk_runtime.training.all_reduce_report import WanReport, lines
from hulk_runtime.training.data_parallel import StepReport
from hulk_runtime.training.metrics import JobMetrics, WanCollector
from hulk_runtime.training.pipeline_stepper import StageStepper
from hulk_runtime.training.region_loss import Regrouped, left_out
from hulk_runtime.training.sharded_stepper import ShardedStepper
from hulk_runtime.training.state import Saved
from hulk_runtime.training.stepper import Stepper, Timing

AnyStepper = Stepper | StageStepper | ShardedStepper


class Rank0Reporter:
    """Only rank 0 has one, or the lowest rank that is left. `group`: in which gradients are summed.

    At most one checkpoint is under way; training goes on meanwhile with a copied state.
    """

    def __init__(self, environment: Environment, plan: Plan, registry: CollectorRegistry, group: Group) -> None:
        self._plan = plan
        self._metrics = JobMetrics(
            registry, plan.nodes_by_rank(), plan.inner_steps, plan.warmup_steps, plan.layout.ranks_apart
        )
        all_reduce = "wan" if group.wan else "ring"
        self._sums = f"backend={group.backend} all_reduce={all_reduce}"
        self._metrics.set_info(environment.attempt, group.backend, all_reduce)
        self._wan = WanReport(group.wan.collective) if group.wan else None
        if self._wan:
            registry.register(WanCollector(self._wan.figures))
        self._metrics.set_membership(0, range(plan.num_ranks))
        self._membership = Membership(0, frozenset(range(plan.num_ranks)))
        self.checkpoints = open_checkpoints(environment)
        self._every_steps = environment.checkpointing.every_steps if environment.checkpointing else 0
        self._pool = ThreadPoolExecutor(1, "hulk-checkpoint")
        self._under_way: Future[Entry] | None = None
        self._saved_step = 0
        self._last: Entry | None = None
        self._loss: float | None = None
        self._sent_bytes = 0

    def introduce(self, stepper: AnyStepper) -> None:
        """Say what is about to run."""
        plan = self._plan
        self._metrics.set_model(stepper.num_parameters)
        num_buckets, bucket_bytes = stepper.buckets
        local = f"inner_steps={plan.inner_steps} " if plan.inner_steps else ""
        predicted = f"{plan.prediction.step_seconds:.3f}" if plan.prediction else "unknown"
        say(
            f"job={plan.job} attempt={plan.attempt} ranks={plan.num_ranks} {self._sums} "
            f"parameters={stepper.num_parameters} buckets={num_buckets} "
            f"{local}planned_step_s={predicted} order={','.join(plan.nodes_by_rank()[:64])}"
        )
        is_whole = plan.transport is not None and plan.layout.pipeline * plan.layout.width == 1
        planned = plan.transport.bucket_bytes if plan.transport and is_whole else bucket_bytes
        if planned != bucket_bytes:
            say(f"buckets of {bucket_bytes} bytes, planned {planned}: this is not the model of the plan")

    def resumed(self, step: int) -> None:
        """Note where the run begins."""
        self._saved_step = step
        self._tell_refused()
        say(f"resumed after step {step}" if step else "starting at step 1")

    def regrouped(self, found: Regrouped) -> None:
        """The ranks that are left go on: no other may commit any more. Raises FencedError.

        The loss of the step after which they do is told again: who wrote the log may have been lost before its line.
        """
        membership = found.membership
        self._end_saving(tolerate=True)
        if self.checkpoints:
            self.checkpoints.take_over(membership.epoch)
        self._membership = membership
        if self._wan:
            self._wan.regrouped()
        self._metrics.set_membership(membership.epoch, membership.members)
        without = ",".join(left_out(self._plan, membership))
        loss = ""
        if not math.isnan(found.loss):
            self._loss, loss = found.loss, f" loss={found.loss:.4f}"
        ranks = len(membership.members)
        say(f"epoch={membership.epoch} without={without} ranks={ranks} go on after step {found.step}{loss}")

    def wants(self, step: int) -> bool:
        """Whether the state after `step` is due in a checkpoint."""
        return self.checkpoints is not None and step // self._every_steps > self._saved_step // self._every_steps

    def completed(
        self, step: int, timing: Timing, report: StepReport, stepper: AnyStepper, saved: Saved | None = None
    ) -> None:
        """One step is done: log it, show it, and save it when its turn has come.

        `saved` is what ranks have written or gathered of it together; a rank that holds everything needs nobody.
        A step that the ranks made each by itself is told as rank 0 saw it, and ends with `of=rank0`.
        """
        bytes_now = stepper.sent_bytes - self._sent_bytes
        self._sent_bytes = stepper.sent_bytes
        self._loss = report.loss
        self._metrics.set_step(step, timing.step_s, stepper.sent_bytes, report)
        if self._wan and report.of_all:
            self._wan.completed(report)
        slowest_s = max(own.compute_s for own in report.ranks)
        say(
            f"step={step} loss={report.loss:.4f} step_s={timing.step_s:.4f} compute_s={timing.compute_s:.4f} "
            f"communication_s={timing.communication_s:.4f} slowest_s={slowest_s:.4f} bytes={bytes_now}"
            f"{'' if report.of_all else ' of=rank0'}"
        )
        if isinstance(stepper, Stepper) and report.save:
            saved = state.saved(stepper, self._plan.training.optimizer)
        if self.checkpoints and saved:
            self._begin_saving(step, saved)
        elif self.checkpoints and report.save:
            self._saved_step = step  # not written: again when the next one is due, not in every step

    def close(self, step: int, stepper: AnyStepper) -> None:
        """Say what all-reduces took; save the last step, unless it is saved, and say so when it is committed.

        Raises CheckpointError.
        """
        for line in lines(self._wan.figures()) if self._wan else ():
            say(line)
        if self.checkpoints and step > self._saved_step and isinstance(stepper, Stepper):
            self._begin_saving(step, state.saved(stepper, self._plan.training.optimizer))
        self._end_saving(tolerate=False)
        self._pool.shutdown()
        if self._loss is not None:
            saved_bytes = self._last.num_bytes if self._last else 0
            epoch, without = self._membership.epoch, left_out(self._plan, self._membership)
            errors.write_termination_message(
                errors.termination_record(self._plan.attempt, step, self._loss, saved_bytes, epoch, without)
            )

    def _begin_saving(self, step: int, saved: Saved) -> None:
        assert self.checkpoints is not None
        self._end_saving(tolerate=True)
        save = background.work_of("hulk-checkpoint", self._save)
        self._under_way = self._pool.submit(save, self.checkpoints, step, saved)
        self._saved_step = step

    def _end_saving(self, tolerate: bool) -> None:
        """A store that fails now and then costs only the time since the last checkpoint; a fence is final."""
        if self._under_way is None:
            return
        try:
            self._under_way.result()
        except CheckpointError as error:
            if not tolerate:
                raise
            say(f"checkpoint not written, training goes on: {error}")
        finally:
            self._under_way = None

    def _save(self, checkpoints: Checkpoints, step: int, saved: Saved) -> Entry:
        entry = checkpoints.commit(step, saved.state, saved.content)
        self._metrics.set_checkpoint(entry.step, entry.num_bytes)
        self._tell_refused()
        self._last = entry
        say(f"checkpoint step={entry.step} bytes={entry.num_bytes} where={checkpoints.where}/{entry.key}")
        return entry

    def _tell_refused(self) -> None:
        if self.checkpoints:
            self._metrics.set_refused(self.checkpoints.signed.num_refused)


def open_checkpoints(environment: Environment) -> Checkpoints | None:
    """The folder of this very job: a job deleted and made again under its name is another job and starts anew."""
    settings, store = environment.checkpointing, open_store(environment)
    if settings is None or store is None:
        return None
    return Checkpoints(store, environment.attempt, settings.num_kept, owner_of(environment))


def owner_of(environment: Environment) -> Owner:
    """Who signs the job's checkpoints, by the secret that its ranks know each other by. Raises ConfigurationError."""
    settings = environment.checkpointing
    return Owner.of_job(
        environment.job,
        environment.job_uid,
        peer_secret.read(environment.peer_secret_path),
        trusts_store=settings is not None and settings.trusts_store,
        committed_step=settings.committed_step if settings else 0,
    )


def open_store(environment: Environment) -> Store | None:
    """The folder that `open_checkpoints` keeps them in; None where the job has no store."""
    settings = environment.checkpointing
    if settings is None:
        return None
    return Store(f"{settings.url.rstrip('/')}/{environment.job_uid or environment.job}")


def say(line: str) -> None:
    """One line of the job's log, at once and whole: checkpoints are committed by another thread."""
    print(f"{line}\n", end="", flush=True)
