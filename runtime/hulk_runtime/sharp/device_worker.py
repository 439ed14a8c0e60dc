"""One device at work: a thread that computes, and one that copies meanwhile.

    computes   | A ............ | B ............ | C ...
    copies     | load B         | A home, load C | B home, ...

What is copied during a unit is what the unit before has left and what the next one needs, in this order, so that one
slot beside the computing unit is enough for both. Where the next unit is of the same trial, its input stays on the
device, and so does the shard where it is the same.
"""

import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from hulk_runtime import background
from hulk_runtime.errors import HulkError
from hulk_runtime.sharp.cpu_threads import take_threads
from hulk_runtime.sharp.device import Device, DeviceMemoryError
from hulk_runtime.sharp.dispatcher import Dispatcher
from hulk_runtime.sharp.trial_run import DivergedError, TrialRun, Unit


class DeviceWorker:
    """One device, with callbacks that get the trial's run.

    `ends_step` says whether a trial must come home after its mini-batch, `at_home` is then called with all of it on the
    host, `completed` after every mini-batch, and `failed` ends a trial that cannot go on.
    """

    def __init__(
        self,
        number: int,
        device: Device,
        dispatcher: Dispatcher,
        *,
        double_buffer: bool,
        completed: Callable[[TrialRun], None],
        ends_step: Callable[[TrialRun], bool],
        at_home: Callable[[TrialRun], None],
        failed: Callable[[TrialRun, BaseException], None],
    ) -> None:
        self._number, self._device, self._dispatcher = number, device, dispatcher
        self._double_buffer = double_buffer
        self._completed, self._ends_step, self._at_home, self._failed = completed, ends_step, at_home, failed
        self._copies = ThreadPoolExecutor(1, f"hulk-copies-{device.name}")
        self._left: Future[None] | None = None
        self._left_bytes = 0  # at most, of what the unit before leaves here until `_left` is done

    def run(self) -> None:
        """Until no trial has a unit left."""
        take_threads()
        with self._copies:
            self._guarded(self._work)

    def _work(self) -> None:
        trial_run: TrialRun | None = None
        while self._dispatcher.error is None:
            if trial_run is None:
                trial_run = self._dispatcher.take(self._number)
                if trial_run is None:
                    return
                loading = self._load(trial_run, trial_run.unit, trial_run.step + 1, input_comes=False)
            failure = loading.exception()
            if isinstance(failure, DeviceMemoryError):  # what was computed meanwhile took more than its pilot run
                failure = self._copies.submit(self._load_again, trial_run).exception()
            if failure is not None:
                self._copies.submit(self._guarded, self._give_up, trial_run, failure).result()
                trial_run = None
                continue
            trial_run, loading = self._unit(trial_run)

    def _unit(self, trial_run: TrialRun) -> tuple[TrialRun | None, Future[None]]:
        """Compute a unit that is there; what comes next, and its transfer."""
        unit, (next_unit, next_step) = trial_run.unit, trial_run.following()
        returns = trial_run.is_last_of_step and self._ends_step(trial_run)
        following = None
        if self._double_buffer:
            following = self._dispatcher.reserve(self._number, trial_run, may_follow=not returns)
        follows = following is trial_run
        if following is not None and not follows:
            next_unit, next_step = following.unit, following.step + 1
        loading: Future[None] = Future()
        early = following is not None and self._fits(trial_run, unit, following, next_unit)
        if early and following is not None:
            loading = self._load(following, next_unit, next_step, input_comes=follows)
        if (
            self._left is not None
            and trial_run.cuts[unit.shard].peak_bytes + self._left_bytes > self._device.memory_bytes
        ):
            self._left.result()
        failure = self._compute(trial_run)
        if follows and early:
            loading.exception()  # it reads where the trial is, which now changes
        if failure is not None:
            self._left = self._copies.submit(self._guarded, self._give_up, trial_run, failure)
            self._left_bytes = trial_run.cuts[unit.shard].peak_bytes
            if follows:
                return None, loading
        else:
            self._leave(trial_run, unit, follows, shard_stays=follows and next_unit.shard == unit.shard)
        if following is not None and not early:
            loading = self._load(following, next_unit, next_step, input_comes=follows)
        return following, loading

    def _load(self, trial_run: TrialRun, unit: Unit, step: int, *, input_comes: bool) -> "Future[None]":
        return self._copies.submit(trial_run.load, unit, step, self._device, input_comes=input_comes)

    def _load_again(self, trial_run: TrialRun) -> None:
        trial_run.shards[trial_run.unit.shard].unload()
        trial_run.load(trial_run.unit, trial_run.step + 1, self._device, input_comes=False)

    def _compute(self, trial_run: TrialRun) -> Exception | None:
        try:
            trial_run.compute(self._device)
        except Exception as error:  # noqa: BLE001 - whatever a trial's own code raises ends this trial alone
            if not isinstance(error, HulkError | DivergedError):
                traceback.print_exception(error)
            return error.with_traceback(None)  # its frames hold what is on the device
        return None

    def _leave(self, trial_run: TrialRun, unit: Unit, follows: bool, *, shard_stays: bool) -> None:
        """Go on to the trial's next unit, and bring home what this one has left."""
        ended = trial_run.advance()
        if ended:
            self._completed(trial_run)

        def home() -> None:
            trial_run.unload(unit, self._device, shard_stays=shard_stays, boundary_stays=follows)
            if not follows:
                if ended:
                    self._at_home(trial_run)
                self._dispatcher.release(trial_run)

        self._left = self._copies.submit(self._guarded, home)
        self._left_bytes = 0 if shard_stays else trial_run.cuts[unit.shard].slot_bytes

    def _fits(self, trial_run: TrialRun, unit: Unit, following: TrialRun, next_unit: Unit) -> bool:
        """Whether the next unit's slot is there beside what this one needs."""
        now, then = trial_run.cuts[unit.shard], following.cuts[next_unit.shard]
        if following is trial_run and next_unit.shard == unit.shard:
            return True
        return now.peak_bytes + max(now.slot_bytes, then.slot_bytes) <= self._device.memory_bytes

    def _give_up(self, trial_run: TrialRun, failure: BaseException) -> None:
        self._failed(trial_run, failure)
        self._dispatcher.release(trial_run)

    def _guarded(self, function: Callable[..., None], *arguments: Any) -> None:
        """What fails here is nobody's trial: it ends the run."""
        try:
            function(*arguments)
        except BaseException as error:  # noqa: BLE001 - it is raised again where the run was started
            self._dispatcher.fail(background.named(f"hulk-device-{self._number}", error))
