"""`python -m hulk_runtime.sweep`: a worker of a HulkSweep whose trials share devices (`mode: sharp`).

Trains the trials that were planned for this worker with `hulk_runtime.sharp`, and tells how they are: on /metrics while
it runs, and as its termination message when it ends, because its port closes with it.

    /etc/hulk/trials/worker-0.json   the trials of worker 0, see `hulk_runtime.sharp.trial_file`; no file: it has none

The message holds a word per trial, `t7=succeeded,40,2.25`: its state, its last step, its metric.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hulk_runtime import errors, names
from hulk_runtime.errors import EXIT_DONE
from hulk_runtime.job import cpu_threads, environment
from hulk_runtime.job.environment import Environment
from hulk_runtime.job.shutdown import Stop
from hulk_runtime.training.metrics import process_registry
from hulk_runtime.training.progress_server import ProgressServer

FAREWELL: Final = "trials"
_DIVERGED: Final = re.compile(r" is (nan|-?inf) in step \d+")
Trials = Mapping[str, Mapping[str, Any]]
"""By name, as the status file of `hulk_runtime.sharp` has them."""


class TrialsCollector(Collector):
    """How the trials of this worker are; read when somebody asks. `attempt` is the job's."""

    def __init__(self, read: Callable[[], Trials], attempt: int) -> None:
        self._read, self._attempt = read, str(attempt)

    def collect(self) -> Iterator[Metric]:
        """Every family; what is not known has no series."""
        trials = self._read()
        own = GaugeMetricFamily("hulk_worker_own_step", "Mini-batches of all trials here.", labels=["attempt"])
        own.add_metric([self._attempt], sum(trial["step"] for trial in trials.values()))
        yield own
        step = GaugeMetricFamily("hulk_worker_trial_step", "A trial's last mini-batch.", labels=["trial"])
        metric = GaugeMetricFamily("hulk_worker_trial_metric", "A trial's metric after it.", labels=["trial"])
        seconds = GaugeMetricFamily(
            "hulk_worker_trial_step_seconds",
            "Device time of a trial's mini-batch: the sum of its units, measured.",
            labels=["trial"],
        )
        state = GaugeMetricFamily("hulk_worker_trial_state", "1 for the state of a trial.", labels=["trial", "state"])
        for name, trial in sorted(trials.items()):
            step.add_metric([name], trial["step"])
            if (value := value_of(trial)) is not None:
                metric.add_metric([name], value)
            if trial.get("stepSeconds"):
                seconds.add_metric([name], trial["stepSeconds"])
            state.add_metric([name, trial["state"]], 1)
        yield from (step, metric, seconds, state)


def read_status(path: Path) -> Trials:
    """What the status file says; nothing before it is there."""
    try:
        found: Trials = json.loads(path.read_text())["trials"]
    except FileNotFoundError:
        return {}
    return found


def value_of(trial: Mapping[str, Any]) -> float | None:
    """The metric after the last mini-batch; of a trial that diverged what it became then.

    >>> value_of({"state": "failed", "metric": "loss", "value": 2.5, "reason": "loss is nan in step 3"})
    nan
    """
    found = _DIVERGED.search(trial.get("reason") or "") if trial["state"] == "failed" else None
    value: float | None = trial["value"]
    return float(found[1]) if found else value


def termination_record(trials: Trials) -> str:
    """The last words of a worker.

    >>> failed = {"state": "failed", "step": 0, "value": None}
    >>> termination_record({"t7": {"state": "succeeded", "step": 40, "value": 2.25}, "t8": failed})
    'trials t7=succeeded,40,2.25 t8=failed,0,'
    """
    words = []
    for name, trial in sorted(trials.items()):
        value = value_of(trial)
        words.append(f"{name}={trial['state']},{trial['step']},{'' if value is None else format(value, '.6g')}")
    return " ".join([FAREWELL, *words])


def run(here: Environment, folder: Path, stop: Stop) -> int:
    """Train this worker's trials; the exit code. Raises HulkError."""
    path = folder / f"worker-{here.worker}.json"
    if not path.exists():
        print(f"worker {here.worker} has no trials", flush=True)
        errors.write_termination_message(termination_record({}))
        return EXIT_DONE
    from hulk_runtime.sharp import (
        trial_file,
        worker,  # imports torch: a SIGTERM before that ends the process at once
    )

    asked = trial_file.read(str(path))
    with tempfile.TemporaryDirectory() as temporary:
        status = Path(temporary) / "status.json"
        registry = process_registry()
        registry.register(TrialsCollector(lambda: read_status(status), here.attempt))
        with ProgressServer(registry, here.attempt, here.metrics_port):
            try:
                return worker.run(_with_own_folder(here), asked, str(status), stop)
            finally:
                errors.write_termination_message(termination_record(read_status(status)))


def _with_own_folder(here: Environment) -> Environment:
    """Checkpoints below the job's own folder, as every job's: a sweep that is made again begins anew."""
    if here.checkpointing is None:
        return here
    url = f"{here.checkpointing.url.rstrip('/')}/{here.job_uid or here.job}"
    return replace(here, checkpointing=replace(here.checkpointing, url=url))


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m hulk_runtime.sweep", description="Train a sweep's trials.")
    parser.add_argument("--trials", default=names.TRIALS_DIRECTORY, help="folder of the trials' files")
    options = parser.parse_args()
    stop = Stop()
    try:
        here = environment.read(os.environ)
        cpu_threads.limit_threads()
        return run(here, Path(options.trials), stop)
    except errors.HulkError as error:
        return errors.report(error)


if __name__ == "__main__":
    sys.exit(main())
