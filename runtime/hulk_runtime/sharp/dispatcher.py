"""Which device holds which trial: devices take the next unit here, and give it back."""

import threading
from collections.abc import Callable, Sequence

from hulk_runtime.sharp.scheduling_policy import Candidate, Order
from hulk_runtime.sharp.trial_run import TrialRun


class Dispatcher:
    """All trials of a run. A trial is held by one device at most. `stop_idle` ends trials that nobody is to begin."""

    def __init__(
        self,
        trial_runs: Sequence[TrialRun],
        num_devices: int,
        order: Order,
        stop_idle: Callable[[Sequence[TrialRun]], None],
    ) -> None:
        self._trial_runs, self._order, self._stop_idle = trial_runs, order, stop_idle
        self._num_devices = num_devices
        self._held: set[int] = set()
        self._busy: set[int] = set()
        self._changed = threading.Condition()
        self.error: BaseException | None = None

    def take(self, device: int) -> TrialRun | None:
        """Hold the trial to go on with; waits until there is one. None: nothing is left, or the run has failed."""
        with self._changed:
            self._busy.discard(device)
            while self.error is None:
                self._stop_idle([c for c in self._free() if c.position == 0])
                for trial_run in self._trial_runs:
                    if trial_run.state != "running":
                        self._order.ended(trial_run.number)
                if not any(c.state == "running" for c in self._trial_runs):
                    break
                chosen = self._choose(device, self._ready())
                if chosen is not None:
                    self._busy.add(device)
                    return chosen
                self._changed.wait()
            self._changed.notify_all()
            return None

    def reserve(self, device: int, now: TrialRun, *, may_follow: bool) -> TrialRun | None:
        """While the device computes a unit of `now`: hold what comes after it, which may be the same trial.

        Others' trials only as far as no device without work needs them.
        """
        with self._changed:
            ready = self._ready()
            candidates = ready if len(ready) > self._num_devices - len(self._busy) else []
            if may_follow:
                candidates = [*candidates, Candidate(now.number, now.remaining_s(after_this=True))]
            return self._choose(device, candidates)

    def release(self, trial_run: TrialRun) -> None:
        """Others may take the trial."""
        with self._changed:
            self._held.discard(trial_run.number)
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """End the run."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def _choose(self, device: int, candidates: Sequence[Candidate]) -> TrialRun | None:
        chosen = self._order.choose(device, candidates) if candidates else None
        if chosen is None:
            return None
        self._held.add(chosen)
        return self._trial_runs[chosen]

    def _free(self) -> list[TrialRun]:
        return [c for c in self._trial_runs if c.state == "running" and c.number not in self._held]

    def _ready(self) -> list[Candidate]:
        return [Candidate(c.number, c.remaining_s()) for c in self._free()]
