"""Predicted against observed step time: sizes, links, orders and numbers of workers, every row a real training.

The prediction is read from the job's status; the operator writes it before the first step and never again. What
calibrates it (the preflight of the same pods, or a speed kept from an earlier job) trains nothing and is no row. The
nodes' accelerators are emulated (`bench.accelerators`).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from hulk_lab import spec
from hulk_lab.processes import NotReadyError
from rich.console import Console
from rich.table import Table

from bench.accelerators import CORES, SCRIPT, pod_on
from bench.geo import FILES, Geo, geo_lab, script
from bench.raw import Raw
from bench.training import Size, Training, train

SMALL = Size(layers=2, hidden=64, global_batch=30)
MEDIUM = Size(layers=4, hidden=96, global_batch=60)
LARGE = Size(layers=4, hidden=160, global_batch=30)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A row: links by name, a model, how many workers, which all-reduce (`sync.mode`), and which order."""

    links: str
    size: Size
    order: str = "planned"
    num_workers: int = 6
    sync: str = "auto"


RING = "ring"
CONFIGURATIONS = (
    Configuration("A", SMALL),
    Configuration("A", MEDIUM),
    Configuration("A", LARGE),
    Configuration("A", MEDIUM, sync=RING),
    Configuration("A", MEDIUM, "by name", sync=RING),
    Configuration("B", SMALL),
    Configuration("B", LARGE),
    Configuration("B", MEDIUM, num_workers=4),
    Configuration("B", LARGE, "by name", sync=RING),
    Configuration("asymmetric", MEDIUM),
    Configuration("asymmetric", LARGE),
    Configuration("asymmetric", MEDIUM, sync=RING),
    Configuration("asymmetric", MEDIUM, "reversed", sync=RING),
    Configuration("drawn", MEDIUM),
    Configuration("drawn", SMALL, num_workers=3),
    Configuration("drawn", LARGE, "by name", sync=RING),
)
"""Hulk's own all-reduce wherever the plan expects it to be faster, which is everywhere here, and gloo's ring, whose
order matters."""

SHORT = (CONFIGURATIONS[1], CONFIGURATIONS[4])


def run(short: bool = False) -> None:
    """Train every configuration and print predicted beside observed."""
    console, raw = Console(highlight=False, width=160), Raw("predict")
    rows: list[tuple[Configuration, Training]] = []
    chosen = SHORT if short else CONFIGURATIONS
    lab = spec.load(FILES[chosen[0].links])

    def prepare(geo: Geo) -> None:
        geo.install()
        geo.apply(script(SCRIPT))

    with geo_lab(chosen[0].links, prepare=prepare, cores=CORES) as geo:
        links = ""
        planned: tuple[str, ...] = ()
        for number, configuration in enumerate(chosen, start=1):
            if configuration.links != links:
                links = configuration.links
                geo.use_links(links)
            workers, pins = configuration.num_workers, _pins(geo, configuration, planned)
            try:
                pod = pod_on(lab, configuration.size)
                training = train(
                    geo,
                    f"row-{number}",
                    configuration.size,
                    num_workers=workers,
                    pins=pins,
                    sync=configuration.sync,
                    pod=pod,
                )
            except (RuntimeError, NotReadyError) as error:  # the other rows are worth as much without it
                geo.story.line(f"row {number}: {error}")
                continue
            if configuration.order == "planned":
                planned = training.order
            rows.append((configuration, training))
            raw.add(
                training, links=links, size=str(configuration.size), asked=configuration.order, sync=configuration.sync
            )
            geo.story.line(
                f"row {number}: predicted {training.predicted_s:.3f} s, observed {training.observed_s:.3f} s"
            )
    console.print(table(rows))
    for sync in sorted({configuration.sync for configuration in chosen}):
        trainings = [training for configuration, training in rows if configuration.sync == sync]
        for sentence in summary(trainings, sum(configuration.sync == sync for configuration in chosen)):
            console.print(f"{sync}: {sentence}")


def _pins(geo: Geo, configuration: Configuration, planned: Sequence[str]) -> tuple[str, ...]:
    """The order to force; the plan's own: none. `reversed` turns the last planned order round."""
    orders = {"planned": (), "by name": sorted(geo.node_names), "reversed": planned[::-1]}
    return tuple(orders[configuration.order])


def usable(training: Training) -> bool:
    """Whether a row counts."""
    return training.valid and training.in_time


def table(rows: Sequence[tuple[Configuration, Training]]) -> Table:
    """One row per configuration; predicted and measured in columns of their own."""
    view = Table(
        "links", "model", "all-reduce", "order", "ranks", "from", "predicted s", "observed s", "error",
        "compute pred. s", "obs. s", "comm. pred. s", "obs. s", "conditions",
        title="predicted before the first step against observed",
    )  # fmt: skip
    for configuration, training in rows:
        view.add_row(
            configuration.links,
            str(configuration.size),
            configuration.sync,
            configuration.order,
            " ".join(training.order),
            training.source,
            f"{training.predicted_s:.3f}",
            f"{training.observed_s:.3f}",
            f"{training.relative_error:+.1%}",
            f"{training.predicted_compute_s:.3f}",
            f"{training.observed_compute_s:.3f}",
            f"{training.predicted_communication_s:.3f}",
            f"{training.observed_communication_s:.3f}",
            f"{training.conditions}{'' if training.in_time else ', predicted too late: INVALID'}",
        )
    return view


def summary(trainings: Sequence[Training], num_rows: int) -> list[str]:
    """Mean and largest error, over the valid rows; and where it comes from."""
    valid = [training for training in trainings if usable(training)]
    if not valid:
        return [f"no valid row of {num_rows}"]
    errors = [abs(training.relative_error) for training in valid]
    compute = [abs(t.predicted_compute_s - t.observed_compute_s) / t.observed_s for t in valid]
    communication = [abs(t.predicted_communication_s - t.observed_communication_s) / t.observed_s for t in valid]
    return [
        f"{len(valid)} of {num_rows} rows valid; relative error of the step: mean {statistics.mean(errors):.1%}, "
        f"largest {max(errors):.1%} (aim below 10 %)",
        f"of the step, mean: compute mispredicted by {statistics.mean(compute):.1%}, "
        f"communication by {statistics.mean(communication):.1%}",
    ]
