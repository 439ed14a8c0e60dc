"""A worker of a sweep, as its pod runs it: its file in, its trials on /metrics, its last words."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml
from hulk_operator import names as outside
from hulk_operator.api import HulkSweep
from hulk_operator.sweeps.trial_assignment import Left, config_map, divide
from hulk_operator.sweeps.trials import trials
from hulk_runtime import sweep
from hulk_runtime.sharp import trial_file
from hulk_runtime.sweep import TrialsCollector, termination_record
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

MEMORY = 10_000_000
PATIENCE_S = 240  # for a process that imports torch, beside all that else runs
EXAMPLE = Path(__file__).parents[2] / "examples" / "hulksweep-sharp.yaml"
RUNNING = {"state": "running", "metric": "loss", "value": 2.5, "step": 3, "steps": 9, "reason": "", "stepSeconds": 0.5}
FAILED = {"state": "failed", "metric": "loss", "value": None, "step": 0, "steps": 9, "reason": "OutOfMemory"}


@pytest.fixture
def port() -> int:
    with socket.create_server(("", 0)) as found:
        number: int = found.getsockname()[1]
    return number


def write(folder: Path, worker: int, *trials: dict[str, object]) -> None:
    rows = [{"model": "sweep_models:make", "seed": 0, **trial} for trial in trials]
    devices = {"kind": "host", "count": 1, "memoryBytes": MEMORY}
    (folder / f"worker-{worker}.json").write_text(json.dumps({"version": 1, "devices": devices, "trials": rows}))


def start(folder: Path, port: int, worker: int = 0, **variables: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "HULK_WORKER": str(worker),
        "HULK_METRICS_PORT": str(port),
        **variables,
    }
    command = [sys.executable, "-m", "hulk_runtime.sweep", "--trials", str(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_worker_trains_its_own_trials_and_no_others(tmp_path: Path, port: int) -> None:
    write(tmp_path, 0, {"name": "t0", "steps": 5, "parameters": {"rate": 0.01}}, {"name": "t2", "steps": 3})
    write(tmp_path, 1, {"name": "t1", "steps": 5})
    process = start(tmp_path, port)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    ends = [line.split()[:2] for line in said.splitlines() if " state=" in line]
    assert sorted(ends) == [["trial=t0", "state=succeeded"], ["trial=t2", "state=succeeded"]]


def test_its_trials_are_on_its_port_while_it_runs(tmp_path: Path, port: int) -> None:
    write(tmp_path, 0, {"name": "t0", "steps": 1_000_000})
    process = start(tmp_path, port)
    try:
        deadline = time.monotonic() + PATIENCE_S
        text = ""
        while 'hulk_worker_trial_metric{trial="t0"}' not in text:
            assert time.monotonic() < deadline, text
            assert process.poll() is None
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    text = answer.read().decode()
            except OSError:
                time.sleep(0.1)
        assert 'hulk_worker_trial_state{state="running",trial="t0"} 1.0' in text
        assert 'hulk_worker_trial_step_seconds{trial="t0"}' in text
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 143
    finally:
        process.kill()
        process.communicate()


def test_a_trial_that_diverges_is_failed_and_the_others_end(tmp_path: Path, port: int) -> None:
    write(tmp_path, 0, {"name": "t0", "steps": 5, "parameters": {"diverges": True}}, {"name": "t1", "steps": 5})
    process = start(tmp_path, port)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert "trial=t0 state=failed step=2" in said
    assert "trial=t1 state=succeeded step=5" in said


def test_what_a_diverged_trials_metric_became_is_told() -> None:
    diverged = {**RUNNING, "state": "failed", "step": 2, "reason": "loss is nan in step 3"}
    assert termination_record({"t0": diverged, "t1": FAILED}) == "trials t0=failed,2,nan t1=failed,0,"


@pytest.mark.whole  # in short: test_sharp_worker's next attempt
def test_a_trial_goes_on_from_its_checkpoint_in_the_jobs_own_folder(tmp_path: Path, port: int) -> None:
    store = {"HULK_CHECKPOINT_URL": f"file://{tmp_path}/store", "HULK_CHECKPOINT_EVERY_STEPS": "2"}
    for attempt, steps, first in (("1", 4, 1), ("2", 6, 5)):
        write(tmp_path, 0, {"name": "t0", "steps": steps})
        process = start(tmp_path, port, HULK_JOB_UID="u1", HULK_ATTEMPT=attempt, **store)
        said, _ = process.communicate(timeout=PATIENCE_S)
        made = [int(line.split()[1].removeprefix("step=")) for line in said.splitlines() if " elapsed_s=" in line]
        assert made == list(range(first, steps + 1)), said
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["u1"]
    assert [path.name for path in (tmp_path / "store" / "u1").iterdir()] == ["t0"]


def test_a_worker_without_trials_is_done(tmp_path: Path, port: int) -> None:
    process = start(tmp_path, port, worker=3)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (0, "worker 3 has no trials\n")


def test_a_file_that_is_no_trials_file_is_told(tmp_path: Path, port: int) -> None:
    (tmp_path / "worker-0.json").write_text('{"version": 1, "trials": []}')
    process = start(tmp_path, port)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert "ConfigurationError: trials: " in said


def test_the_operators_files_are_what_a_worker_reads(tmp_path: Path) -> None:
    found = HulkSweep.model_validate(yaml.safe_load(EXAMPLE.read_text()))
    made = divide([Left(trial.number, 100) for trial in trials(found)], num_workers=2, num_devices=1)
    data = config_map(found, made, {trial.number: trial for trial in trials(found)})["data"]
    names = []
    for worker in range(2):
        path = tmp_path / outside.trials_key(worker)
        path.write_text(data[path.name])
        read = trial_file.read(str(path))
        assert (read.devices.kind, read.devices.count, read.devices.memory_bytes) == ("host", 1, 10_000_000)
        for trial in read.trials:
            names.append(trial.name)
            assert (trial.steps, trial.parameters["hidden"]) == (100, 128)
            assert len(trial.trial().make().layers) == trial.parameters["layers"] + 2
    assert sorted(names) == ["t0", "t1", "t2", "t3"]


def test_series_say_state_step_metric_and_device_time() -> None:
    registry = CollectorRegistry()
    registry.register(TrialsCollector(lambda: {"t0": RUNNING, "t1": FAILED}, attempt=2))
    text = generate_latest(registry).decode()
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert rows == [
        'hulk_worker_own_step{attempt="2"} 3.0',
        'hulk_worker_trial_step{trial="t0"} 3.0',
        'hulk_worker_trial_step{trial="t1"} 0.0',
        'hulk_worker_trial_metric{trial="t0"} 2.5',
        'hulk_worker_trial_step_seconds{trial="t0"} 0.5',
        'hulk_worker_trial_state{state="running",trial="t0"} 1.0',
        'hulk_worker_trial_state{state="failed",trial="t1"} 1.0',
    ]


def test_the_last_words_of_100_trials_fit_into_a_termination_message() -> None:
    long = {**RUNNING, "state": "succeeded", "value": -1.23456e-100, "step": 10**9}
    assert len(termination_record({f"t{n}": long for n in range(100)}).encode()) <= 4096


def test_before_the_status_is_there_nothing_is_known(tmp_path: Path) -> None:
    assert sweep.read_status(tmp_path / "none.json") == {}
