"""Serves what a worker's ranks have done at its metrics port, for programs that know nothing of Hulk.

`hulk-launch` answers for its ranks, so that there is an answer also while they hang. The port is taken when the first
step is counted: a program that serves its progress itself (hulk_runtime's own loop) has said so before, and is left
alone. The series are those of such programs, as far as they can be known from outside.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from hulk_runtime import background
from hulk_runtime.errors import termination_record
from hulk_runtime.job.step_record import NUM_BYTES, WINDOW_STEPS, StepRecord
from hulk_runtime.job.worker_http import WorkerHandler, WorkerServer

if TYPE_CHECKING:
    from prometheus_client import Metric

LOOK_S: Final = 0.5
END_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Served:
    """Whose progress it is, and where it is served. `speaks`: rank 0 is among the ranks, so it is the job's too."""

    attempt: int
    port: int
    speaks: bool


class WorkerSteps:
    """The records of one worker's ranks; `paths`: where each rank finds its own, in memory of this process."""

    def __init__(self, num_ranks: int, served: Served) -> None:
        self.served = served
        self._descriptors = [os.memfd_create("hulk-steps") for _ in range(num_ranks)]
        for descriptor in self._descriptors:
            os.ftruncate(descriptor, NUM_BYTES)
        self.records = tuple(StepRecord(descriptor) for descriptor in self._descriptors)
        self.paths = tuple(f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in self._descriptors)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve for the length of a `with` block, from the first step on; the records end with it."""
        over = threading.Event()
        serve = partial(self._serve, over)
        thread = background.Thread("hulk-steps", serve, broke=_not_shown, restarts=lambda: not over.is_set())
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            for descriptor in self._descriptors:
                os.close(descriptor)

    def last_words(self) -> str:
        """How far rank 0 came, for the operator, whose polls end before the last step; empty: others tell that."""
        found = self.records[0].read()
        if not self.served.speaks or not found.step or any(record.is_served for record in self.records):
            return ""
        is_saved = found.checkpoint_step == found.step
        saved_bytes, where = (found.checkpoint_bytes, found.checkpoint_where) if is_saved else (0, "")
        return termination_record(self.served.attempt, found.step, found.loss, saved_bytes, where=where)

    def _serve(self, over: threading.Event) -> None:
        while not any(record.read().step for record in self.records):
            if over.wait(LOOK_S):
                return
        if any(record.is_served for record in self.records):
            return
        try:
            server = _Server(self)
        except OSError as error:
            print(f"hulk-launch: steps are not shown, port {self.served.port}: {error.strerror}", flush=True)
            return
        with server:
            serve = partial(server.serve_forever, END_POLL_S)
            background.Thread("hulk-steps-server", serve, broke=_not_shown, restarts=lambda: not over.is_set()).start()
            over.wait()
            server.shutdown()


def _not_shown(name: str, error: BaseException) -> None:
    """Training goes on: the ranks need nobody who shows their steps."""
    print(f"hulk-launch: steps are not shown any more, {name} broke: {error!r}", flush=True)


def collect(steps: WorkerSteps) -> "Iterable[Metric]":
    """What is known, by the names that programs of hulk_runtime use; those of the job only where rank 0 runs."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily  # slow to load

    first, served = steps.records[0].read(), steps.served
    own = GaugeMetricFamily(
        "hulk_worker_own_step", "Last step that this worker's first rank completed.", None, ["attempt"]
    )
    own.add_metric([str(served.attempt)], first.step)
    yield own
    failures = CounterMetricFamily("hulk_worker_background_failures", "Breaks of a thread.", None, ["thread"])
    for thread, count in sorted(background.failures().items()):
        failures.add_metric([thread], count)
    yield failures
    if not served.speaks:
        return
    info = InfoMetricFamily("hulk_worker", "What runs here.")
    info.add_metric([], {"attempt": str(served.attempt), "counted_by": "hulk-launch"})
    yield info
    for name, value, text in (
        ("step", first.step, "Last completed step."),
        ("step_seconds", first.step_s, f"Median of the last {WINDOW_STEPS} steps."),
        ("step_seconds_last", first.durations_s[-1] if first.durations_s else None, "Duration of the last step."),
        ("loss", first.loss, "What rank 0 reported last."),
        ("parameters", first.num_parameters or None, "Parameters that rank 0's optimizers update."),
        ("checkpoint_step", first.checkpoint_step or None, "Step of the last checkpoint that hulk.Checkpointer wrote."),
        ("checkpoint_bytes", first.checkpoint_bytes or None, "Its bytes."),
        ("gradient_bytes", first.gradient_bytes or None, "Bytes of those parameters' gradients."),
    ):
        if value is not None:
            yield GaugeMetricFamily(f"hulk_worker_{name}", text, value)
    if first.checkpoint_where:
        where = InfoMetricFamily("hulk_worker_checkpoint", "Its URL.")
        where.add_metric([], {"where": first.checkpoint_where})
        yield where
    if first.compute_s is not None:
        compute = GaugeMetricFamily(
            "hulk_worker_compute_seconds", "What rank 0 computed in one of its first steps.", None, ["rank"]
        )
        compute.add_metric(["0"], first.compute_s)
        yield compute


class _Server(WorkerServer):
    def __init__(self, steps: WorkerSteps) -> None:
        self._steps = steps
        super().__init__("hulk-steps-answer", steps.served.port, _Handler)

    def collect(self) -> "Iterable[Metric]":
        """As a registry does."""
        return collect(self._steps)


class _Handler(WorkerHandler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802  # the standard library's name
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

        if self.path == "/metrics":
            self.answer(HTTPStatus.OK, generate_latest(self.server), CONTENT_TYPE_PLAIN_0_0_4)
        else:
            self.answer(HTTPStatus.NOT_FOUND)
