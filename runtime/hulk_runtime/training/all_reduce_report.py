"""What all-reduces between regions take, beside what the plan says of them: for /metrics, and lines for the log."""

from collections.abc import Iterator
from dataclasses import dataclass

from hulk_runtime.collective.drift.link_traffic import Carried
from hulk_runtime.collective.group import Collective
from hulk_runtime.collective.planned.statistics import SizeFigures, Tally, relative_error
from hulk_runtime.training.data_parallel import StepReport


@dataclass(frozen=True, slots=True)
class RegionLink:
    """A directed link between regions, by name: its rate as planned and as believed now, and what it has carried."""

    source: str
    target: str
    planned_bytes_per_s: float
    believed_bytes_per_s: float
    carried: Carried


@dataclass(frozen=True, slots=True)
class WanFigures:
    """By size class and by link, at one moment."""

    sizes: tuple[SizeFigures, ...]
    links: tuple[RegionLink, ...]


class WanReport:
    """Kept by the rank that speaks for the job. Any thread may ask for `figures`."""

    def __init__(self, collective: Collective) -> None:
        self._collective = collective
        self._tally = Tally(collective.classes)

    def completed(self, report: StepReport) -> None:
        """One step of all ranks, in which they told of an all-reduce."""
        if report.sum.num_bytes:
            self._tally.take(report.sum.num_bytes, report.sum.seconds)

    def regrouped(self) -> None:
        """The ranks that are left go by other flows."""
        self._tally = Tally(self._collective.classes)

    def figures(self) -> WanFigures:
        """What is known now."""
        names = self._collective.plan.names
        links = tuple(
            RegionLink(names[source], names[target], found.planned_bytes_per_s, found.bytes_per_s, found.carried)
            for (source, target), found in self._collective.links().items()
        )
        return WanFigures(self._tally.figures(), links)


def lines(figures: WanFigures) -> Iterator[str]:
    """One for each size class that was used, and for each link.

    >>> sizes = (SizeFigures(4_000_000, 8, 0.5, 0.45, 0.4),)
    >>> links = (RegionLink("eu", "us", 10e6, 9.5e6, Carried(32e6, 0.4, 9.6e6)),)
    >>> for line in lines(WanFigures(sizes, links)):
    ...     print(line)
    all-reduce max_mb=4 n=8 observed=0.5000s predicted=0.4500s bound=0.4000s error=10.0%
    link eu->us planned=10MB/s observed=9.6MB/s error=4.2% believed=9.5MB/s carried=32MB last_byte=0.4000s
    """
    for size in figures.sizes:
        yield (
            f"all-reduce max_mb={size.max_bytes / 1e6:.4g} n={size.num} observed={_seconds(size.observed_s)} "
            f"predicted={_seconds(size.predicted_s)} bound={_seconds(size.bound_s)} error={_percent(size.error)}"
        )
    for link in figures.links:
        carried = link.carried
        error = relative_error(carried.bytes_per_s, link.planned_bytes_per_s)
        yield (
            f"link {link.source}->{link.target} planned={_rate(link.planned_bytes_per_s)} "
            f"observed={_rate(carried.bytes_per_s)} error={_percent(error)} "
            f"believed={_rate(link.believed_bytes_per_s)} "
            f"carried={carried.num_bytes / 1e6:.4g}MB last_byte={_seconds(carried.last_s)}"
        )


def _seconds(value_s: float) -> str:
    return f"{value_s:.4f}s" if value_s > 0 else "unknown"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.4g}MB/s" if bytes_per_s > 0 else "unknown"


def _percent(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{100 * ratio:.1f}%"
