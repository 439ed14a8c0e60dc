"""A node of a running job is killed -> when that was noticed, when there was a plan, when the next step was made.

The status is read from the API server every tenth of a second, steps from the log of the pod of rank 0 with the times
that containerd gave its lines; all clocks are one machine's.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from hulk_lab import node, up
from hulk_lab.kube import CommandFailedError
from hulk_lab.processes import wait_until

MAX_DETECTED_S = 10.0
MAX_PLAN_S = 2.0
MAX_FIRST_STEP_S = 45.0
"""The limits; of lost steps it is the checkpoint interval."""
LOOK_S = 0.1
TIMEOUT_S = 180.0
STEP = re.compile(r"step=(\d+) ")
RESUMED = re.compile(r"resumed after step (\d+)$")
LAST = re.compile(r"no step was made after step (\d+)")


@dataclass(frozen=True, slots=True)
class Job:
    """A HulkJob of a lab, whose pods run hulk-launch."""

    lab: up.Lab
    namespace: str
    name: str

    def status(self) -> dict[str, Any]:
        """Its status as the API server has it."""
        path = f"/apis/hulk.dev/v1alpha1/namespaces/{self.namespace}/hulkjobs/{self.name}"
        found: dict[str, Any] = self.lab.control.api().get(path).get("status", {})
        return found

    def pods(self) -> list[dict[str, Any]]:
        """The pods of the attempt in force, by worker."""
        selector = f"hulk.dev/job={self.name},hulk.dev/attempt={self.status()['attempt']}"
        found = self.lab.control.api().get(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=selector)
        return sorted(found["items"], key=lambda pod: int(pod["metadata"]["labels"]["hulk.dev/worker"]))

    def log(self, pod: str) -> list[tuple[float, str]]:
        """The lines that a pod has printed, each with its time; none while it has not started."""
        try:
            text = self.lab.kube.kubectl("logs", "--timestamps", pod, "-n", self.namespace)
        except CommandFailedError:
            return []
        rows = (line.partition(" ") for line in text.splitlines())
        return [(_seconds(stamp), words) for stamp, _, words in rows]


@dataclass(frozen=True, slots=True)
class Loss:
    """Seconds from the kill on to when each thing was seen; the steps that were made again."""

    node: str
    with_rank_0: bool
    detected_s: float
    planned_s: float
    deployed_s: float
    first_step_s: float
    last_step: int
    resumed_after: int
    message: str

    @property
    def plan_s(self) -> float:
        """From the fault's being known to a committed plan."""
        return self.planned_s - self.detected_s

    @property
    def lost_steps(self) -> int:
        """What was trained and is trained again."""
        return self.last_step - self.resumed_after


def lose(job: Job, victim: str, at: Callable[[int], bool] = lambda _: True) -> Loss:
    """Kill a node of a job that trains, after a step that is `at`, and wait until it trains on without it.

    The node stays dead.
    """
    first = job.pods()[0]
    with _Steps(job, first["metadata"]["name"]) as steps:
        steps.wait(at)
        before, killed_s = job.status(), time.time()
        killing = threading.Thread(target=node.kill, args=(job.lab.node(victim),))
        killing.start()
        status, seen_s = _follow_status(job, before)
        killing.join()
        first_step_s, resumed = first_step(job, status["attempt"])
    message = status["lastFailure"]["message"]
    return Loss(
        node=victim,
        with_rank_0=first["spec"]["nodeName"] == victim,
        first_step_s=first_step_s - killed_s,
        last_step=max(steps.made[-1], *map(int, LAST.findall(message))),
        resumed_after=resumed,
        message=message,
        **{name: at_s - killed_s for name, at_s in seen_s.items()},
    )


def _follow_status(job: Job, before: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Wait until the next attempt is up: the status then, and when each thing was first seen in it."""
    marks: dict[str, Callable[[dict[str, Any]], bool]] = {
        "detected_s": lambda now: now["disruptions"] > before["disruptions"],
        "planned_s": lambda now: now["attempt"] > before["attempt"],
        "deployed_s": lambda now: now["attempt"] > before["attempt"] and _holds(now, "Deployed"),
    }
    status, seen_s = before, {}

    def is_up() -> bool:
        nonlocal status
        status = job.status()
        seen_s.update({name: time.time() for name, is_so in marks.items() if name not in seen_s and is_so(status)})
        return len(seen_s) == len(marks)

    wait_until(is_up, f"the next attempt of {job.name}", timeout_s=TIMEOUT_S, interval_s=LOOK_S)
    return status, seen_s


def first_step(job: Job, attempt: int) -> tuple[float, int]:
    """Wait for the first step of an attempt: when that was, and after which step it went on."""
    pod = job.pods()[0]["metadata"]["name"]
    seen: list[tuple[float, int]] = []

    def made() -> bool:
        own = _since(job, pod, attempt)
        resumed = next((int(found[1]) for _, said in own if (found := RESUMED.match(said))), 0)
        seen.extend((at, resumed) for at, said in own if STEP.match(said))
        return bool(seen)

    wait_until(made, f"the first step of attempt {attempt}", timeout_s=TIMEOUT_S, interval_s=0.5)
    return seen[0]


def start_s(job: Job) -> float:
    """Seconds from the launch of rank 0 to the first step of the attempt in force: imports, rendezvous, checkpoint."""
    attempt = job.status()["attempt"]
    stepped_s, _ = first_step(job, attempt)
    return stepped_s - _since(job, job.pods()[0]["metadata"]["name"], attempt)[0][0]


def _since(job: Job, pod: str, attempt: int) -> list[tuple[float, str]]:
    """What a pod has printed since it runs that attempt."""
    words = job.log(pod)
    began = next(
        (number for number, (_, said) in enumerate(words) if f"attempt {attempt}: worker 0" in said), len(words)
    )
    return words[began:]


class _Steps:
    """The steps in a pod's log as it grows. Its node may be gone before the end."""

    def __init__(self, job: Job, pod: str) -> None:
        self.made: list[int] = []
        self._process = job.lab.kube.follow("kubectl", "logs", "-f", "--tail=5", pod, "-n", job.namespace)
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._reader.join()

    def wait(self, is_so: Callable[[int], bool]) -> None:
        """Until the last step is such a one."""
        wait_until(
            lambda: bool(self.made) and is_so(self.made[-1]), "such a step", timeout_s=TIMEOUT_S, interval_s=LOOK_S
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.made.extend(int(found[1]) for line in self._process.stdout if (found := STEP.match(line)))


def _holds(status: dict[str, Any], kind: str) -> bool:
    return any(found["type"] == kind and found["status"] == "True" for found in status["conditions"])


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
