"""`python -m bench.compare -t topology.yaml -w workload.yaml [-w ...]`: every search side by side, at equal time.

Each job is searched as if there were no other; of several jobs also divisions of the machines among them are. Costs are
those of the closed form that searches go by: seconds of a step, or its price where the job asks for the cheapest.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hulk_placement.files import text
from hulk_placement.files.topology import TopologyFile
from hulk_placement.files.topology_reading import to_topology
from hulk_placement.files.workload_reading import read_workload
from hulk_placement.solution import Unplaced
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload
from rich.console import Console
from rich.table import Table

from bench.divisions import compare as division
from bench.layout_searches import compare as layouts


def main() -> None:
    """Read the files, run the searches, print a table for each job and one for all."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("-t", "--topology", type=Path, required=True, help="kind Topology")
    parser.add_argument("-w", "--workload", type=Path, action="append", required=True, help="kind Workload")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each search")
    options = parser.parse_args()
    (document,) = text.read_all(options.topology)
    where = str(options.topology)
    topology = to_topology(text.parse(TopologyFile, document, where), where).topology
    workloads = [read_workload(path, topology).workload for path in options.workload]
    console = Console(highlight=False)
    for workload in workloads:
        console.print(workload.key, *tables(workload, topology, options.seconds))
    if len(workloads) > 1 and len({workload.objective for workload in workloads}) == 1:
        console.print("All jobs together (geometric means)", *divided(workloads, topology, options.seconds))


def tables(workload: Workload, topology: Topology, seconds: float) -> Iterator[Table | str]:
    """The searches for the layout of one job, and what no layout costs less than."""
    found = layouts.compare(workload, topology, seconds, time.process_time)
    if isinstance(found, Unplaced):
        yield found.message
        return
    yield from _table(found.rows, found.least)


def divided(workloads: Sequence[Workload], topology: Topology, seconds: float) -> Iterator[Table | str]:
    """The searches for divisions of the machines among the jobs."""
    found = division.compare(workloads, topology, seconds, time.process_time)
    yield from _table(found.rows, found.least)


def _table(rows: Sequence[layouts.Row | division.Row], least: float) -> Iterator[Table | str]:
    bound = max([least, *(row.cost for row in rows if row.is_proven and row.cost < math.inf)])
    table = Table("search", "cost", "gap", "evaluations", "s", "found")
    for row in sorted(rows, key=lambda row: row.cost):
        gap = "" if row.cost == math.inf else "proven best" if row.is_proven else f"{1 - bound / row.cost:.1%}"
        cost = "" if row.cost == math.inf else f"{row.cost:.6g}"
        table.add_row(row.search, cost, gap, f"{row.num_evaluations:,}", f"{row.seconds:.2f}", outcome_words(row))
    yield table
    yield f"Nothing costs less than {bound:.6g}"


def outcome_words(row: layouts.Row | division.Row) -> str:
    """What a search found, or why it has nothing."""
    if row.cost < math.inf:
        return _division_words(row) if isinstance(row, division.Row) else _layout_words(row)
    if row.is_proven:
        return "impossible: it has looked at everything"
    if row.is_time_over:
        return f"no plan found when the time ended, after {row.seconds:.2f} s"
    return "no plan found in what it tries"


def _division_words(row: division.Row) -> str:
    return f"{' + '.join(map(str, row.num_accelerators))} accelerators"


def _layout_words(row: layouts.Row) -> str:
    shape = row.shape
    assert shape is not None
    words = f"{shape.data} x {shape.pipeline} x {shape.option.tensor}, micro-batch {shape.option.micro_batch}"
    return f"{words}, {shape.option.schedule}" if shape.pipeline > 1 else words


if __name__ == "__main__":
    main()
