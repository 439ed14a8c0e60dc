"""Jobs that run and a cluster that changes, over a fake cluster with the real search: who moves, who stays, and why."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hulk_operator import names
from hulk_operator.api import CheckpointStatus, ConditionType, HulkJob, Observed, Startup, format_time
from hulk_operator.cluster import HULK_JOBS, NODE_PROFILES, ApiResource, Object
from hulk_operator.planning.commit import packed_bases
from hulk_operator.planning.inventory import Reader
from hulk_operator.planning.process import Question, Search
from hulk_operator.planning.replan_review import is_reviewed, restart_of
from hulk_operator.planning.replan_reviewer import Reviewer
from hulk_operator.planning.reservations import Held
from hulk_operator.reconcile.types import FullPlan, Planned, Review
from hulk_operator.status import with_condition
from hulk_operator.watched.informers import read
from hulk_placement.replan.answer import Replanned
from hulk_placement.replan.decide import Policy
from hulk_placement.solution import Budget
from test_planning import World, job, node, planning_over
from views import NOW

POLICY, PAUSE_S = Policy(), 10.0
NEAR_US, NEXT_US, FAR_US = 10_000, 12_000, 60_000
LONG, SHORT = 1_000_000, 500
CHECKPOINTED = {"checkpoint": {"storage": {"url": "s3://bucket/x"}}}
PLANNED: dict[tuple[int, tuple[str, ...]], tuple[FullPlan, list[tuple[ApiResource, Object]]]] = {}
REGIONS = {"a": "eu", "b": "eu", "c": "us", "d": "us"}


def placed(name: str) -> tuple[ApiResource, Object]:
    kind, body = node(name)
    return kind, {**body, "metadata": {**body["metadata"], "labels": {names.NODE_REGION: REGIONS[name]}}}


def profile(source: str, rtt_us: dict[str, int]) -> tuple[ApiResource, Object]:
    """What a node's agent measured, by target."""
    links = [
        {
            "target": target,
            "rttP50Microseconds": rtt,
            "rttP95Microseconds": rtt,
            "bandwidthBytesPerSecond": 10_000_000,
            "streams": 4,
            "samples": 9,
            "time": format_time(NOW),
        }
        for target, rtt in rtt_us.items()
    ]
    return NODE_PROFILES, {"metadata": {"name": source}, "spec": {}, "status": {"links": links}}


def profiles(eu_us: int, us_us: int, nodes: Iterable[str] = REGIONS) -> list[tuple[ApiResource, Object]]:
    """Every pair of nodes: two regions that each have one round trip inside, and a far one between them."""
    known, inside = list(nodes), {"eu": eu_us, "us": us_us}
    return [
        profile(
            a,
            {b: inside[REGIONS[a]] if REGIONS[a] == REGIONS[b] else FAR_US for b in known if a != b},
        )
        for a in known
    ]


@dataclass
class Site:
    """A job that runs since long on the two nodes of eu, and the one who looks at it."""

    world: World
    search: Search
    full: FullPlan
    now: datetime = NOW
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reviewer = Reviewer(
            self.world.store,
            Reader(self.world.cluster, partial(read, self.world.cluster)),
            self.told.append,
            lambda: self.now,
            self.held,
            self.plan_of,
            POLICY,
            PAUSE_S,
        )

    async def held(self, wanted: Iterable[str]) -> list[Held]:
        return [Held(self.job, self.full.plan)]

    async def plan_of(self, one: HulkJob) -> FullPlan:
        return self.full

    @property
    def job(self) -> HulkJob:
        return self.world.job("one")

    def become(self, *objects: tuple[ApiResource, Object]) -> None:
        for kind, body in objects:
            self.world.cluster._store(kind, body)

    async def look(self, after_s: float = PAUSE_S) -> Review | None:
        self.now += timedelta(seconds=after_s)
        await self.reviewer.look(self.search)
        return self.reviewer.answer(self.job)


def running(one: HulkJob, now: datetime) -> HulkJob:
    """It trains since half an hour, and has made a tenth of its steps."""
    found = with_condition(one.status, ConditionType.DEPLOYED, True, "Deployed", "", now - timedelta(minutes=30), 1)
    step = one.spec.training.steps // 10
    observed = Observed(attempt=found.attempt, step=step, step_microseconds=2000, updated_at=now)
    kept = CheckpointStatus(step=step, where="s3://bucket/x", bytes=1000, time=now)
    return one.model_copy(update={"status": found.model_copy(update={"observed": observed, "checkpoint": kept})})


@pytest.fixture(scope="module")
def search() -> Iterable[Search]:
    made = Search(Budget(), lambda: pytest.fail("the search failed"))
    yield made
    made.close()


async def site(search: Search, *, steps: int = LONG, nodes: Iterable[str] = REGIONS) -> Site:
    """A job of two workers, planned on links that are near inside a region, nearest in eu."""
    key = steps, tuple(nodes)
    if key not in PLANNED:
        PLANNED[key] = await planned(*key)
    full, objects = PLANNED[key]
    return Site(World(*objects), search, full)


async def planned(steps: int, nodes: tuple[str, ...]) -> tuple[FullPlan, list[tuple[ApiResource, Object]]]:
    """The plan, and the cluster with the job that trains by it."""
    training = {"globalBatch": 8, "steps": steps}
    one = job("one", 2, **{"training": training, "placement": {}, **CHECKPOINTED})
    cluster = [*(placed(name) for name in nodes), *profiles(NEAR_US, NEXT_US, nodes)]
    async with planning_over(*cluster, one) as world:
        world.planner.request("lab/one")
        assert isinstance(await world.answer("one"), Planned)
        full = world.commit("one").full
    assert sorted(slot.machine for slot in full.plan.workers) == ["a", "b"]
    return full, [*cluster, (HULK_JOBS, running(world.job("one"), NOW).wire())]


@pytest.fixture
async def trains(search: Search) -> Site:
    return await site(search)


async def test_nothing_has_changed(trains: Site) -> None:
    assert await trains.look() is None
    trains.become(*profiles(round(NEAR_US * 1.1), NEXT_US))
    assert await trains.look() is None
    assert trains.told == []


async def test_a_link_that_nobody_measures_any_more_is_as_it_was(trains: Site) -> None:
    """Figures go with the node that took them; until another one has measured, nothing says that the link is slow."""
    for kind, body in [profile(name, {}) for name in REGIONS]:
        trains.become((kind, body))
    assert await trains.look() is None
    assert trains.told == []


async def test_a_link_that_drifted_far_moves_a_job_that_has_far_to_go(trains: Site) -> None:
    trains.become(*profiles(6 * NEAR_US, NEXT_US))
    found = await trains.look()
    assert found is not None
    assert (found.verdict, found.attempt, found.generation) == ("move", 1, 1)
    assert found.step_us is not None
    assert found.new_step_us is not None
    assert found.gain_s is not None
    assert found.cost_s is not None
    assert found.gain_s == pytest.approx((found.step_us - found.new_step_us) * 900_000 / 1e6, rel=1e-3)
    assert found.gain_s > 1.5 * found.cost_s
    assert "is gained over 900,000 steps" in found.reason
    assert trains.told == ["lab/one"]


async def test_of_a_warm_up_what_has_been_made_is_no_part_of_the_gain(trains: Site, search: Search) -> None:
    asked: list[Question] = []

    async def replan(question: Question) -> Replanned:
        asked.append(question)
        return await search.replan(question)

    trains.become(*profiles(6 * NEAR_US, NEXT_US))
    trains.now += timedelta(seconds=PAUSE_S)
    await trains.reviewer.look(cast("Search", SimpleNamespace(replan=replan)))
    assert [(one.situation.num_made, one.situation.steps_left) for one in asked] == [(100_000, 900_000)]


async def test_one_that_is_nearly_done_stays_and_says_why(search: Search) -> None:
    short = await site(search, steps=SHORT)
    short.become(*profiles(6 * NEAR_US, NEXT_US))
    found = await short.look()
    assert found is not None
    assert found.verdict == "stay"
    assert "would be gained over 450 steps" in found.reason
    assert "the move costs" in found.reason


async def test_a_small_drift_must_last(trains: Site) -> None:
    """By 70 %: seen at second 10, gone at 60, seen again at 70; that it lasts is known at 190."""
    slow = profiles(17 * NEAR_US // 10, NEXT_US)
    trains.become(*slow)
    verdicts = []
    for second in range(10, 210, 10):
        trains.become(*(profiles(NEAR_US, NEXT_US) if second == 60 else slow))
        found = await trains.look()
        verdicts.append((second, found.verdict if found else None))
    moved = [second for second, verdict in verdicts if verdict == "move"]
    assert moved[0] == 70 + POLICY.hold_s
    assert {verdict for second, verdict in verdicts if second < moved[0]} == {"stay"}


async def test_a_look_is_not_repeated_at_once(trains: Site) -> None:
    await trains.look()
    trains.become(*profiles(6 * NEAR_US, NEXT_US))
    assert await trains.look(after_s=1) is None
    assert await trains.look() is not None


async def test_a_node_that_is_added_moves_a_job_when_it_has_lasted(search: Search) -> None:
    """Three nodes in far-off places, then one beside one of them."""
    few = await site(search, nodes=("a", "b", "c"))
    few.become(*profiles(5 * NEAR_US, NEAR_US, ("a", "b", "c")))
    few.full = FullPlan(few.full.plan, few.full.blob, few.full.digest, few.full.num_steps, basis=await basis_now(few))
    assert await few.look() is None
    few.become(placed("d"), *profiles(5 * NEAR_US, NEAR_US))
    first = await few.look()
    assert first is not None
    assert (first.verdict, "d in us has 1 accelerators, 0 before" in first.reason) == ("stay", True)
    later = await few.look(after_s=POLICY.hold_s)
    assert later is not None
    assert later.verdict == "move"


async def basis_now(one: Site) -> Any:
    reader = Reader(one.world.cluster, partial(read, one.world.cluster))
    inventory = await reader.inventory((), NOW)
    workload = await reader.workload(one.job, inventory, {"a": 1, "b": 1})
    topology = inventory.topology(names.DEFAULT_RESOURCE)
    return packed_bases({one.job.key: one.full.plan}, {one.job.key: workload}, topology)[one.job.key]


@pytest.mark.parametrize(
    ("name", "changes", "reviewed"),
    [
        ("it trains", {}, True),
        ("no checkpoint", {"spec": {"checkpoint": None}}, False),
        ("suspended", {"spec": {"suspend": True}}, False),
        ("another controller's", {"spec": {"managed_by": "example.com/other"}}, False),
        ("no step was seen", {"status": {"observed": None}}, False),
        ("of another attempt", {"status": {"attempt": 2}}, False),
    ],
)
async def test_who_may_be_moved(trains: Site, name: str, changes: dict[str, dict[str, Any]], reviewed: bool) -> None:
    one = trains.job
    parts = {part: getattr(one, part).model_copy(update=fields) for part, fields in changes.items()}
    assert is_reviewed(one.model_copy(update=parts), trains.full, POLICY.hold_s, NOW) == reviewed, name
    assert not is_reviewed(one, None, POLICY.hold_s, NOW)
    assert not is_reviewed(one, trains.full, POLICY.hold_s, NOW - timedelta(minutes=29))


async def test_a_restart_takes_as_long_as_it_took(trains: Site) -> None:
    seen = trains.job.status.model_copy(update={"startup": Startup(attempt=1, seconds=33)})
    known = restart_of(trains.job.model_copy(update={"status": seen}))
    assert known.start_s + known.image_s + known.rendezvous_s + known.first_step_s == 33
    assert restart_of(trains.job).start_s > 0


async def test_the_planning_pass_looks_when_something_changes(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await site(search)
    one.become(*profiles(6 * NEAR_US, NEXT_US))
    objects = [(HULK_JOBS, one.world.cluster.objects["hulkjobs", "lab", "one"])]
    async with planning_over(*objects) as world:
        world.cluster.objects = one.world.cluster.objects
        world.planner._plans.keep("lab/one", one.full)
        world.planner.changed()
        assert await world.answered.get() == "lab/one"
        found = world.planner.review("lab/one")
        assert found is not None
        assert found.verdict == "move"
        world.store.jobs.delete(world.cluster.objects["hulkjobs", "lab", "one"])
        world.planner.forget("lab/one")
        assert world.planner.review("lab/one") is None
