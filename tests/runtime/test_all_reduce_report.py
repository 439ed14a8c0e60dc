"""What all-reduces took beside what the plan says of them: from real ranks on sockets to what the operator reads."""

import re
from dataclasses import replace
from itertools import permutations

import pytest
from collective_ranks import all_reduce, group, vectors
from hulk_operator import worker_answers
from hulk_runtime.collective.drift.agreement import ROUND, WINDOW
from hulk_runtime.collective.planned.prediction import expected
from hulk_runtime.collective.planned.statistics import SizeFigures, Tally
from hulk_runtime.collective.tcp_info import LinkSample
from hulk_runtime.plan.flows import CollectivePlan, Flow, LinkFigures, SizeClass
from hulk_runtime.training.all_reduce_report import WanReport, lines
from hulk_runtime.training.data_parallel import RankReport, StepReport, SumSample
from hulk_runtime.training.metrics import WanCollector
from prometheus_client import CollectorRegistry, generate_latest

RATE = 4e6
NUM_BYTES = 1 << 20
STARS = tuple(
    Flow(1 / 3, (root,), spokes, spokes)
    for root in range(3)
    for spokes in [tuple((region, root) for region in range(3) if region != root)]
)
SIZES = (
    SizeClass(1 << 16, 1 << 14, STARS, predicted_s=0.05, bound_s=0.02),
    SizeClass(1 << 20, 1 << 14, STARS, predicted_s=0.25, bound_s=0.1),
)
LINKS = {pair: LinkFigures(RATE, 0.002) for pair in permutations(range(3), 2)}
PLAN = CollectivePlan(((0,), (1, 2), (3,)), LINKS, SIZES, names=("eu", "us", "ap"))


def told(seconds: list[float], num_bytes: int = NUM_BYTES) -> StepReport:
    ranks = tuple(RankReport(1, 0.1, LinkSample(0, 0), SumSample(num_bytes, s)) for s in seconds)
    return StepReport(2.5, False, ranks)


@pytest.mark.parametrize(
    ("num_bytes", "predicted_s", "bound_s"),
    [
        (4, 0.05, 0.02),
        (1 << 16, 0.05, 0.02),
        ((1 << 16) + ((1 << 20) - (1 << 16)) / 2, 0.15, 0.06),
        (1 << 20, 0.25, 0.1),
        (1 << 22, 1.0, 0.4),
    ],
)
def test_the_plan_expects_something_of_every_size(num_bytes: float, predicted_s: float, bound_s: float) -> None:
    found = expected(SIZES, num_bytes)
    assert (found.predicted_s, found.bound_s) == (pytest.approx(predicted_s), pytest.approx(bound_s))


def test_medians_are_kept_by_class() -> None:
    tally = Tally(SIZES)
    for seconds in (9.0, 0.2, 0.3, 0.4, *[0.5] * 18):
        tally.take(1 << 20, seconds)
    tally.take(100, 0.04)
    small, large = tally.figures()
    assert small == SizeFigures(1 << 16, 1, 0.04, 0.05, 0.02)
    assert large == SizeFigures(1 << 20, 22, 0.5, 0.25, 0.1)
    assert (small.error, large.error) == (pytest.approx(0.25), 0.5)
    assert replace(large, predicted_s=0.0).error is None


def test_every_rank_knows_what_every_link_has_carried() -> None:
    """Two regions with one rank, one with two, and stars: 2/3 of a vector over each link, all connections together."""
    with group(PLAN) as ranks:
        all_reduce(ranks, vectors(4, NUM_BYTES // 8))
        for seed in range(2 * ROUND):
            all_reduce(ranks, vectors(4, NUM_BYTES // 4 + seed, seed=seed))
        links = [rank.links() for rank in ranks]
        largest = [rank.largest() for rank in ranks]
        assert [rank.largest() for rank in ranks] == [None] * 4
    assert links[0] == links[1] == links[2] == links[3]
    assert links[0].keys() == LINKS.keys()
    num_told = ROUND + WINDOW - 0.5  # one of half the size; what came later is told with the next round
    for link in links[0].values():
        assert link.planned_bytes_per_s == RATE
        assert link.carried.num_bytes == pytest.approx(num_told * 2 / 3 * NUM_BYTES, rel=1e-3)
        assert link.carried.bytes_per_s > 0
        assert 0 < link.carried.last_s < 60
    assert {report and (report.num_bytes, report.number) for report in largest} == {(NUM_BYTES, 1)}


def test_the_operator_reads_what_the_ranks_saw() -> None:
    with group(PLAN) as ranks:
        report = WanReport(ranks[0])
        before = report.figures()
        for seed in range(ROUND + 1):
            all_reduce(ranks, vectors(4, NUM_BYTES // 4, seed=seed))
        for seconds in ([0.3, 0.2, 0.4, 0.9], [0.5, 0.4, 0.3, 0.9]):
            report.completed(told(seconds))
        report.completed(told([0.0], num_bytes=0))
        registry = CollectorRegistry()
        registry.register(WanCollector(report.figures))
        seen = worker_answers.parse_metrics(generate_latest(registry).decode())
        said = list(lines(report.figures()))
    assert (len(before.sizes), len(before.links)) == (0, 6)
    [size] = seen.all_reduces
    usual = expected(SIZES, NUM_BYTES)
    assert (size.max_bytes, size.observed_s) == (1 << 20, pytest.approx(0.25))
    assert (size.predicted_s, size.bound_s) == (pytest.approx(usual.predicted_s), pytest.approx(usual.bound_s))
    assert {(link.source, link.target) for link in seen.region_links} == set(permutations(("eu", "us", "ap"), 2))
    assert all(link.planned_bytes_per_s == RATE for link in seen.region_links)
    assert all(link.observed_bytes_per_s for link in seen.region_links)
    assert said[0].startswith("all-reduce max_mb=1.049 n=2 observed=0.2500s predicted=0.2500s ")
    assert len(said) == 7
    assert all(re.fullmatch(r"link \w+->\w+ planned=4MB/s observed=\S+MB/s error=\S+% .*", line) for line in said[1:])


def test_what_is_not_known_is_not_said() -> None:
    """A plan without rates: all-reduces are timed, and nothing stands beside."""
    plan = replace(CollectivePlan.direct([[0], [1]]), names=("eu", "us"))
    with group(plan) as ranks:
        report = WanReport(ranks[0])
        report.completed(told([0.3, 0.2]))
        found = report.figures()
        registry = CollectorRegistry()
        registry.register(WanCollector(report.figures))
        seen = worker_answers.parse_metrics(generate_latest(registry).decode())
    assert found.links == ()
    assert [size.observed_s for size in seen.all_reduces] == [0.2]
    assert seen.all_reduces[0].predicted_s is None
    [line] = lines(found)
    assert line == "all-reduce max_mb=1e-06 n=1 observed=0.2000s predicted=unknown bound=unknown error=unknown"
