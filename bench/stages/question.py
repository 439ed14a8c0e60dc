"""`python -m bench stages`: GPipe, 1F1B and the searched order of blocks, on real kubelets over emulated links.

A job whose model is cut into three stages, one in each region, and one of two such pipelines; links of two latencies,
and of the longer one where TCP keeps the windows of silent connections.
Trainings of the three ways take turns; accelerators are emulated (`bench.accelerators`). Every rank's executed order is
held against the plan's, and one more job's model fits no node whole: its pods have a memory limit, which the node
enforces, and as one stage it is killed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from hulk_lab import spec
from hulk_lab.processes import NotReadyError
from rich.console import Console
from rich.table import Table

from bench.accelerators import CORES
from bench.geo import FILES, NAME, Geo, geo_lab, script
from bench.raw import Raw
from bench.stages import memory
from bench.stages.pods import SCRIPT, stages_on
from bench.stages.rows import NUM_STAGES, ORDERS, SEARCHED, Case, Row, cases, verdicts
from bench.training import Size, Training, train

SIZE = Size(layers=10, hidden=96, global_batch=32)
"""The batch is each pipeline's."""

MICRO_BATCH = 4
STEPS = 13
NUM_ROUNDS = 3
LABS = (("near-stages", "far-stages"), ("warm-stages",))
"""Links that trainings take turns on, by the lab: the last one's TCP keeps the windows of silent connections."""
PLACES = {"0-3": "eu", "4-7": "us", "8-11": "ap"}
"""A stage in every region, whatever the links: without that stages that share parameters are put into one."""

NUM_PIPELINES = (1, 2)


def run(short: bool = False) -> None:
    """Train every case in rounds, and print what was predicted and what was observed."""
    console, raw, rows = Console(highlight=False, width=170), Raw("stages"), list[Row]()
    killed = ""
    for names in (names[-1:] for names in LABS) if short else LABS:
        with geo_lab(names[0], f"{NAME}-stages", prepare=prepare, cores=CORES) as geo:
            for name in names:
                geo.use_links(name)
                rows += trained(geo, name, 1 if short else NUM_ROUNDS, raw)
            killed = killed or split_or_killed(geo)
    console.print(table(rows))
    console.print("\n".join([*verdicts(rows), killed]))


def trained(geo: Geo, links: str, num_rounds: int, raw: Raw) -> Iterator[Row]:
    """All cases over some links."""
    lab = spec.load(FILES[links])
    for case in cases(links, NUM_PIPELINES, ORDERS, num_rounds):
        try:
            row = Row.of(case, once(geo, case, lab))
        except (RuntimeError, NotReadyError) as error:  # the other rows are worth as much without it
            geo.story.line(f"{case}: {error}")
            continue
        raw.add(row)
        geo.story.line(str(row))
        yield row


def split_or_killed(geo: Geo) -> str:
    """What became of a model that no node holds whole."""
    try:
        return memory.run(geo)
    except (RuntimeError, NotReadyError) as error:
        return f"a model that no node holds whole: no verdict: {error}"


def prepare(geo: Geo) -> None:
    """Hulk, and the program of the pods."""
    geo.install()
    geo.apply(script(SCRIPT))


def once(geo: Geo, case: Case, lab: spec.LabSpec) -> Training:
    """One training of a case."""
    return train(
        geo,
        case.job_name,
        SIZE,
        steps=STEPS,
        num_workers=NUM_STAGES * case.num_pipelines,
        pod=stages_on(lab, SIZE),
        more=spec_of(case),
        listens=True,
    )


def spec_of(case: Case) -> dict[str, Any]:
    """What a job of stages says beside what all jobs here do."""
    schedule = {} if case.order == SEARCHED else {"schedule": case.order}
    batch = SIZE.global_batch * case.num_pipelines
    return {
        "parallelism": {"data": case.num_pipelines, "pipeline": NUM_STAGES, **schedule},
        "placement": {"pins": [{"layers": layers, "regions": [region]} for layers, region in PLACES.items()]},
        "training": {"globalBatch": batch, "microBatch": MICRO_BATCH, "steps": STEPS},
    }


def table(rows: Sequence[Row]) -> Table:
    """A row for each case; medians of its rounds."""
    view = Table(
        "links", "pipelines", "order", "plan's", "rounds", "predicted s", "observed s", "error",
        "bubbles predicted, observed", "transfers observed", "as planned", "conditions",
        title="steps of three stages in three regions; medians of trainings that took turns",
    )  # fmt: skip
    for case in dict.fromkeys(row.case for row in rows):
        same = [row for row in rows if row.case == case and row.usable] or [row for row in rows if row.case == case]
        first = same[0]
        predicted_s, observed_s, bubble_s, seen_s, transfer_s = (
            statistics.median(getattr(row, name) for row in same)
            for name in ("predicted_s", "observed_s", "predicted_bubble_s", "observed_bubble_s", "observed_transfer_s")
        )
        view.add_row(
            first.links,
            str(first.num_pipelines),
            first.order,
            first.schedule,
            str(len(same)),
            f"{predicted_s:.3f}",
            f"{observed_s:.3f}",
            f"{predicted_s / observed_s - 1:+.1%}",
            f"{bubble_s:.3f}, {seen_s:.3f}",
            f"{transfer_s:.3f}",
            "yes" if all(row.is_as_planned for row in same) else "NO",
            "; ".join(dict.fromkeys(row.conditions for row in same)),
        )
    return view
