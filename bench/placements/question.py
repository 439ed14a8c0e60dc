"""`python -m bench placements`: Hulk's plan beside the machines that others choose, in labs of different shapes.

Every row is a real training of the same HulkJob on real kubelets, over links that a lab emulates, on machines whose
accelerators are emulated too, of unequal speed; only who its workers are differs, and their order. All of them use
gloo's ring, so that nothing else decides; one more row is Hulk's plan as it is by default, with whichever all-reduce is
faster. Hulk knows every machine's speed for the job from trainings before, which are no rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hulk_lab import spec
from hulk_lab.processes import NotReadyError
from rich.console import Console
from rich.table import Table

from bench.accelerators import CORES, SCRIPT, pod_on
from bench.geo import FILES, NAME, Geo, geo_lab, script
from bench.placements.choices import at_random, by_name, most_free_first, searched
from bench.placements.draw import SHAPES
from bench.placements.rows import CHOOSING, DEFAULT, PLANNED, Outcome, Row, outcomes, read, verdicts
from bench.raw import Raw
from bench.training import Size, Training, train

SIZE = Size(layers=4, hidden=96, global_batch=60)
STEPS = 10
SEEDS = (1, 2, 3)
SHORT = (PLANNED, "name order")


def run(short: bool = False) -> None:
    """Train in every lab, and print what all show together."""
    everybody = SHORT if short else ()
    paths = [in_lab(name, everybody) for name in (list(SHAPES)[:1] if short else SHAPES)]
    conclude(outcomes(row for path in paths for row in read(path)))


def conclude(found: Sequence[Outcome]) -> None:
    """Print the tables and the verdicts."""
    console = Console(highlight=False, width=170)
    for outcome in found:
        console.print(table(outcome))
    for sentence in verdicts(found):
        console.print(sentence)


def in_lab(name: str, asked: Sequence[str] = (), *, more: bool = False, keep: bool = False) -> Path:
    """Train in one lab on what each chooses (empty: everybody); where the rows are.

    `more`: behind those there are. `keep`: the lab is left up, and one that was left is taken over.
    """
    lab, num_workers = spec.load(FILES[name]), SHAPES[name].num_workers
    raw, pod = Raw(f"placements-{name}", fresh=not more), pod_on(lab, SIZE)

    def prepare(geo: Geo) -> None:
        geo.install()
        geo.use_links(name)
        geo.apply(script(SCRIPT))
        calibrate(geo, num_workers, pod)

    with geo_lab(name, f"{NAME}-{name}", prepare=prepare, keep=keep, cores=CORES) as geo:
        chosen = choices(lab, num_workers, measured_speeds(geo))
        for who, nodes in chosen.items():
            if asked and who not in asked:
                continue
            try:
                row = Row.of(name, who, place(geo, who, nodes, num_workers, pod))
            except (RuntimeError, NotReadyError) as error:  # the other rows are worth as much without it
                geo.story.line(f"{who}: {error}")
                continue
            raw.add(row)
            geo.story.line(str(row))
    return raw.path


def calibrate(geo: Geo, num_workers: int, pod: Mapping[str, Any]) -> None:
    """Have every node train once, as many at a time as later: Hulk keeps the speeds that they show."""
    nodes = geo.node_names
    for first in range(0, len(nodes), num_workers):
        some = nodes[first : first + num_workers]
        train(geo, f"calibrates-{first}", SIZE, steps=4, num_workers=len(some), pins=some, sync="ring", pod=pod)


def measured_speeds(geo: Geo) -> dict[str, float]:
    """What Hulk knows of them, FLOP/s by node."""
    profiles = geo.kube.get("nodeprofiles")["items"]
    return {
        profile["metadata"]["name"]: float(profile["status"]["accelerators"][0]["flopsPerSecond"])
        for profile in profiles
        if profile.get("status", {}).get("accelerators")
    }


def choices(lab: spec.LabSpec, num_workers: int, flops_per_s: Mapping[str, float]) -> dict[str, tuple[str, ...]]:
    """The nodes of each in rank order; none where the plan decides."""
    found: dict[str, tuple[str, ...]] = {
        PLANNED: (),
        "name order": by_name(lab, num_workers),
        "most free first": most_free_first(lab, num_workers),
    }
    found |= {f"random {seed}": at_random(lab, num_workers, seed) for seed in SEEDS}
    found |= {who: searched(lab, num_workers, SIZE, flops_per_s, search) for who, search in CHOOSING.items()}
    return found | {DEFAULT: ()}


def place(geo: Geo, who: str, nodes: Sequence[str], num_workers: int, pod: Mapping[str, Any]) -> Training:
    """The job on these nodes in this order, or as planned."""
    name = who.lower().replace(" ", "-").replace(",", "")
    sync = "auto" if who == DEFAULT else "ring"
    return train(geo, name, SIZE, steps=STEPS, num_workers=num_workers, pins=nodes, sync=sync, pod=pod)


def table(outcome: Outcome) -> Table:
    """A row for each training."""
    view = Table("who chose", "workers", "step s", "x planned", "predicted s", "error", "compute s", "conditions")
    planned_s = outcome.step_s(PLANNED)
    for row in outcome.rows:
        view.add_row(
            row.who,
            " ".join(row.order),
            f"{row.observed_s:.3f}",
            f"{row.observed_s / planned_s:.2f}" if planned_s else "",
            f"{row.predicted_s:.3f}",
            f"{row.error:+.1%}",
            f"{row.observed_compute_s:.3f}, {row.predicted_compute_s:.3f}",
            row.conditions,
        )
    view.title = f"{outcome.lab}: medians of steps; compute observed, predicted"
    return view
