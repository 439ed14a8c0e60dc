"""One real training in the geo lab: the order it ran in, what was predicted before the first step, what it took."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from hulk_placement.model import Transformer

from bench.conditions import TRIES, Conditions, Watch, wait_for_quiet
from bench.geo import NAMESPACE, Geo, container, pod_spec, wait

WARM_UP_STEPS = 3
"""Left out of every median: connections are made and windows grow in them."""
STEP = re.compile(r"step=\d+ loss=(\S+) step_s=(\S+) .*slowest_s=(\S+) ")
LATE_GO = "start: no go from the operator"
MOST_PODS = 16
NOTHING_MORE: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Size:
    """A byte-level GPT and its batch."""

    layers: int
    hidden: int
    global_batch: int
    sequence_length: int = 64

    @property
    def transformer(self) -> dict[str, int]:
        heads = {"heads": 4, "sequenceLength": self.sequence_length, "vocabulary": 256}
        return {"layers": self.layers, "hidden": self.hidden, **heads}

    @property
    def shape(self) -> Transformer:
        """As the planner has it."""
        return Transformer(self.layers, self.hidden, heads=4, sequence_length=self.sequence_length, vocabulary=256)

    def __str__(self) -> str:
        return f"{self.layers}x{self.hidden}, batch {self.global_batch}"


@dataclass(frozen=True, slots=True)
class Training:
    """What one job did. Seconds; medians are over all steps but the first WARM_UP_STEPS."""

    order: tuple[str, ...]
    predicted_s: float
    predicted_compute_s: float
    predicted_communication_s: float
    source: str
    in_time: bool
    """Whether the prediction was written before the first step began."""
    step_s: tuple[float, ...]
    compute_s: tuple[float, ...]
    """Of the slowest rank of each step, which is what the step waits for."""
    losses: tuple[float, ...]
    conditions: Conditions
    status: Mapping[str, Any] = field(default_factory=dict)
    """The job's, at its end."""
    last_lines: tuple[str, ...] = ()
    """Of each worker's log, where it was listened to."""

    @property
    def valid(self) -> bool:
        """Whether its figures count."""
        return self.conditions.valid

    @property
    def observed_s(self) -> float:
        return statistics.median(self.step_s[WARM_UP_STEPS:])

    @property
    def observed_compute_s(self) -> float:
        return statistics.median(self.compute_s[WARM_UP_STEPS:])

    @property
    def observed_communication_s(self) -> float:
        """What the steps took beyond the computation of their slowest ranks."""
        pairs = zip(self.step_s, self.compute_s, strict=True)
        return statistics.median([step_s - compute_s for step_s, compute_s in pairs][WARM_UP_STEPS:])

    @property
    def relative_error(self) -> float:
        """(predicted - observed) / observed."""
        return self.predicted_s / self.observed_s - 1


EXAMPLE = pod_spec(container("/opt/hulk/bin/python", "-m", "hulk_runtime.examples.gpt"))


def job(
    name: str,
    size: Size,
    steps: int,
    num_workers: int,
    pins: Sequence[str] = (),
    sync: str = "auto",
    pod: Mapping[str, Any] = EXAMPLE,
    more: Mapping[str, Any] = NOTHING_MORE,
) -> dict[str, Any]:
    """A HulkJob of exactly so many workers, in the plan's order or the pinned one; `more` goes into its spec."""
    return {
        "apiVersion": "hulk.dev/v1alpha1",
        "kind": "HulkJob",
        "metadata": {"name": name},
        "spec": {
            "workers": {"min": num_workers, "max": num_workers},
            "model": {"transformer": size.transformer},
            "training": {"globalBatch": size.global_batch, "steps": steps},
            "placement": {"workerNodes": list(pins)},
            "sync": {"mode": sync},
            "runPolicy": {"backoffLimit": 0},
            "template": {"spec": pod},
            **more,
        },
    }


def train(
    geo: Geo,
    name: str,
    size: Size,
    *,
    steps: int = 13,
    num_workers: int = 6,
    pins: Sequence[str] = (),
    sync: str = "auto",
    pod: Mapping[str, Any] = EXAMPLE,
    more: Mapping[str, Any] = NOTHING_MORE,
    listens: bool = False,
) -> Training:
    """Run a job to its end, again while its conditions do not count. RuntimeError when it does not train.

    `listens`: to the last line of every worker.
    """
    for _ in range(TRIES):
        wait_for_quiet()
        training = _train_once(geo, name, job(name, size, steps, num_workers, pins, sync, pod, more), listens)
        if training.valid:
            break
        geo.story.line(f"{name}: {training.conditions}")
    return training


def _train_once(geo: Geo, name: str, manifest: dict[str, Any], listens: bool) -> Training:
    """One job, deleted at the end."""
    selector, listening = f"hulk.dev/job={name}", ThreadPoolExecutor(MOST_PODS)
    num_workers, steps = manifest["spec"]["workers"]["max"], manifest["spec"]["training"]["steps"]
    geo.apply(manifest)
    try:
        wait(f"the pods of {name}", lambda: len(geo.pods(selector)) == num_workers)
        order = {
            pod["metadata"]["labels"]["hulk.dev/worker"]: pod["spec"].get("nodeName") for pod in geo.pods(selector)
        }
        ends = [listening.submit(geo.last_line, pod["metadata"]["name"]) for pod in geo.pods(selector) if listens]
        steps_seen: list[tuple[float, ...]] = []
        go, watch = True, Watch(geo.lab.net)
        for line in geo.log_lines(rank0(geo, selector)):
            go = go and not line.startswith(LATE_GO)
            if found := STEP.match(line):
                steps_seen.append(tuple(float(word) for word in found.groups()))
                if len(steps_seen) == WARM_UP_STEPS:
                    watch.begin_wan()
        conditions = watch.conditions()
        wait(f"{name} to finish", lambda: phase(geo, name) in ("Succeeded", "Failed"))
        status = geo.find("hulkjob", name)["status"]
        last_lines = tuple(end.result() for end in ends)
    finally:
        geo.delete("hulkjob", name, selector)
        listening.shutdown()
    if len(steps_seen) != steps:
        why = (status.get("lastFailure") or {}).get("message", "it told of no failure")
        raise RuntimeError(f"{name} in {NAMESPACE} trained {len(steps_seen)} of {steps} steps: {why}")
    losses, step_s, compute_s = zip(*steps_seen, strict=True)
    prediction = status["prediction"]
    return Training(
        order=tuple(order[str(worker)] for worker in range(num_workers)),
        predicted_s=prediction["stepMicroseconds"] / 1e6,
        predicted_compute_s=prediction["computeMicroseconds"] / 1e6,
        predicted_communication_s=prediction["communicationMicroseconds"] / 1e6,
        source=prediction["source"],
        in_time=go and prediction["source"] != "assumed",
        step_s=step_s,
        compute_s=compute_s,
        losses=losses,
        conditions=conditions,
        status=status,
        last_lines=last_lines,
    )


def rank0(geo: Geo, selector: str) -> str:
    """The pod of rank 0."""
    found = geo.pods(f"{selector},hulk.dev/worker=0")
    return str(found[0]["metadata"]["name"])


def phase(geo: Geo, name: str) -> str:
    """Of a job."""
    return str(geo.find("hulkjob", name).get("status", {}).get("phase", "Pending"))
