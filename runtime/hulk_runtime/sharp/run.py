"""Trains trials on devices: makes and cuts them, sets the devices to work, and says what became of each trial."""

import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from hulk_runtime import background
from hulk_runtime.checkpoints.signing import NOBODY, Owner
from hulk_runtime.errors import ConfigurationError, HulkError
from hulk_runtime.job.environment import Checkpointing
from hulk_runtime.sharp import pilot_partitioning, scheduling_policy
from hulk_runtime.sharp.cpu_threads import divided_threads, take_threads
from hulk_runtime.sharp.device import Device
from hulk_runtime.sharp.device_worker import DeviceWorker
from hulk_runtime.sharp.dispatcher import Dispatcher
from hulk_runtime.sharp.pilot_partitioning import Cut
from hulk_runtime.sharp.rng_stream import Stream
from hulk_runtime.sharp.scheduling_policy import Scheduler
from hulk_runtime.sharp.trial import Model, Outcome, State, Step, Trial
from hulk_runtime.sharp.trial_checkpoint import TrialCheckpoint
from hulk_runtime.sharp.trial_run import TrialRun
from hulk_runtime.sharp.unit_times import Pace

T = TypeVar("T")


def train(
    trials: Sequence[Trial],
    devices: Sequence[Device],
    *,
    scheduler: Scheduler = "lrtf",
    double_buffer: bool = True,
    report: Callable[[Step], None] = lambda _: None,
    ended: Callable[[Outcome], None] = lambda _: None,
    begins: Callable[[], None] = lambda: None,
    checkpointing: Checkpointing | None = None,
    attempt: int = 1,
    owner: Owner = NOBODY,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Outcome]:
    """Train all trials to their ends; what became of each, by its name.

    `begins` is called before the first mini-batch, when all shards are cut, `report` after each, `ended` when a trial
    has ended. With `checkpointing`, each trial has a folder of its own below the URL and goes on from what an earlier
    attempt has left there, signed by `owner`. When `stop` says so, trials end after the mini-batch that they are in,
    with a checkpoint.
    Torch's threads are divided among the devices on the host, as long as this runs. A trial that cannot be made or cut
    (a layer that is larger than the smallest device), whose loss is no number or whose own code raises is `failed`, and
    the others go on. Raises ConfigurationError when two trials have one name or scheduler `exact` has too much to
    do, CheckpointError.
    """
    names = [trial.name for trial in trials]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"trials: names must differ, and they are {', '.join(names)}")
    with divided_threads(devices):
        trial_runs, failed = prepare(trials, devices, double_buffer=double_buffer)
        for outcome in failed:
            ended(outcome)
        run = Run(trial_runs, report, stop, ended)
        if checkpointing:
            run.resume(checkpointing, attempt, owner)
        begins()
        if trial_runs:
            run.go(devices, scheduler, double_buffer)
    outcomes = [*failed, *(trial_run.outcome() for trial_run in trial_runs)]
    return {outcome.trial: outcome for outcome in outcomes}


def prepare(
    trials: Sequence[Trial], devices: Sequence[Device], *, double_buffer: bool
) -> tuple[list[TrialRun], list[Outcome]]:
    """Make the trials' models and cut them into shards, each by pilot runs on a device of the smallest memory.

    Also what became of those that cannot be trained.
    """
    least_bytes = min(device.memory_bytes for device in devices)
    smallest = [device for device in devices if device.memory_bytes == least_bytes]
    free: queue.SimpleQueue[Device] = queue.SimpleQueue()
    for device in smallest:
        free.put(device)

    def cut(trial: Trial, model: Model, stream: Stream) -> list[Cut] | Outcome:
        device = free.get()
        try:
            return attempted(trial, lambda: cut_apart(trial, model, stream, device, double_buffer))
        finally:
            free.put(device)

    made = {trial: attempted(trial, partial(make, trial)) for trial in trials}
    able = {trial: found for trial, found in made.items() if not isinstance(found, Outcome)}
    with ThreadPoolExecutor(len(smallest), "hulk-pilot", initializer=take_threads) as pool:
        cuts = dict(zip(able, pool.map(lambda trial: cut(trial, *able[trial]), able), strict=True))
    pace, trial_runs = Pace(), list[TrialRun]()
    for trial, found in cuts.items():
        if not isinstance(found, Outcome):
            trial_runs.append(trial_run(len(trial_runs), trial, *able[trial], found, smallest[0], pace))
    return trial_runs, [found for found in (*made.values(), *cuts.values()) if isinstance(found, Outcome)]


def attempted(trial: Trial, what: Callable[[], T]) -> T | Outcome:
    """What it gives; where it raises, because of this trial alone, the trial has failed."""
    try:
        return what()
    except Exception as error:  # noqa: BLE001 - the models' own code, and sizes that no device has
        if not isinstance(error, HulkError):
            traceback.print_exception(error)
        return Outcome(trial.name, "failed", 0, "", (), _told(error))


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def make(trial: Trial) -> tuple[Model, Stream]:
    """The model, and the random numbers that come after it."""
    with torch.random.fork_rng():
        torch.manual_seed(trial.seed)
        model = trial.make()
        return model, Stream(trial.seed, torch.get_rng_state())


def cut_apart(trial: Trial, model: Model, stream: Stream, device: Device, double_buffer: bool) -> list[Cut]:
    """The trial's shards. Raises ConfigurationError where a parameter would be in two of them."""
    cuts = pilot_partitioning.cut(trial.name, model, stream, device, double_buffer=double_buffer)
    _require_tensors_apart(trial.name, model.layers, cuts)
    return cuts


def trial_run(
    number: int,
    trial: Trial,
    model: Model,
    stream: Stream,
    cuts: Sequence[Cut],
    device: Device,
    pace: Pace,
) -> TrialRun:
    """A trial that is cut."""
    make_shard = pilot_partitioning.shard_maker(model)
    shards = [make_shard(cut.start, cut.stop) for cut in cuts]
    for shard in shards:
        shard.pin(device)
    return TrialRun(number, trial, model, shards, cuts, stream, pace)


class Run:
    """Trials that are being trained."""

    def __init__(
        self,
        trial_runs: Sequence[TrialRun],
        report: Callable[[Step], None],
        stop: Callable[[], bool],
        ended: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        self._trial_runs, self._report, self._stop, self._ended = trial_runs, report, stop, ended
        self._savers: dict[int, TrialCheckpoint] = {}
        self._begin_s = time.monotonic()
        self._reporting = threading.Lock()

    def resume(self, checkpointing: Checkpointing, attempt: int, owner: Owner) -> None:
        """Bring every trial to its newest checkpoint."""
        for trial_run in self._trial_runs:
            saver = TrialCheckpoint(trial_run.trial.name, checkpointing, attempt, owner)
            self._savers[trial_run.number] = saver
            trial_run.resume(saver.resume(trial_run.shards, trial_run.stream))
            if trial_run.step >= trial_run.trial.num_steps:
                self._end(trial_run, "succeeded")

    def go(self, devices: Sequence[Device], scheduler: Scheduler, double_buffer: bool) -> None:
        """Until every trial has ended."""
        chosen = scheduling_policy.make(
            scheduler, [trial_run.seconds_left() for trial_run in self._trial_runs], len(devices)
        )
        dispatcher = Dispatcher(self._trial_runs, len(devices), chosen, self._stop_idle)
        workers = [
            DeviceWorker(
                number,
                device,
                dispatcher,
                double_buffer=double_buffer,
                completed=self._completed,
                ends_step=self._ends_step,
                at_home=self._at_home,
                failed=self._failed,
            )
            for number, device in enumerate(devices)
        ]

        def broke(name: str, error: BaseException) -> None:
            dispatcher.fail(background.defect(name, error))

        threads = [
            background.Thread(f"hulk-device-{number}", worker.run, broke=broke) for number, worker in enumerate(workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if dispatcher.error is not None:
            raise dispatcher.error

    def _completed(self, trial_run: TrialRun) -> None:
        elapsed_s = time.monotonic() - self._begin_s
        with self._reporting:
            metric, value = trial_run.model.metric, trial_run.losses[-1]
            self._report(Step(trial_run.trial.name, trial_run.step, metric, value, elapsed_s, trial_run.step_s))

    def _ends_step(self, trial_run: TrialRun) -> bool:
        """Whether the trial comes home after the mini-batch that is under way: to be saved, or to end."""
        step, saver = trial_run.step + 1, self._savers.get(trial_run.number)
        return (
            step == trial_run.trial.num_steps or self._stop() or (saver is not None and step % saver.every_steps == 0)
        )

    def _at_home(self, trial_run: TrialRun) -> None:
        """After a mini-batch."""
        saver, done = self._savers.get(trial_run.number), trial_run.step == trial_run.trial.num_steps
        if saver and (done or self._stop() or trial_run.step % saver.every_steps == 0):
            saver.save(trial_run.step, trial_run.shards, trial_run.stream)
        if done:
            self._end(trial_run, "succeeded")

    def _failed(self, trial_run: TrialRun, why: BaseException) -> None:
        self._end(trial_run, "failed", _told(why))

    def _end(self, trial_run: TrialRun, state: State, reason: str = "") -> None:
        trial_run.end(state, reason)
        with self._reporting:
            self._ended(trial_run.outcome())

    def _stop_idle(self, trial_runs: Sequence[TrialRun]) -> None:
        if not self._stop():
            return
        for trial_run in trial_runs:
            if trial_run.number in self._savers:
                self._savers[trial_run.number].save(trial_run.step, trial_run.shards, trial_run.stream)
            self._end(trial_run, "stopped")


def _require_tensors_apart(name: str, layers: Sequence[nn.Module], cuts: Sequence[Cut]) -> None:
    """A parameter or buffer of two shards would be in two places."""
    owner: dict[int, int] = {}
    for cut in cuts:
        for layer in range(cut.start, cut.stop):
            for tensor in (*layers[layer].parameters(), *layers[layer].buffers()):
                other = owner.setdefault(id(tensor), layer)
                if other < cut.start:
                    kind = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
                    raise ConfigurationError(
                        f"trial {name}: layers {other} and {layer} share a {kind} of {tensor.numel()} numbers, but "
                        f"do not fit into one shard"
                    )
