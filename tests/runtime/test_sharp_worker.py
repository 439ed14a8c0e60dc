"""`python -m hulk_runtime.sharp`: a worker's trials from a file."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hulk_runtime.errors import EXIT_STOPPED, ConfigurationError
from hulk_runtime.sharp import trial_file

HERE = Path(__file__).parent
PATIENCE_S = 240.0


def trials(folder: Path, **changes) -> Path:
    one = {"name": "a", "model": "sharp_models:blocks", "parameters": {"width": 16, "depth": 3}, "steps": 3}
    bad = {"name": "bad", "model": "sharp_models:failing", "parameters": {"at_step": 2, "how": "diverges"}, "steps": 3}
    body = {"version": 1, "devices": {"kind": "host", "count": 2, "memoryBytes": 700_000}, "trials": [one, bad]}
    path = folder / "trials.json"
    path.write_text(json.dumps({**body, **changes}))
    return path


def start(folder: Path, path: Path, **environment: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(HERE), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-m", "hulk_runtime.sharp", "--trials", str(path), "--status", str(folder / "status.json")],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "2", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_trials_of_a_file_are_trained_and_what_became_of_them_is_said(tmp_path):
    worker = start(tmp_path, trials(tmp_path))
    output, _ = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 0, output
    assert re.findall(r"^trial=a step=(\d) loss=\d\.\d+ elapsed_s=\d+\.\d{3}$", output, re.MULTILINE) == ["1", "2", "3"]
    assert re.search(r"^trial=bad state=failed step=1 .*reason=DivergedError: loss is", output, re.MULTILINE)
    status = json.loads((tmp_path / "status.json").read_text())["trials"]
    value = status["a"].pop("value")
    assert status["a"].pop("stepSeconds") > 0
    assert status["a"] == {"state": "succeeded", "metric": "loss", "step": 3, "steps": 3, "reason": ""}
    assert f"loss={value:.6g}" in output
    assert (status["bad"]["state"], status["bad"]["step"]) == ("failed", 1)


def test_sigterm_saves_and_the_next_attempt_goes_on(tmp_path):
    one = {"name": "a", "model": "sharp_models:blocks", "parameters": {"width": 16, "depth": 3}, "steps": 10**6}
    path, url = trials(tmp_path, trials=[one]), f"file://{tmp_path}/checkpoints"
    (tmp_path / "secret").write_bytes(bytes(32))
    secret = {"HULK_PEER_SECRET": str(tmp_path / "secret")}
    worker = start(tmp_path, path, HULK_CHECKPOINT_URL=url, **secret)
    status = tmp_path / "status.json"
    deadline = time.monotonic() + PATIENCE_S
    while not status.exists() or json.loads(status.read_text())["trials"]["a"]["step"] < 3:
        assert worker.poll() is None, worker.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    worker.send_signal(signal.SIGTERM)
    output, _ = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == EXIT_STOPPED, output
    reached = json.loads(status.read_text())["trials"]["a"]
    assert reached["state"] == "stopped"
    path = trials(tmp_path, trials=[{**one, "steps": reached["step"] + 2}])
    (manifest,) = (tmp_path / "checkpoints" / "a").glob("latest-*")
    assert b'"signature":"' in manifest.read_bytes()
    again = start(tmp_path, path, HULK_CHECKPOINT_URL=url, HULK_ATTEMPT="2", **secret)
    output, _ = again.communicate(timeout=PATIENCE_S)
    steps = [int(step) for step in re.findall(r"^trial=a step=(\d+) ", output, re.MULTILINE)]
    assert steps == [reached["step"] + 1, reached["step"] + 2], output


def test_sigterm_before_the_first_step_ends_the_worker_at_once(tmp_path):
    """There is nothing to be saved, and the models of many trials take minutes to be made and cut."""
    made = tmp_path / "made"
    one = {"name": "a", "model": "sharp_models:slow", "parameters": {"path": str(made)}, "steps": 3}
    worker = start(tmp_path, trials(tmp_path, trials=[one]))
    deadline = time.monotonic() + PATIENCE_S
    while not made.exists():
        assert worker.poll() is None, worker.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    worker.send_signal(signal.SIGTERM)
    try:
        output, _ = worker.communicate(timeout=PATIENCE_S)
    finally:
        worker.kill()
    assert worker.returncode == EXIT_STOPPED, output


def test_a_layer_that_is_too_large_fails_its_trial_with_the_numbers(tmp_path):
    good = {"name": "a", "model": "sharp_models:blocks", "parameters": {"width": 16, "depth": 3}, "steps": 3}
    wide = {**good, "name": "wide", "parameters": {"width": 80, "depth": 3}}
    worker = start(tmp_path, trials(tmp_path, trials=[wide, good]))
    output, _ = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 0, output
    status = json.loads((tmp_path / "status.json").read_text())["trials"]
    assert (status["wide"]["state"], status["wide"]["step"], status["a"]["state"]) == ("failed", 0, "succeeded")
    assert re.search(r"layer 1 \(Block, .* is larger than device host-\d of 700000 bytes", status["wide"]["reason"])
    assert status["wide"]["reason"] in output


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version: Input should be 1"),
        ({"trials": []}, "trials: Tuple should have at least 1 item"),
        ({"scheduler": "best"}, "scheduler: Input should be 'lrtf', 'random', 'fifo' or 'exact'"),
        ({"trials": [{"name": "a", "model": "no function", "steps": 1}]}, "trials.0.model"),
        ({"trials": [{"name": "a", "model": "m:f", "steps": 1}] * 2}, "a: more than one trial has this name"),
    ],
)
def test_a_file_that_says_no_such_thing_is_refused(tmp_path, changes, message):
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        trial_file.read(str(trials(tmp_path, **changes)))


def test_a_function_that_is_not_there_is_named(tmp_path):
    one = {"name": "a", "model": "sharp_models:missing", "steps": 1}
    (found,) = trial_file.read(str(trials(tmp_path, trials=[one]))).trials
    with pytest.raises(ConfigurationError, match="trial a: cannot import sharp_models:missing"):
        found.trial()
