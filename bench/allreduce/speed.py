"""How fast: all methods in turn on every case and size, beside the physical bound and what the planner predicted."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.allreduce import case as cases
from bench.allreduce import ours, reference
from bench.allreduce.case import Case, Spec
from bench.allreduce.rounds import MIB, Band, Timed, time_in_turn
from bench.raw import Raw
from bench.verdicts import verdict

LARGE_BYTES = 16 * MIB
MOST_LARGE_RUNS = 3
MAX_BOUND_RATIO = 1.25
MAX_PREDICTION_ERROR = 0.05


@dataclass(frozen=True, slots=True)
class Row:
    """One case and size."""

    case: Case
    num_bytes: int
    timed: tuple[Timed, ...]
    reference_s: float | None
    """What was measured before for gloo's flat ring in this order."""
    bound_s: float
    predicted_s: float

    def median_s(self, method: str) -> float | None:
        return next((timed.median_s for timed in self.timed if timed.method == method), None)

    @property
    def best_gloo_s(self) -> float | None:
        """None unless every one of gloo's ways has runs that count."""
        found = [timed.median_s for timed in self.timed if timed.method in cases.GLOO]
        known = [seconds for seconds in found if seconds is not None]
        return min(known) if known and len(known) == len(found) else None

    @property
    def ours_s(self) -> float | None:
        return self.median_s(cases.OURS)

    @property
    def bound_ratio(self) -> float | None:
        return _ratio(self.ours_s, self.bound_s)

    @property
    def gloo_ratio(self) -> float | None:
        """How many times faster than gloo's best."""
        return _ratio(self.best_gloo_s, self.ours_s)

    @property
    def cpu_ratio(self) -> float | None:
        """Processor time by that of gloo's quickest way."""
        if self.best_gloo_s is None or self.ours_s is None:
            return None
        num_ranks = self.case.num_nodes
        gloo = next(timed for timed in self.timed if timed.median_s == self.best_gloo_s)
        wan = next(timed for timed in self.timed if timed.method == cases.OURS)
        return _ratio(wan.cpu_s_per_gb(num_ranks), gloo.cpu_s_per_gb(num_ranks))

    @property
    def prediction_error(self) -> float | None:
        ratio = _ratio(self.predicted_s, self.ours_s)
        return None if ratio is None else ratio - 1


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or under is None else over / under


def run(chosen: Iterable[Case], sizes: Sequence[int], num_runs: int) -> list[Row]:
    """Time all; one table a case, then the verdicts."""
    console, raw, rows = Console(highlight=False, width=160), Raw("allreduce-speed"), list[Row]()
    for case in chosen:
        with cases.band(case) as band:
            found = []
            wan = ours.method(case.regions, case.links, sizes)
            for num_bytes in sizes:
                fewer = min(num_runs, MOST_LARGE_RUNS) if num_bytes >= LARGE_BYTES else num_runs
                found.append(time_size(case, band, wan, num_bytes, fewer))
                for timed in found[-1].timed:
                    raw.add(timed, case=str(case), bound_s=found[-1].bound_s, predicted_s=found[-1].predicted_s)
                console.print(f"[dim]{case} {num_bytes / MIB:g} MiB: {_line(found[-1])}")
        console.print(table(case, found))
        console.print(resources(case, found))
        rows += found
    for line in verdicts(rows):
        console.print(line)
    return rows


def time_size(case: Case, band: Band, wan: Spec, num_bytes: int, num_runs: int) -> Row:
    """All methods in turn on one size, gloo's first."""
    specs = {**cases.gloo_methods(case, num_bytes), cases.OURS: wan}
    keys = {method: cases.key_of(spec) for method, spec in specs.items()}
    for method, spec in specs.items():
        band.make(keys[method], spec)
    timed = time_in_turn(keys, num_bytes, num_runs, band.run)
    order, planned = specs[cases.FLAT]["order"], ours.planned(wan, num_bytes)
    return Row(
        case,
        num_bytes,
        tuple(timed),
        reference.gloo_s(case.profile, cases.pattern(case, order), num_bytes),
        planned["boundSeconds"],
        planned["predictedSeconds"],
    )


def _line(row: Row) -> str:
    return "  ".join(f"{timed.method} {timed}" for timed in row.timed)


def table(case: Case, rows: Sequence[Row]) -> Table:
    """Medians in seconds; the figures made of them only where runs count."""
    methods = [timed.method for timed in rows[0].timed]
    found = Table("MiB", *methods, title=f"{case}, seconds; !: no run counts", title_justify="left")
    for column in ("flat before", "bound", "wan/bound", "gloo/wan", "predicted", "error"):
        found.add_column(column)
    for row in rows:
        found.add_row(
            f"{row.num_bytes / MIB:g}",
            *map(str, row.timed),
            *(_seconds(figure) for figure in (row.reference_s, row.bound_s)),
            *("-" if figure is None else f"{figure:.2f}" for figure in (row.bound_ratio, row.gloo_ratio)),
            _seconds(row.predicted_s),
            "-" if row.prediction_error is None else f"{row.prediction_error:+.1%}",
        )
    return found


def resources(case: Case, rows: Sequence[Row]) -> Table:
    """What the runs that count cost, and, of all runs, whether the machine or the WAN set their pace; medians."""
    title = f"{case}: processor seconds of the runs that count, the rest of all runs"
    found = Table("MiB", "method", "CPU s/GB a rank", title=title, title_justify="left")
    for column in ("processors busy", "by others", "packets dropped", "late", "stolen", "runs that count"):
        found.add_column(column)
    for row, timed in [(one, timed) for one in rows for timed in one.timed]:
        found.add_row(
            f"{row.num_bytes / MIB:g}",
            timed.method,
            "-" if (cpu := timed.cpu_s_per_gb(case.num_nodes)) is None else f"{cpu:.1f}",
            f"{statistics.median(run.busy_share for run in timed.runs):.0%}",
            f"{statistics.median(run.others_share for run in timed.runs):.0%}",
            f"{statistics.median(run.num_dropped for run in timed.runs):g}",
            f"{statistics.median(run.late_share for run in timed.runs):.2%}",
            f"{statistics.median(run.stolen_share for run in timed.runs):.1%}",
            f"{len(timed.valid)} of {len(timed.runs)}",
        )
    return found


def _seconds(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.3f}"


def _cpu_rows(cpu: Sequence[tuple[float, Row]]) -> str:
    """The median, and by name every row that takes more than gloo, the worst first."""
    above = sorted((found for found in cpu if found[0] > 1), key=lambda found: -found[0])
    middle = statistics.median(ratio for ratio, _ in cpu)
    text = f"CPU, wan / gloo's quickest: median {middle:.4g}, {len(above)} of {len(cpu)} above 1"
    return text + "".join(f"; {row.case} {row.num_bytes / MIB:g} MiB {ratio:.4g}" for ratio, row in above)


def verdicts(rows: Sequence[Row]) -> list[str]:
    """The aims over all cases; beside them whether gloo's figures are those that were measured before."""
    to_bound = [row.bound_ratio for row in rows if row.bound_ratio is not None]
    to_gloo = [row.gloo_ratio for row in rows if row.gloo_ratio is not None]
    errors = [abs(row.prediction_error) for row in rows if row.prediction_error is not None]
    cpu = [(ratio, row) for row in rows if (ratio := row.cpu_ratio) is not None]
    lines = [
        verdict("wan / bound, median", statistics.median(to_bound) if to_bound else None, "at most", MAX_BOUND_RATIO),
        verdict("gloo's best / wan, least", min(to_gloo, default=None), "at least", 1),
        verdict("prediction, mean error", statistics.mean(errors) if errors else None, "at most", MAX_PREDICTION_ERROR),
        verdict("CPU, wan / gloo's quickest, most", max((ratio for ratio, _ in cpu), default=None), "at most", 1),
    ]
    if cpu:
        lines.append(_cpu_rows(cpu))
    agreement = [
        abs(flat_s / row.reference_s - 1)
        for row in rows
        if row.reference_s is not None and (flat_s := row.median_s(cases.FLAT)) is not None
    ]
    if agreement:
        off = f"{statistics.mean(agreement):.1%} off on the mean, {max(agreement):.1%} at most"
        lines.append(f"gloo flat against {len(agreement)} earlier measurements: {off}")
    invalid = [f"{row.case} {row.num_bytes / MIB:g} MiB" for row in rows if any(not t.valid for t in row.timed)]
    if invalid:
        lines.append(f"no figure where packets were late or processors another's in every run: {', '.join(invalid)}")
    return lines
