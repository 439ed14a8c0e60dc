"""What a ring's order is worth: every order timed inside one process set, then full training in the ones that matter.

planned        as Hulk orders it from the links it measured
best, worst    of the orders timed as groups
name order     nodes sorted by name; region order: region after region as in the lab's file
kube-scheduler the nodes that pods 0 to 5 get when nobody pins them
random         three, by a printed seed
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.conditions import Conditions, Watch
from bench.geo import NAMESPACE, Geo, container, geo_lab, pod_spec, script, wait
from bench.orders import cycles, one_of_each_pattern, random_orders, rotated
from bench.raw import Raw
from bench.training import Size, Training, rank0, train
from bench.verdicts import verdict

SEED = 1
SIZE = Size(layers=4, hidden=96, global_batch=6)
RING_BYTES = 2_000_000
"""About the gradients of SIZE."""
NUM_RUNS = 3


@dataclass(frozen=True, slots=True)
class Ring:
    """An order, and its seconds for one all-reduce inside the shared process set."""

    order: tuple[str, ...]
    num_bytes: int
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class Timed:
    """All rings of one process set."""

    rings: tuple[Ring, ...]
    conditions: Conditions

    def best(self) -> Ring:
        return min(self.rings, key=lambda ring: ring.median_s)

    def worst(self) -> Ring:
        return max(self.rings, key=lambda ring: ring.median_s)

    def of_pattern(self, order: Sequence[str], region: Mapping[str, str]) -> Ring | None:
        """The ring timed for this cycle, else one with the same pattern of regions."""
        wanted = rotated([region[node] for node in order])
        exact = [ring for ring in self.rings if rotated(ring.order) == rotated(order)]
        alike = (ring for ring in self.rings if rotated([region[node] for node in ring.order]) == wanted)
        return exact[0] if exact else next(alike, None)


def time_rings(geo: Geo, orders: Sequence[tuple[str, ...]], num_bytes: int, num_runs: int = NUM_RUNS) -> Timed:
    """Time the orders as groups inside one process set of one process a node."""
    nodes = sorted(geo.node_names)
    rank = {node: number for number, node in enumerate(nodes)}
    geo.apply(script("time_rings.py"))
    worker = container("/opt/hulk/bin/python", "/bench/time_rings.py")
    ranks = [[rank[node] for node in order] for order in orders]
    asked = {"ORDERS": json.dumps(ranks), "SIZES": json.dumps([num_bytes]), "RUNS": str(num_runs)}
    worker["env"] = [{"name": name, "value": value} for name, value in asked.items()]
    worker["volumeMounts"] = [{"name": "scripts", "mountPath": "/bench"}]
    name, selector = "rings", "hulk.dev/job=rings"
    geo.apply(
        {
            "apiVersion": "hulk.dev/v1alpha1",
            "kind": "HulkJob",
            "metadata": {"name": name},
            "spec": {
                "workers": {"min": len(nodes), "max": len(nodes)},
                "model": {"transformer": SIZE.transformer},
                "training": {"globalBatch": len(nodes), "steps": 1},
                "placement": {"workerNodes": nodes},
                "runPolicy": {"backoffLimit": 0},
                "template": {"spec": pod_spec(worker, volumes=[{"name": "scripts", "configMap": {"name": "scripts"}}])},
            },
        }
    )
    rings: list[Ring] = []
    try:
        wait("the rings' pods", lambda: len(geo.pods(selector)) == len(nodes))
        watch = None
        for line in geo.log_lines(rank0(geo, selector)):
            if not line.startswith("{"):
                geo.story.line(line)
                continue
            watch = watch or Watch(geo.lab.net)
            row = json.loads(line)
            rings.append(Ring(tuple(nodes[i] for i in row["order"]), row["num_bytes"], tuple(row["seconds"])))
            geo.story.line(f"{len(rings)} of {len(orders)}: {' '.join(rings[-1].order)}  {rings[-1].median_s:.3f} s")
        if watch is None or len(rings) != len(orders):
            raise RuntimeError(f"{len(rings)} of {len(orders)} orders were timed")
        conditions = watch.conditions()
    finally:
        geo.delete("hulkjob", name, selector)
    return Timed(tuple(rings), conditions)


def scheduler_order(geo: Geo) -> tuple[str, ...]:
    """The nodes that kube-scheduler gives to six pods of one accelerator each, made one after the other."""
    names = [f"unpinned-{number}" for number in range(len(geo.node_names))]
    nodes: list[str] = []
    for name in names:
        worker = container("/bin/sleep", "600")
        worker["resources"]["limits"] = {"nvidia.com/gpu": "1"}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"bench": "unpinned"}}}
        geo.apply({**manifest, "spec": pod_spec(worker)})
        nodes.append(bound_node(geo, name))
    geo.kube.kubectl("delete", "pods", "-n", NAMESPACE, "-l", "bench=unpinned", "--wait")
    return tuple(nodes)


def bound_node(geo: Geo, pod: str) -> str:
    """The node a pod is bound to, once it is."""
    wait(f"{pod} to be bound", lambda: "nodeName" in geo.find("pod", pod)["spec"])
    return str(geo.find("pod", pod)["spec"]["nodeName"])


def run(links: Iterable[str] = ("A", "B"), short: bool = False) -> None:
    """Time and train under each set of links; print two tables for each."""
    console, raw = Console(highlight=False, width=140), Raw("ring")
    chosen = tuple(links)
    with geo_lab(chosen[0]) as geo:
        region = {node.name: node.region for node in geo.lab.net.nodes}
        for name in chosen:
            geo.use_links(name)
            orders = cycles(geo.node_names)
            if short:
                orders = one_of_each_pattern(orders, region)
            timed = time_rings(geo, orders, RING_BYTES)
            for ring in timed.rings:
                raw.add(ring, kind="ring", links=name, valid=timed.conditions.valid)
            console.print(rings_table(name, timed, region, all_orders=not short))
            trainings = train_orders(geo, timed, short)
            for label, training in trainings.items():
                raw.add(training, kind="training", links=name, label=label)
            console.print(training_table(name, trainings, timed, region))
            for sentence in verdicts(trainings, timed.conditions.valid):
                console.print(sentence)


def train_orders(geo: Geo, timed: Timed, short: bool) -> dict[str, Training]:
    """Full training, the planned order first; its calibration is part of the job, as in every job."""
    pinned = {
        "best timed": timed.best().order,
        "worst timed": timed.worst().order,
        "name order": tuple(sorted(geo.node_names)),
        "region order": tuple(geo.node_names),
        "kube-scheduler": scheduler_order(geo),
    }
    for number, order in enumerate(random_orders(geo.node_names, 1 if short else 3, SEED)):
        pinned[f"random {number + 1} (seed {SEED})"] = order
    found = {"planned": train(geo, "planned", SIZE)}
    geo.story.line(f"planned: {' '.join(found['planned'].order)}  {found['planned'].observed_s:.3f} s a step")
    for label, order in pinned.items():
        found[label] = train(geo, label.split(" (")[0].replace(" ", "-"), SIZE, pins=order)
        geo.story.line(f"{label}: {' '.join(order)}  {found[label].observed_s:.3f} s a step")
    return found


def rings_table(links: str, timed: Timed, region: Mapping[str, str], all_orders: bool) -> Table:
    """The fastest and slowest patterns, measured."""
    what = (
        f"all {len(timed.rings)} directed orders" if all_orders else f"one order of each of {len(timed.rings)} patterns"
    )
    table = Table(
        "order (regions)",
        "order",
        "measured s",
        "x best",
        title=f"links {links}: {what}, {RING_BYTES / 1e6:g} MB; {timed.conditions}",
    )
    ranked = sorted(timed.rings, key=lambda ring: ring.median_s)
    for ring in dict.fromkeys([*ranked[:5], *ranked[-3:]]):
        pattern = " ".join(region[node] for node in ring.order)
        ratio = ring.median_s / ranked[0].median_s
        table.add_row(pattern, " ".join(ring.order), f"{ring.median_s:.3f}", f"{ratio:.2f}")
    return table


def training_table(links: str, trainings: Mapping[str, Training], timed: Timed, region: Mapping[str, str]) -> Table:
    """Full training by order; the ring's own time beside it."""
    table = Table(
        "order",
        "ranks",
        "step s",
        "communication s",
        "x planned",
        "ring alone s",
        "conditions",
        title=f"links {links}: full training, {SIZE}, measured",
    )
    planned_s = trainings["planned"].observed_s
    for label, training in trainings.items():
        alone = timed.of_pattern(training.order, region)
        table.add_row(
            label,
            " ".join(training.order),
            f"{training.observed_s:.3f}",
            f"{training.observed_communication_s:.3f}",
            f"{training.observed_s / planned_s:.2f}",
            f"{alone.median_s:.3f}" if alone else "-",
            str(training.conditions),
        )
    return table


def verdicts(trainings: Mapping[str, Training], rings_valid: bool) -> list[str]:
    """The ratios that were asked for; none of a run whose conditions do not count."""

    def ratio(over: str, under: str) -> float | None:
        used = (trainings[over], trainings[under])
        return used[0].observed_s / used[1].observed_s if all(training.valid for training in used) else None

    fastest = min(trainings, key=lambda label: trainings[label].observed_s)
    timed = ratio("planned", "best timed") if rings_valid else None
    lines = [
        verdict(f"planned / best trained ({fastest})", ratio("planned", fastest), "at most", 1.05),
        verdict("planned / best timed ring, trained", timed, "at most", 1.05),
        verdict("name order / planned", ratio("name order", "planned"), "at least", 1),
        verdict("region order / planned", ratio("region order", "planned"), "at least", 1.4),
    ]
    others = [label for label in trainings if label == "kube-scheduler" or label.startswith("random")]
    found = {label: ratio(label, "planned") for label in others}
    lines += [f"{label} / planned: " + (f"{value:.4g}" if value else "no verdict") for label, value in found.items()]
    invalid = [label for label, training in trainings.items() if not training.valid]
    if invalid or not rings_valid:
        rings = [] if rings_valid else ["the rings' timing"]
        lines.append(f"no verdict where packets were late or processors stolen, INVALID: {', '.join(rings + invalid)}")
    return lines
