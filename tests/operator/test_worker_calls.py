"""What passes ask of workers, beside the passes: 1,000 jobs that train, of which some are slow, hostile or lost."""

import asyncio
import selectors
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import loopback_workers
import pytest
from fake_cluster import FakeCluster
from hulk_operator import worker_client
from hulk_operator.cluster import ORIGIN
from hulk_operator.handlers.workers import HttpWorkers
from hulk_operator.observation import Expected, Observation, ObserveError, Preflight
from hulk_operator.reconcile import polling
from hulk_operator.reconcile.polling import gang_words
from hulk_operator.reconcile.recipe import RECIPE
from hulk_operator.reconcile.types import AskGang, Memory, Poll, Start, View
from hulk_operator.worker_client import MAX_KNOCK_SECONDS, MAX_SECONDS
from many_jobs import TIMING, Fleet, node_of, worker_at
from views import NOW, gang, running, view

NUM_JOBS = 1000
START = next(step for step in RECIPE if step.name == "start")
STEP_S = 0.5
NUM_POLLS = 3


class _Skipping(selectors.DefaultSelector):
    """Where nothing happens, the clock goes on to what is due next."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout:
            self.now_s += timeout
        return found


class Skipping(asyncio.SelectorEventLoop):
    """An event loop by whose clock only waiting takes time: what a busy machine adds is left out."""

    def __init__(self) -> None:
        self._clock = _Skipping()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s


def by_its_clock(test: Callable[[], Awaitable[None]]) -> None:
    """Run on such a loop."""
    with asyncio.Runner(loop_factory=Skipping) as runner:
        runner.run(asyncio.wait_for(test(), 1e4))  # type: ignore[arg-type]


def now() -> datetime:
    """By the loop's clock."""
    return NOW + timedelta(seconds=asyncio.get_running_loop().time())


class Trains:
    """Workers that answer after a round trip, but for the `silent` jobs' and those on lost nodes."""

    def __init__(self, silent: frozenset[int] = frozenset()) -> None:
        self.silent = silent
        self.lost: set[str] = set()
        self.polled: dict[int, list[float]] = {}
        self.started: list[str] = []
        self.starts = True

    async def metrics(self, address: str, expected: Expected) -> Observation:
        job, worker = worker_at(address)
        begin_s = asyncio.get_running_loop().time()
        self.polled.setdefault(job, []).append(begin_s)
        if job in self.silent or node_of(job, worker) in self.lost:
            await asyncio.sleep(MAX_SECONDS)
            raise ObserveError("silent")
        await asyncio.sleep(0.1)
        is_stopped = any(node_of(job, one) in self.lost for one in range(2))
        step = 7 if is_stopped else 8 + int(begin_s / STEP_S)
        return Observation(attempt=1, step=step, step_s=STEP_S, own_attempt=1, own_step=step)

    async def preflight(self, address: str, expected: Expected) -> Preflight | None:
        raise AssertionError(address)

    async def start(self, address: str, attempt: int, order: str) -> None:
        self.started.append(address)
        if not self.starts:
            raise ObserveError("answered 409")

    async def answers(self, address: str) -> bool:
        job, worker = worker_at(address)
        is_lost = node_of(job, worker) in self.lost
        await asyncio.sleep(MAX_KNOCK_SECONDS if is_lost else 0.1)
        return not is_lost


def gaps(polled: Mapping[int, list[float]]) -> dict[int, float]:
    """The longest time between two polls of each job, in seconds."""
    return {job: max(after - before for before, after in pairwise(at)) for job, at in polled.items()}


def test_of_1000_jobs_each_is_polled_in_time_and_a_lost_node_is_noticed() -> None:
    """Also where no worker of every other job answers. A busy machine takes longer than the loop's clock says."""

    async def by_its_clock_() -> None:
        silent = frozenset(range(0, NUM_JOBS, 2))
        workers = Trains(silent)
        fleet = Fleet(NUM_JOBS, workers, now)
        async with fleet.operated():
            await asyncio.sleep(3 * TIMING.poll_s)
            longest = gaps(workers.polled)
            assert len(longest) == NUM_JOBS
            assert max(longest[job] for job in longest if job not in silent) < TIMING.poll_s + 0.5
            assert max(longest.values()) < TIMING.poll_s + 0.5 + MAX_SECONDS
            lost_s = asyncio.get_running_loop().time()
            workers.lost = {node_of(7, 0), node_of(777, 1)}
            for job in (7, 777):
                while fleet.job(job).status.last_failure is None:
                    await asyncio.sleep(0.1)
                    assert asyncio.get_running_loop().time() - lost_s <= 10, f"job {job}"
            assert [fleet.job(job).status.avoided_nodes[0].name for job in (7, 777)] == sorted(workers.lost)
            others = [fleet.job(job) for job in range(NUM_JOBS) if job not in (7, 777)]
            assert not [one.key for one in others if one.status.last_failure]

    by_its_clock(by_its_clock_)


@pytest.mark.timeout(120)
async def test_workers_that_never_answer_hold_up_no_other_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Real servers, in a process of their own. No time is measured: a call that is not answered takes an hour."""
    monkeypatch.setattr(worker_client, "MAX_SECONDS", 3600.0)
    monkeypatch.setattr(worker_client, "MAX_KNOCK_SECONDS", 3600.0)
    polls: Counter[int] = Counter()

    class Counting(HttpWorkers):
        async def metrics(self, address: str, expected: Expected) -> Observation:
            seen = await super().metrics(address, expected)
            polls[worker_at(address)[0]] += 1
            return seen

    program = Path(loopback_workers.__file__)
    process = await asyncio.create_subprocess_exec(sys.executable, program, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        fleet = Fleet(NUM_JOBS, Counting(), lambda: datetime.now(UTC), port)
        kinds = {job: job % loopback_workers.NUM_KINDS for job in range(NUM_JOBS)}
        honest = [job for job, kind in kinds.items() if kind not in (loopback_workers.SILENT, loopback_workers.ENDLESS)]
        async with fleet.operated():
            while min(polls[job] for job in honest) < NUM_POLLS:
                await asyncio.sleep(0.1)
        assert set(polls) == set(honest)
        for job, kind in kinds.items():
            sighting = fleet.reconciler.memory[f"lab/job-{job}"].sighting
            if kind == loopback_workers.SILENT:
                assert sighting is None
            elif kind == loopback_workers.ENDLESS:
                assert sighting is not None
                assert "answered more than 133120 bytes" in sighting.error
    finally:
        process.kill()
        await process.wait()


async def one_job(workers: Trains) -> Fleet:
    """A job that is looked at by hand."""
    fleet = Fleet(1, workers, now)
    await fleet.reconciler.reconcile("lab/job-0")
    return fleet


def test_what_the_last_pass_does_not_want_is_not_asked() -> None:
    async def by_its_clock_() -> None:
        workers = Trains()
        fleet = await one_job(workers)
        calls = fleet.reconciler.calls
        (name,) = calls.asked
        calls.ask(calls.asked[name].view, [])
        assert await calls.carry_out(name) is None
        assert not workers.polled

    by_its_clock(by_its_clock_)


def test_a_call_waits_until_it_is_due_and_its_answer_answers_what_was_asked_meanwhile() -> None:
    async def by_its_clock_() -> None:
        workers = Trains()
        fleet = await one_job(workers)
        calls = fleet.reconciler.calls
        ((name, asked),) = calls.asked.items()
        assert isinstance(asked.call, Poll)
        calls.ask(asked.view, [(asked.step, replace(asked.call, after_s=2.0))])
        assert await calls.carry_out(name) == 2.0
        assert not workers.polled
        await asyncio.sleep(2.0)
        under_way = asyncio.create_task(calls.carry_out(name))
        await asyncio.sleep(0.05)
        calls.ask(asked.view, [(asked.step, asked.call)])
        await under_way
        assert workers.polled == {0: [2.1]}
        assert not calls.asked
        assert fleet.queue.depth == 1, "a pass sees the answer"

    by_its_clock(by_its_clock_)


def test_a_start_that_is_refused_is_left_to_the_next_pass_that_wants_it() -> None:
    async def by_its_clock_() -> None:
        workers = Trains()
        workers.starts = False
        fleet = await one_job(workers)
        calls = fleet.reconciler.calls
        view = next(iter(calls.asked.values())).view
        for started in (0, 1):
            calls.ask(view, [(START, Start("127.1.0.1:9400", 1))])
            await calls.carry_out("Start lab/job-0")
            assert fleet.queue.depth == started
            assert fleet.reconciler.memory.get("lab/job-0", Memory()).started == started
            workers.starts = True

    by_its_clock(by_its_clock_)


@pytest.mark.parametrize("uid", ["", "another"])
def test_an_answer_of_a_job_that_is_gone_is_dropped(uid: str) -> None:
    async def by_its_clock_() -> None:
        workers = Trains()
        fleet = await one_job(workers)
        calls = fleet.reconciler.calls
        (name,) = calls.asked
        under_way = asyncio.create_task(calls.carry_out(name))
        await asyncio.sleep(0.05)
        raw = fleet.cluster.objects["hulkjobs", "lab", "job-0"]
        later = {**raw, "metadata": {**raw["metadata"], "uid": uid, "resourceVersion": "999"}}
        fleet.store.jobs.delete(later)
        if uid:
            fleet.store.jobs.put({**later, "metadata": {**later["metadata"], "resourceVersion": "1000"}})
        await under_way
        assert workers.polled
        assert not [known for known in fleet.reconciler.memory.values() if known.sighting]
        assert fleet.queue.depth == 0
        await fleet.reconciler.reconcile("lab/job-0")
        assert not calls.asked

    by_its_clock(by_its_clock_)


def test_a_call_that_fails_by_a_defect_is_made_again_in_the_name_of_the_step_that_asked() -> None:
    class Defect(Trains):
        is_mended = False

        async def metrics(self, address: str, expected: Expected) -> Observation:
            assert ORIGIN.get() == "observe"
            if not self.is_mended:
                self.is_mended = True
                raise ZeroDivisionError("a defect")
            return await super().metrics(address, expected)

    async def by_its_clock_() -> None:
        fleet = await one_job(Defect())
        calls = fleet.reconciler.calls
        (name,) = calls.asked
        with pytest.raises(ZeroDivisionError):
            await calls.carry_out(name)
        assert ORIGIN.get() != "observe"
        await calls.carry_out(name)
        assert fleet.reconciler.memory["lab/job-0"].sighting is not None

    by_its_clock(by_its_clock_)


def test_what_rank_0_says_of_links_is_written_beside_the_polls_the_latest_first() -> None:
    told: list[tuple[str, int | None]] = []
    go_on = asyncio.Event()

    async def slow(view: View, seen: Observation) -> None:
        told.append((ORIGIN.get(), seen.step))
        await go_on.wait()

    async def by_its_clock_() -> None:
        workers = Trains()
        fleet = Fleet(1, workers, now)
        fleet.reconciler.calls._observed = slow
        async with fleet.operated():
            await asyncio.sleep(4.5 * TIMING.poll_s)
            assert len(workers.polled[0]) == 5
            assert told == [("observe", 8)]
            go_on.set()
            await asyncio.sleep(0.1)
            assert told == [("observe", 8), ("observe", 8 + int(4 * TIMING.poll_s / STEP_S))]

    by_its_clock(by_its_clock_)


async def test_of_a_gang_that_does_not_answer_in_time_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "GANG_SECONDS", 0.05)

    class Slow(FakeCluster):
        async def log(self, *_: Any, **__: Any) -> Any:
            await asyncio.Event().wait()

    asked = AskGang(gang(), 60.0)
    words = await gang_words(Slow(), Trains(), view(running()), asked, NOW, Expected())
    assert [(one.worker, one.silent, one.lines) for one in words.workers] == [
        (worker, True, ("(its log was not read in time)",)) for worker in range(3)
    ]
