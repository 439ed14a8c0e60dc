"""What a lost node costs: measured in the geo lab on real trainings, and how long planning takes on larger clusters.

Every fault is a job's of its own: it trains, keeps its state in the lab's object store every few steps, and one of its
nodes is killed as by a power cut. Nobody else does anything: the operator finds out, plans and carries out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from hulk_lab import node
from hulk_lab.addons import STORE, STORE_NAMESPACE
from hulk_lab.demo.chapters import SYSTEM_NAMESPACE
from rich.console import Console
from rich.table import Table

from bench.geo import NAMESPACE, Geo, geo_lab, wait
from bench.raw import Raw
from bench.replanning import planning
from bench.replanning.loss import MAX_DETECTED_S, MAX_FIRST_STEP_S, MAX_PLAN_S, Job, Loss, lose
from bench.training import Size, job
from bench.verdicts import verdict

SIZE = Size(layers=2, hidden=64, global_batch=12)
NUM_WORKERS = 3
CHECKPOINT_EVERY = 10
ENDLESS = 100_000
NUM_FAULTS = 5
LAUNCH = ("/opt/hulk/bin/hulk-launch", "-m", "hulk_runtime.examples.gpt")
FIGURES: dict[str, tuple[Callable[[Loss], float], float]] = {
    "fault detected s": (lambda found: found.detected_s, MAX_DETECTED_S),
    "plan s": (lambda found: found.plan_s, MAX_PLAN_S),
    "first new step s": (lambda found: found.first_step_s, MAX_FIRST_STEP_S),
    "lost steps": (lambda found: found.lost_steps, CHECKPOINT_EVERY),
}


def run(short: bool = False) -> None:
    """Print both tables, and for each limit whether the worst fault kept it."""
    console, raw = Console(highlight=False, width=140), Raw("replan")
    console.print(planning.table(planning.SIZES[:2] if short else planning.SIZES))
    losses: list[Loss] = []
    with geo_lab("replan") as geo:
        prepare(geo)
        for number in range(2 if short else NUM_FAULTS):
            losses.append(found := fault(geo, number))
            raw.add(found)
            geo.story.line(f"{found.node}: {found.message}")
    console.print(table(losses))
    for line in verdicts(losses):
        console.print(line)


def prepare(geo: Geo) -> None:
    """The operator beside the store, so that all other nodes may die; measured links; the store's keys for the jobs."""
    here = geo.kube.get("pods", "-n", STORE_NAMESPACE)["items"][0]["spec"]["nodeName"]
    others = [name for name in geo.node_names if name != here]
    geo.kube.kubectl("cordon", *others)
    geo.kube.kubectl("rollout", "restart", "deployment/hulk-operator", "-n", SYSTEM_NAMESPACE)
    geo.kube.kubectl("rollout", "status", "deployment/hulk-operator", "-n", SYSTEM_NAMESPACE)
    geo.kube.kubectl("uncordon", *others)
    geo.use_links("replan")
    data = geo.kube.get("secret", STORE, "-n", STORE_NAMESPACE)["data"]
    geo.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": STORE}, "data": data})


def fault(geo: Geo, number: int) -> Loss:
    """Train, kill a node, wait for the next step; the lab is as before afterwards."""
    name = f"loses-{number}"
    geo.apply(manifest(name))
    training = Job(geo.lab, NAMESPACE, name)
    try:
        wait(f"a checkpoint of {name}", lambda: training.status().get("checkpoint", {}).get("step"))
        dead = victim(geo, training, of_rank_0=number % 2 == 0)
        try:
            since_checkpoint = (4 * number + 1) % CHECKPOINT_EVERY  # 1, 5, 9, 3, 7
            return lose(training, dead, lambda step: step % CHECKPOINT_EVERY == since_checkpoint)
        finally:
            node.start(geo.lab.node(dead))  # its pods are not gone before
    finally:
        geo.delete("hulkjob", name, f"hulk.dev/job={name}")


def manifest(name: str) -> dict[str, Any]:
    """A job without end that keeps its state."""
    made = job(name, SIZE, ENDLESS, NUM_WORKERS)
    storage = {"url": f"s3://checkpoints/{name}", "secretName": STORE}
    made["spec"]["checkpoint"] = {"storage": storage, "everySteps": CHECKPOINT_EVERY}
    made["spec"]["runPolicy"] = {"backoffLimit": 3}
    made["spec"]["template"]["spec"]["containers"][0]["command"] = list(LAUNCH)
    return made


def victim(geo: Geo, training: Job, *, of_rank_0: bool) -> str:
    """A node of the gang, that of rank 0 or another where there is one; never the operator's and the store's."""
    kept = geo.kube.get("pods", "-n", STORE_NAMESPACE)["items"][0]["spec"]["nodeName"]
    first, *others = (pod["spec"]["nodeName"] for pod in training.pods())
    return str(next(name for name in ([first, *others] if of_rank_0 else [*others, first]) if name != kept))


def table(losses: Sequence[Loss]) -> Table:
    """A row for each fault, all figures measured."""
    view = Table("node", *FIGURES, "up again s", title="measured in the geo lab: seconds from the loss of a node on")
    for found in losses:
        figures = [f"{figure(found):.4g}" for figure, _ in FIGURES.values()]
        view.add_row(f"{found.node}{', rank 0' if found.with_rank_0 else ''}", *figures, f"{found.deployed_s:.4g}")
    return view


def verdicts(losses: Sequence[Loss]) -> list[str]:
    """Of each figure its median, and whether the worst is within its limit."""
    lines = []
    for name, (figure, limit) in FIGURES.items():
        seen = [figure(found) for found in losses]
        lines.append(verdict(f"{name}, median {statistics.median(seen):.4g}, worst", max(seen), "at most", limit))
    return lines
