"""Five jobs that arrive one after the other on six nodes, and what is seen of them until the time is up.

Accelerators are emulated, so that six pods at once are six times as fast as one, whatever the machine's processors do.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hulk_lab import reset, spec, up
from hulk_lab.builds import images
from hulk_lab.demo.chapters import Demo, Target
from hulk_lab.demo.story import Story
from hulk_operator.api import HulkJob
from hulk_operator.inputs.utilities import to_utility
from lab_jobs import SYSTEM_NAMESPACE, Jobs, Object, job
from rich.console import Console

from bench.accelerators import CORES, SCRIPT, pod_on
from bench.geo import script, with_cores
from bench.training import Size

SEED = 7
WINDOW_S = 300.0
LOOK_S = 1.0
NUM_NODES = 6
LONG = 100_000
SPEC = Path(__file__).with_name("fleet.yaml")
SIZE = Size(layers=4, hidden=64, global_batch=24, sequence_length=128)
LOSS = re.compile(r"^step=(\d+) loss=(\S+) ")
URGENT = "urgent"
DRAWS = {"wattsPerWorker": 10, "powerPrice": "0.00001"}
KNEE = {"steepness": "0.01", "midpoint": 500}


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job, and the seconds after the first one's at which it comes."""

    after_s: float
    manifest: Object

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.manifest["metadata"]["name"])


def arrivals(seed: int = SEED) -> list[Arrival]:
    """Five jobs of different worth: of the gaps between them each is drawn from 30 to 50 s.

    The third needs every node and is more important; the last two end within the window, so that others can have more.
    """
    draw = random.Random(seed)
    wanted = [
        ("returns", (1, NUM_NODES), LONG, {"type": "sqrt", "weight": "10"}, {}),
        ("watts", (1, 4), LONG, {"type": "energy", "weight": "0.2", "energy": DRAWS}, {}),
        (URGENT, (NUM_NODES, NUM_NODES), 20, {"type": "throughput"}, {"priorityClassName": URGENT}),
        (
            "knee",
            (1, 3),
            60,
            {"type": "sigmoid", "weight": "400", "sigmoid": {"steepness": "0.01", "midpoint": 500}},
            {},
        ),
        ("due", (1, 3), 60, {"type": "deadline", "weight": "600", "deadline": {"afterSeconds": 250}}, {}),
    ]
    at_s, found = 0.0, []
    for name, workers, steps, utility, more in wanted:
        made = job(name, workers, steps=steps, checkpoint_every=10, utility=utility, **more)
        made["spec"] |= {
            "model": {"transformer": SIZE.transformer},
            "training": {"globalBatch": SIZE.global_batch, "steps": steps},
            "template": {"spec": launched()},
        }
        found.append(Arrival(at_s, made))
        at_s += draw.uniform(30.0, 50.0)
    return found


def launched() -> Object:
    """Pods that outlive an attempt, on accelerators as fast as the lab's file says."""
    pod = pod_on(spec.load(SPEC), SIZE)
    pod["containers"][0]["command"] = ["/opt/hulk/bin/hulk-launch", f"/bench/{SCRIPT}"]
    return pod


def six_nodes(name: str) -> spec.LabSpec:
    """The lab's file under a name, whose pods compute as fast as the processors let them."""
    return with_cores(spec.load(SPEC, name), CORES)


@dataclass(slots=True)
class Seen:
    """What was seen of one job."""

    attempts: list[tuple[int, int]] = field(default_factory=list)  # (attempt, workers), each once, in order
    waited: list[Object] = field(default_factory=list)
    told: list[int] = field(default_factory=list)  # the steps of checkpoints that the status told of
    losses: dict[int, dict[int, float]] = field(default_factory=dict)  # by attempt and step
    events: dict[str, list[str]] = field(default_factory=dict)
    utility: float = 0.0


@dataclass(frozen=True, slots=True)
class Record:
    """One run of all five under one policy."""

    policy: str
    jobs: dict[str, Seen]

    @property
    def utility(self) -> float:
        """Of all jobs together."""
        return sum(seen.utility for seen in self.jobs.values())


def run(lab: up.Lab, install: Demo, policy: str) -> Record:
    """Let the jobs arrive under a policy and watch until the window is over."""
    install.install(f"queue.policy={policy}", "queue.settleSeconds=0")
    reset.reset(lab, keep={SYSTEM_NAMESPACE})
    jobs = Jobs(lab, f"fleet-{policy}")
    jobs.make_namespace()
    program = script(SCRIPT)
    program["metadata"]["namespace"] = jobs.namespace
    lab.kube.apply(program)
    lab.kube.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": URGENT},
            "value": 1000,
            "preemptionPolicy": "Never",
        }
    )
    coming, seen = arrivals(), {}
    readers: dict[str, tuple[str, Callable[[], list[str]]]] = {}
    begin_s = time.monotonic()
    while (now_s := time.monotonic() - begin_s) < WINDOW_S:
        while coming and coming[0].after_s <= now_s:
            one = coming.pop(0)
            jobs.submit(one.manifest)
            seen[one.name] = Seen()
        for name, known in seen.items():
            _look(jobs, name, known, readers)
        time.sleep(LOOK_S)
    for name, known in seen.items():
        _end(jobs, name, known)
    _read(jobs, seen, readers)
    return Record(policy, seen)


def _look(jobs: Jobs, name: str, known: Seen, readers: dict[str, tuple[str, Callable[[], list[str]]]]) -> None:
    """The status now; the logs of pods that are new."""
    status = jobs.status(name)
    now = (status.get("attempt", 0), status.get("plan", {}).get("numWorkers", 0))
    if status.get("phase") == "Running" and known.attempts[-1:] != [now]:
        known.attempts.append(now)
    if "queue" in status and known.waited[-1:] != [status["queue"]]:
        known.waited.append(status["queue"])
    if "checkpoint" in status:
        known.told.append(status["checkpoint"]["step"])
    for pod in jobs.pods(name):
        uid = pod["metadata"]["uid"]
        if pod["status"]["phase"] == "Running" and uid not in readers:
            readers[uid] = name, jobs.follow(pod["metadata"]["name"])


def _end(jobs: Jobs, name: str, known: Seen) -> None:
    """What its work is worth at the end of the window, and what people were told."""
    found = HulkJob.model_validate(jobs.get(name))
    seen, batch = found.status.observed, found.spec.training.global_batch
    kept = found.status.checkpoint.step if found.status.checkpoint else 0
    steps = max(seen.step if seen else 0, kept)
    total = float(found.spec.training.steps * batch)
    worth = to_utility(found)
    done_s = found.status.completion_time
    is_late = worth.deadline_s is not None and (done_s is None or done_s.timestamp() > worth.deadline_s)
    known.utility = worth.value(steps * float(batch), total, is_late) if steps else 0.0
    known.events = jobs.events(name)


def _read(jobs: Jobs, seen: dict[str, Seen], readers: dict[str, tuple[str, Callable[[], list[str]]]]) -> None:
    """The losses of every attempt, from whichever pod was its rank 0; the jobs are deleted, which ends their logs."""
    for name in seen:
        jobs.delete(name)
    for name, lines in readers.values():
        attempt = 0
        for line in lines():
            if (began := re.match(r"hulk-launch: attempt (\d+): worker \d+", line)) is not None:
                attempt = int(began[1])
            elif (found := LOSS.match(line)) is not None:
                seen[name].losses.setdefault(attempt, {})[int(found[1])] = float(found[2])


def installer(lab: up.Lab, repository: Path) -> Demo:
    """Who installs the chart with other values."""
    return Demo(Target(lab.kube, images.HULK_REFERENCE, wan=lab.net), repository, Story(Console(quiet=True)))
