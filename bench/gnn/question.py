"""`python -m bench gnn`: whether the value network helps to divide machines among jobs, at equal time.

Clusters of regions that nothing was tuned or trained on (`bench.clusters`), with 1 to 6 jobs each (`bench.job_mixes`).
Seconds are the processor's, those of the network among them. A figure is the geometric mean of the steps of a cluster's
jobs, by the closed form after all layouts were searched; a change is the mean over clusters of log(one / other), with
the 95 % interval that the bootstrap gives. Predictions only, nothing measured.

    local         the best planner that learned nothing: local search by constructed layouts
    portfolio     the default: gnn where there is work for few layouts, else local; so local is the default without gnn
    gnn           local search that asks the value network which divisions and changes to price
    formula       the same search, asking a closed formula in place of the network
    hulk-gcn ...  see docs/how-it-works/several-jobs.md

The whole takes hours. `python -m bench.gnn --machines 128 --seconds 0.1 --clusters 0 18 --add` measures a part, keeps
what other parts found, and prints all of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence

from hulk_placement.gnn.guide import Guide
from hulk_placement.solution import Budget
from hulk_placement.solve import guided
from hulk_placement.solve.together import DIVISION_SHARE, divisions_of, work_on
from hulk_placement.split.division import Divisions, Progress
from hulk_placement.split.laid_out import lay_out

from bench import clusters
from bench.divisions import SEARCHES
from bench.gnn.formula import Formula
from bench.gnn.table import MOST_JOBS, SEARCHED, WITHOUT, Row, show
from bench.job_mixes import draw_jobs
from bench.raw import Raw

REGIONS = {32: 4, 128: 8, 512: 12, 1000: 17}
"""By machines."""

SECONDS = (0.1, 1.0, 10.0)
NUM_CLUSTERS = 36
FIRST_SEED = 5000


def run(short: bool) -> None:
    """Measure and print everything, or a small part."""
    raw = Raw("gnn")
    sizes, budgets = ((32, 128), SECONDS[:1]) if short else (tuple(REGIONS), SECONDS)
    show(measured(raw, sizes, budgets, range(6 if short else NUM_CLUSTERS), SEARCHED))


def measured(
    raw: Raw, sizes: Iterable[int], budgets: Iterable[float], numbers: Sequence[int], names: Sequence[str]
) -> list[Row]:
    """Every search of every problem; what compiles on its first use did so before."""
    for name in names:
        measure(name, 32, 0, 1.0)
    rows = []
    for seconds in budgets:
        for num_machines in sizes:
            for number in numbers:
                for name in names:
                    rows.append(measure(name, num_machines, number, seconds))
                    raw.add(rows[-1])
    return rows


def measure(name: str, num_machines: int, number: int, seconds: float) -> Row:
    """One search within so many seconds of the processor, all preparation among them."""
    seed, num_jobs = FIRST_SEED + 1000 * num_machines + number, 1 + number % MOST_JOBS
    topology = clusters.draw(seed, num_machines, REGIONS[num_machines])
    jobs = draw_jobs(seed, num_jobs, topology)
    begun_s = time.process_time()
    divisions = divisions_of(jobs, topology)
    left_s = max(1e-3, seconds - (time.process_time() - begun_s))
    work = work_on(divisions, Budget(iterations=10**12, seconds=left_s), time.process_time)
    search_of(name)(divisions, lambda: work.done() / DIVISION_SHARE, number)
    final = lay_out(work, number) if divisions.is_any_possible() else None
    return Row(
        num_machines=num_machines,
        num_jobs=num_jobs,
        cluster=number,
        seconds=seconds,
        search=name,
        log_step=math.inf if final is None else final.value / num_jobs,
        num_divisions=divisions.num_divisions,
        num_constructed=divisions.num_evaluations,
        num_annealed=work.num_arranged,
        num_guessed=divisions.num_guessed,
        took_s=time.process_time() - begun_s,
    )


def search_of(name: str) -> Callable[[Divisions, Progress, int], None]:
    """A search of the product, or the guided one with a formula in place of the network."""
    if name != WITHOUT:
        return SEARCHES[name]
    return lambda divisions, progress, seed: guided.search_with(divisions, progress, seed, Guide(divisions, Formula()))
