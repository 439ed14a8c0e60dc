"""The figures of all sizes beside each other, and whether they are what is aimed at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Final

from rich.table import Table

from bench.scale.clusters import Size
from bench.scale.measured import Span
from bench.scale.phases import NUM_ONES
from bench.verdicts import verdict

MAX_MIB: Final = 400
MAX_LAG_S: Final = 0.1
MAX_LEASE_GAP_S: Final = 10.0
"""After so long without a renewal the operator gives its lease up."""
MAX_BURST_S: Final = 8.0
MAX_POLL_GAP_S: Final = 7.0
"""A node that is silent for 3 s more is lost: within 10 s."""
Spans = Mapping[str, Span]
Figure = Callable[[Spans], float | None]


def most(of: Callable[[Span], float | None]) -> Figure:
    """The highest of all phases."""
    return lambda spans: max((value for span in spans.values() if (value := of(span)) is not None), default=None)


def total(of: Callable[[Span], float]) -> Figure:
    """Of all phases together."""
    return lambda spans: sum(map(of, spans.values()))


def value(phase: str, name: str) -> Figure:
    """What a phase found itself."""
    return lambda spans: spans[phase].values.get(name)


def one_s(spans: Spans) -> float | None:
    """The median of the single jobs; None where one was not bound in time."""
    found = [spans["one"].values[f"bound_{number}_s"] for number in range(NUM_ONES)]
    return None if None in found else median(seconds for seconds in found if seconds is not None)


def per_minute(phase: str, of: Callable[[Span], float]) -> Figure:
    """Of a phase, for each minute."""
    return lambda spans: 60 * of(spans[phase]) / spans[phase].seconds


def per_job(of: Callable[[Span], float]) -> Figure:
    """Of the burst, for each of its jobs."""
    return lambda spans: of(spans["burst"]) / (spans["burst"].values["jobs"] or 1)


def waiting_share(phase: str) -> Figure:
    """Of the time that the operator wanted a processor, when others had it, in percent."""

    def figure(spans: Spans) -> float | None:
        wanted_s = spans[phase].cpu_s + spans[phase].waited_s
        return 100 * spans[phase].waited_s / wanted_s if wanted_s else None

    return figure


ROWS: Final[tuple[tuple[str, Figure, str], ...]] = (
    ("memory, highest, MiB", most(lambda span: span.own_mib), ".0f"),
    ("with the planner's process, MiB", most(lambda span: span.with_planner_mib), ".0f"),
    ("process ended (lease lost, or killed for memory)", total(lambda span: span.num_ends), ".0f"),
    ("of these killed above 2,048 MiB", total(lambda span: span.num_too_large), ".0f"),
    ("longest between two renewals of the lease, s", most(lambda span: span.lease_gap_s), ".1f"),
    ("the machine stood still for s", total(lambda span: span.stood_s), ".0f"),
    ("start: holds the lease after s", value("start", "ready_s"), ".1f"),
    ("start: all NodeProfiles made after s", value("start", "profiles_s"), ".1f"),
    ("start: links ordered and quiet after s", value("start", "settled_s"), ".0f"),
    ("start: requests", lambda spans: spans["start"].num_requests, ".0f"),
    ("start: MB received", lambda spans: spans["start"].num_bytes / 1e6, ".1f"),
    ("start: of these probing, requests", lambda spans: spans["start"].probing_requests, ".0f"),
    ("start: of these probing, MB", lambda spans: spans["start"].probing_bytes / 1e6, ".1f"),
    ("start: bandwidth tests ordered", lambda spans: spans["start"].num_tests, ".0f"),
    ("one job: apply to last pod bound, s (median of 3)", one_s, ".2f"),
    ("100 jobs: apply to last pod bound, s", value("burst", "bound_s"), ".1f"),
    ("100 jobs: then all asked for their progress after s", value("burst", "observed_s"), ".1f"),
    ("100 jobs: planning passes", lambda spans: spans["burst"].num_passes, ".0f"),
    ("100 jobs: seconds of a pass", lambda spans: spans["burst"].pass_s, ".1f"),
    ("100 jobs: requests per job", per_job(lambda span: span.num_requests), ".1f"),
    ("100 jobs: MB received per job", per_job(lambda span: span.num_bytes / 1e6), ".2f"),
    ("100 jobs: CPU s of the operator", lambda spans: spans["burst"].cpu_s, ".1f"),
    ("100 jobs: loop lag p99.9, ms", lambda spans: _ms(spans["burst"].lag_p999_s), ".0f"),
    ("load: the pool full after s", value("load", "full_s"), ".0f"),
    ("window: jobs that run", value("window", "running_jobs"), ".0f"),
    ("window: jobs", value("window", "jobs"), ".0f"),
    ("window: loop lag p50, ms", lambda spans: _ms(spans["window"].lag_p50_s), ".1f"),
    ("window: loop lag p99, ms", lambda spans: _ms(spans["window"].lag_p99_s), ".0f"),
    ("window: loop lag p99.9, ms", lambda spans: _ms(spans["window"].lag_p999_s), ".0f"),
    ("window: loop lag at most, ms", lambda spans: _ms(spans["window"].lag_max_s), ".0f"),
    ("window: planning passes a minute", per_minute("window", lambda span: span.num_passes), ".1f"),
    ("window: seconds of a pass", lambda spans: spans["window"].pass_s, ".1f"),
    ("window: s between polls of a job, median", value("window", "poll_median_s"), ".1f"),
    ("window: s between polls of a job, most", value("window", "poll_max_s"), ".1f"),
    ("window: requests a minute", per_minute("window", lambda span: span.num_requests), ".0f"),
    ("window: MB received a minute", per_minute("window", lambda span: span.num_bytes / 1e6), ".1f"),
    ("window: of these probing, requests a minute", per_minute("window", lambda span: span.probing_requests), ".0f"),
    ("window: of these probing, MB a minute", per_minute("window", lambda span: span.probing_bytes / 1e6), ".1f"),
    ("window: processors busy with the operator", lambda spans: spans["window"].cpu_s / spans["window"].seconds, ".2f"),
    ("window: share of that it waited for others, %", waiting_share("window"), ".0f"),
    ("100 jobs: share of its time it waited for others, %", waiting_share("burst"), ".0f"),
    ("one more job: apply to last pod bound, s", value("extra", "bound_s"), ".1f"),
)


def curve(found: Mapping[Size, Spans]) -> Table:
    """A column for each size."""
    view = Table("", *map(str, found))
    view.add_row("pods of others", *(str(size.num_pods) for size in found))
    for name, figure, form in ROWS:
        view.add_row(name, *(_text(figure(spans), form) for spans in found.values()))
    return view


def requests(found: Mapping[Size, Spans], phase: str) -> Table:
    """Requests of a phase by verb and kind, and MB received for them."""
    view = Table(f"{phase}: requests (MB)", *map(str, found))
    of_phase = [spans[phase] for spans in found.values()]
    for name in sorted({name for span in of_phase for name in span.requests | span.received_bytes}):
        cells = [f"{span.requests.get(name, 0)} ({span.received_bytes.get(name, 0) / 1e6:.1f})" for span in of_phase]
        view.add_row(name, *cells)
    return view


def verdicts(found: Mapping[Size, Spans]) -> list[str]:
    """Each size beside the aims."""
    lines = []
    for size, spans in found.items():
        worst_lag_s = most(lambda span: span.lag_p999_s)(spans)
        lines += [
            verdict(f"{size}: operator MiB", most(lambda span: span.own_mib)(spans), "at most", MAX_MIB),
            verdict(f"{size}: loop lag p99.9 of the worst phase, s", worst_lag_s, "at most", MAX_LAG_S),
            verdict(
                f"{size}: s between renewals", most(lambda span: span.lease_gap_s)(spans), "below", MAX_LEASE_GAP_S
            ),
            verdict(f"{size}: 100 jobs bound, s", spans["burst"].values["bound_s"], "at most", MAX_BURST_S),
            verdict(
                f"{size}: s between polls of a job", spans["window"].values["poll_max_s"], "at most", MAX_POLL_GAP_S
            ),
            verdict(f"{size}: nodes overbooked", spans["burst"].values["overbooked"], "at most", 0),
        ]
    return lines


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _text(figure: float | None, form: str) -> str:
    return "not in time" if figure is None else format(figure, form)
