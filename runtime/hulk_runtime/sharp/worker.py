"""One worker's trials from its file to their ends: lines in the log, the status file, SIGTERM."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from hulk_runtime.checkpoints.signing import Owner
from hulk_runtime.errors import EXIT_DONE, EXIT_STOPPED, ConfigurationError
from hulk_runtime.job import peer_secret
from hulk_runtime.job.environment import Environment
from hulk_runtime.job.shutdown import Stop
from hulk_runtime.sharp.cuda_device import CudaDevice
from hulk_runtime.sharp.device import Device
from hulk_runtime.sharp.host_device import HostDevice
from hulk_runtime.sharp.run import train
from hulk_runtime.sharp.trial import Outcome, Step, Trial
from hulk_runtime.sharp.trial_file import DevicesDocument, SweepDocument


def run(environment: Environment, sweep: SweepDocument, status: str | None, stop: Stop) -> int:
    """Train; the exit code. Raises HulkError."""
    trials = [each.trial() for each in sweep.trials]
    devices = make_devices(sweep.devices)
    file = StatusFile(trials, status)
    outcomes = train(
        trials,
        devices,
        scheduler=sweep.scheduler,
        double_buffer=sweep.double_buffer,
        report=file.completed,
        ended=file.ended,
        begins=stop.training_begins,
        checkpointing=environment.checkpointing,
        attempt=environment.attempt,
        owner=_owner(environment),
        stop=lambda: stop.wanted,
    )
    return EXIT_STOPPED if any(outcome.state == "stopped" for outcome in outcomes.values()) else EXIT_DONE


def _owner(environment: Environment) -> Owner:
    """Who signs the trials' checkpoints; the operator does not tell their steps apart."""
    settings, secret = environment.checkpointing, peer_secret.read(environment.peer_secret_path)
    trusts_store = settings is not None and settings.trusts_store
    return Owner.of_job(environment.job, environment.job_uid, secret, trusts_store=trusts_store, committed_step=0)


def make_devices(asked: DevicesDocument) -> list[Device]:
    """The worker's devices. Raises ConfigurationError where it has fewer, or the host's have no memory said."""
    if asked.kind == "host":
        if asked.memory_bytes is None:
            raise ConfigurationError("trials: devices of kind host need memoryBytes")
        return [HostDevice(asked.memory_bytes, f"host-{i}") for i in range(asked.count or 1)]
    num_gpus = torch.cuda.device_count()
    if num_gpus < (asked.count or 1):
        raise ConfigurationError(f"trials: {asked.count or 1} GPUs are asked for, this worker has {num_gpus}")
    return [CudaDevice(i, asked.memory_bytes) for i in range(asked.count or num_gpus)]


class StatusFile:
    """How the trials are, as lines and as a file."""

    def __init__(self, trials: Sequence[Trial], path: str | None) -> None:
        self._path = Path(path) if path else None
        self._trials: dict[str, dict[str, object]] = {
            trial.name: {
                "state": "running",
                "metric": "",
                "value": None,
                "step": 0,
                "steps": trial.num_steps,
                "reason": "",
            }
            for trial in trials
        }
        self._write()

    def completed(self, step: Step) -> None:
        """One mini-batch."""
        elapsed = f"elapsed_s={step.elapsed_s:.3f}"
        print(f"trial={step.trial} step={step.step} {step.metric}={step.value:.6g} {elapsed}", flush=True)
        self._trials[step.trial].update(metric=step.metric, value=step.value, step=step.step, stepSeconds=step.device_s)
        self._write()

    def ended(self, outcome: Outcome) -> None:
        """A trial's end."""
        value = "" if outcome.value is None else f" {outcome.metric}={outcome.value:.6g}"
        reason = f" reason={outcome.reason}" if outcome.reason else ""
        print(f"trial={outcome.trial} state={outcome.state} step={outcome.step}{value}{reason}", flush=True)
        self._trials[outcome.trial].update(state=outcome.state, step=outcome.step, reason=outcome.reason)
        self._write()

    def _write(self) -> None:
        if self._path:
            temporary = self._path.with_name(self._path.name + ".tmp")
            temporary.write_text(json.dumps({"trials": self._trials}))
            os.replace(temporary, self._path)
