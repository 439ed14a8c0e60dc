"""Real ranks as real processes on loopback: what the runtime's tests share."""

import gc
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import start_order
from forked import python
from free_ports import free_port
from hulk_lab.builds import golang
from hulk_runtime import names
from hulk_runtime.plan import wire

GPT = ("-m", "hulk_runtime.examples.gpt")
PATIENCE_S = 240.0
S3_KEYS = {"AWS_ACCESS_KEY_ID": "hulk", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
STEP_LINE = re.compile(r"^(?:step=|epoch=.* go on after step )(\d+) loss=(\S+)", re.MULTILINE)


def plan_document(accelerators: tuple[int, ...] = (1, 1), **changes: Any) -> dict[str, Any]:
    """A small plan with 2 sequences per rank, its digest right; `changes` replace top-level keys."""
    num_ranks = sum(accelerators)
    body: dict[str, Any] = {
        "version": 1,
        "operatorVersion": "0.1.0",
        "job": "team/demo",
        "attempt": 1,
        "layout": {"data": num_ranks, "pipeline": 1, "tensor": 1},
        "algorithm": "ring",
        "workers": [
            {"node": f"node-{i}", "region": f"region-{i}", "accelerators": n} for i, n in enumerate(accelerators)
        ],
        "shares": [2] * num_ranks,
        "training": training(num_ranks),
        "model": {"layers": 1, "hidden": 32, "heads": 2, "sequenceLength": 32, "vocabulary": 256, "feedForward": 64},
        "numBuckets": 2,
        "prediction": {"stepSeconds": 0.5, "computeSeconds": 0.3, "communicationSeconds": 0.2, "calibrated": True},
        "preflight": False,
    }
    body.update(changes)
    return {**body, "digest": wire.digest_of(body)}


def training(num_ranks: int = 2, **changes: Any) -> dict[str, Any]:
    """The plan's `training` for 2 sequences per rank."""
    basis = {"globalBatch": 2 * num_ranks, "microBatch": None, "precision": "fp32", "optimizer": "adamw", "steps": 6}
    return {**basis, **changes}


def encode(document: Mapping[str, Any]) -> bytes:
    """A plan document as the operator writes it."""
    return gzip.compress(json.dumps(document).encode(), mtime=0)


class Forked:
    """A process that has torch imported and runs what `python ARGUMENTS` would; the part of Popen that is used here."""

    def __init__(self, process: BaseProcess, arguments: tuple[str, ...]) -> None:
        self._process = process
        self.args = arguments
        assert process.pid is not None
        self.pid = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


@dataclass
class Process:
    """One running process and the file its output goes to."""

    popen: subprocess.Popen[bytes] | Forked
    log: Path
    environment: dict[str, str]

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait(self) -> int:
        try:
            return self.popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.popen.args} still runs after {PATIENCE_S:g} s:\n{self.output}")

    def wait_for(self, text: str) -> None:
        """Until the process has printed `text`."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.output:
            if self.popen.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{text!r} did not appear:\n{self.output}")
            time.sleep(0.05)

    def losses(self) -> dict[int, str]:
        """Loss by step, as printed."""
        return {int(step): loss for step, loss in STEP_LINE.findall(self.output)}


@dataclass
class Job:
    """Starts the ranks or workers of one attempt; kills what is left at the end."""

    folder: Path
    forks: ForkServerContext
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    python: str = sys.executable

    def write_plan(self, document: Mapping[str, Any]) -> None:
        path = self.folder / f"plan-{document['attempt']}.json.gz"
        path.write_bytes(encode(document))
        secret = self.folder / "secret"
        secret.write_bytes(bytes(range(32)))
        port = free_port()
        self.environment.update(
            HULK_PLAN=str(path),
            HULK_PEER_SECRET=str(secret),
            HULK_START_DIGEST=start_order.DIGEST,
            HULK_JOB=str(document["job"]),
            HULK_ATTEMPT=str(document["attempt"]),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            PET_MASTER_ADDR="127.0.0.1",
            PET_MASTER_PORT=str(port),
            WORLD_SIZE=str(sum(worker["accelerators"] for worker in document["workers"])),
        )

    def start(self, *arguments: str, **environment: str) -> Process:
        """One Python process with the job's environment and a metrics port of its own."""
        log, variables = self._next(environment)
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [self.python, "-u", *arguments],
                env=variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(Process(popen, log, variables))
        return self.processes[-1]

    def fork(self, *arguments: str, **environment: str) -> Process:
        """As `start`, in a process that needs not import torch any more."""
        log, variables = self._next(environment)
        log.touch()
        process = self.forks.Process(target=python, args=(arguments, variables, log))
        process.start()
        self.processes.append(Process(Forked(process, arguments), log, variables))
        return self.processes[-1]

    def _next(self, environment: Mapping[str, str]) -> tuple[Path, dict[str, str]]:
        """The next process's log and variables."""
        variables = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "HULK_METRICS_PORT": str(free_port())}
        variables["HULK_COLLECTIVE_PORT"] = "0"  # any
        log = self.folder / f"process-{len(self.processes)}.log"
        return log, {**os.environ, **variables, **self.environment, **environment}

    def start_ranks(self, document: Mapping[str, Any], *arguments: str, **environment: str) -> list[Process]:
        """One process per rank, as pods with one accelerator each."""
        self.write_plan(document)
        command = arguments or GPT
        return [
            self.fork(*command, RANK=str(r), HULK_WORKER=str(r), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", **environment)
            for r in range(len(document["workers"]))
        ]

    def run_ranks(self, document: Mapping[str, Any], *arguments: str, **environment: str) -> list[Process]:
        """As `start_ranks`, then wait; every rank must end with 0."""
        processes = self.start_ranks(document, *arguments, **environment)
        try:
            codes = [process.wait() for process in processes]
        except pytest.fail.Exception as late:
            pytest.fail("\n".join([str(late), *(process.output for process in processes)]))
        assert codes == [0] * len(processes), "\n".join(process.output for process in processes)
        return processes

    def close(self) -> None:
        """Also what a process has started and left behind."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.popen.pid, signal.SIGKILL)
            process.popen.wait()


@pytest.fixture(scope="module")
def module_job(tmp_path_factory: pytest.TempPathFactory, forks: ForkServerContext) -> Iterator[Job]:
    """A job whose processes end with the module, for ranks that do what many tests look at."""
    running = Job(tmp_path_factory.mktemp("job"), forks)
    yield running
    running.close()


@pytest.fixture
def job(tmp_path: Path, forks: ForkServerContext) -> Iterator[Job]:
    """A job whose processes end with the test."""
    running = Job(tmp_path, forks)
    yield running
    running.close()


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., dict[str, Any]]:
    """make_plan(accelerators, **changes) -> a plan's JSON object."""
    return plan_document


@pytest.fixture
def make_training() -> Callable[..., dict[str, Any]]:
    """make_training(num_ranks, **changes) -> the plan's `training`."""
    return training


@pytest.fixture
def encode_plan() -> Callable[..., bytes]:
    """encode_plan(document) -> the bytes in the ConfigMap."""
    return encode


@pytest.fixture(autouse=True)
def what_others_left_is_not_searched() -> Iterator[None]:
    """By the garbage collector: among all that thousands of tests keep it holds up every thread for half a second and
    more, and a rank that says nothing for so long counts as lost."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def unused_port() -> Callable[[], int]:
    """unused_port() -> a TCP port."""
    return free_port


@pytest.fixture(scope="module")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real S3 server (rclone's) with one bucket, `checkpoints`."""
    folder = tmp_path_factory.mktemp("s3")
    (folder / "checkpoints").mkdir()
    port = free_port()
    keys = f"{S3_KEYS['AWS_ACCESS_KEY_ID']},{S3_KEYS['AWS_SECRET_ACCESS_KEY']}"
    command = [golang.program("store"), "serve", "s3", f"--addr=127.0.0.1:{port}", f"--auth-key={keys}", str(folder)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    with socket.socket() as client:
        while client.connect_ex(("127.0.0.1", port)):
            assert server.poll() is None, f"{command} ended with {server.returncode}"
            assert time.monotonic() < deadline
            time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.fixture
def s3_environment(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that server is, and its keys."""
    for name, value in {**S3_KEYS, names.ENV_S3_ENDPOINT: s3_endpoint}.items():
        monkeypatch.setenv(name, value)
