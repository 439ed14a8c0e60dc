"""What passes ask of workers, carried out beside the queue of passes: a pass never waits for the user's code.

A pass names the calls that it wants, each at once or after a while; an answer goes to the job's memory and asks for a
pass, which sees what to ask next. A call that has not begun, and that the latest pass does not want any more, is
dropped. A job has one call of a kind under way, so it takes no more places than another, however slow its workers are.

    call                    places          takes at most
    Poll, Start             NUM_REQUESTS    2 s for each of up to three requests, 1 s for NUM_KNOCKS silent nodes
    ReadOutput, AskGang     NUM_LOGS        GANG_SECONDS; most connections to the API server are left to others

What rank 0 says of links is written down by a queue of its own: a large gang's takes many requests.
So J jobs all of whose workers take as long as they can are each polled every J * 5 s / NUM_REQUESTS: 10 s for 1,000.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from hulk_operator.api import HulkJob
from hulk_operator.cluster import ORIGIN, Cluster, ClusterError
from hulk_operator.observation import Expected, Observation, ObserveError, Preflight
from hulk_operator.reconcile.liveness import listen
from hulk_operator.reconcile.polling import Workers, furthest, gang_words, knock, last_line, latest
from hulk_operator.reconcile.silence import heard
from hulk_operator.reconcile.types import AskGang, Call, Memory, Poll, ReadOutput, Sighting, Start, Step, View
from hulk_operator.reconcile.work_queue import Pace, WorkQueue

logger = logging.getLogger(__name__)

NUM_REQUESTS: Final = 512
NUM_LOGS: Final = 8
NUM_LINKS: Final = 8
PAUSE_S: Final = 0.002  # between the beginnings of two calls: with its pass, each takes about 1 ms of CPU
Change = Callable[[Memory], Memory]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call, the step of the recipe in whose name it is made, and when it is due by the loop's clock."""

    view: View
    step: Step
    call: Call
    due_s: float


class WorkerCalls:
    """Carries out calls.

    `land` takes over an answer: it changes the job's memory and asks for a pass. `observed` is told what rank 0 says,
    the latest where that takes long; `failed` is called when a call fails by a defect. The `queues` are to be run.
    """

    def __init__(
        self,
        cluster: Cluster,
        workers: Workers,
        clock: Callable[[], datetime],
        land: Callable[[HulkJob, Change], None],
        observed: Callable[[View, Observation], Awaitable[None]],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster, self._workers, self._clock = cluster, workers, clock
        self._land, self._observed = land, observed
        self._requests, self._logs, self._links = (
            WorkQueue(work, Pace(rest_s=0.0, rest_per_object_s=0.0, num_workers=places), failed)
            for work, places in ((self.carry_out, NUM_REQUESTS), (self.carry_out, NUM_LOGS), (self.tell, NUM_LINKS))
        )
        self._room = {Poll: self._requests, Start: self._requests, ReadOutput: self._logs, AskGang: self._logs}
        self._perform: Mapping[type[Any], Callable[[_Asked, Any], Awaitable[Change | None]]] = {
            AskGang: self._ask_gang,
            Poll: self._poll,
            ReadOutput: self._read_output,
            Start: self._start,
        }
        self.asked: dict[str, _Asked] = {}
        self.seen: dict[str, tuple[View, Step, Observation]] = {}
        self._next_s = 0.0

    @property
    def queues(self) -> Mapping[str, WorkQueue]:
        """By the names of the tasks that run them."""
        return {"requests": self._requests, "logs": self._logs, "links": self._links}

    def ask(self, view: View, calls: Sequence[tuple[Step, Call]]) -> None:
        """What a pass wants now, in place of what passes before it wanted."""
        self.forget(view.job.key)
        view = replace(view, nodes={}, memory=Memory())  # kept for seconds: a thousand jobs' would be large
        now_s = asyncio.get_running_loop().time()
        for step, call in calls:
            after_s = call.after_s if isinstance(call, Poll) else 0.0
            name = f"{type(call).__name__} {view.job.key}"
            self.asked[name] = _Asked(view, step, call, now_s + after_s)
            self._room[type(call)].add(name, after_s)

    def forget(self, key: str) -> None:
        """Nothing is wanted of the job's workers any more."""
        for kind in self._room:
            self.asked.pop(f"{kind.__name__} {key}", None)

    async def carry_out(self, name: str) -> float | None:
        """One call, or after how many seconds it is due. One that fails by a defect is made again."""
        asked = self.asked.get(name)
        if asked is None:
            return None
        if (left_s := asked.due_s - asyncio.get_running_loop().time()) > PAUSE_S:
            return left_s
        await self._turn()
        token = ORIGIN.set(asked.step.name)
        try:
            change = await self._perform[type(asked.call)](asked, asked.call)
        finally:
            ORIGIN.reset(token)
        self.asked.pop(name, None)  # also what was asked meanwhile: the next pass knows the answer
        if change is not None:
            self._land(asked.view.job, change)
        return None

    async def tell(self, name: str) -> None:
        """Tell of what rank 0 of a job said."""
        if (known := self.seen.pop(name, None)) is None:
            return
        view, step, seen = known
        token = ORIGIN.set(step.name)
        try:
            await self._observed(view, seen)
        finally:
            ORIGIN.reset(token)

    async def _turn(self) -> None:
        """Wait until no other call began within PAUSE_S: those of a thousand jobs that are due together are spread."""
        now_s = asyncio.get_running_loop().time()
        self._next_s = max(now_s, self._next_s + PAUSE_S)
        if self._next_s > now_s:
            await asyncio.sleep(self._next_s - now_s)

    async def _poll(self, asked: _Asked, poll: Poll) -> Change:
        view, begin, expected = asked.view, self._clock(), _expected(asked.view)
        answers = await knock(self._workers, poll.doors)
        observation, preflight, error = await self._look(view, poll, answers)
        if preflight is not None and preflight.attempt != poll.attempt:
            preflight = None
        if observation is not None:
            name = f"{asked.step.name} {view.job.key}"
            self.seen[name] = (view, asked.step, observation)
            self._links.add(name)
            observation = replace(observation, links=())
        last = observation
        if last is None and not all(answers.values()):  # rank 0 may be what is lost
            alive = [poll.doors[node] for node, answered in answers.items() if answered]
            last = await furthest(self._workers, alive, expected)
        sighting = Sighting(poll.attempt, begin, observation, preflight, error)

        def with_news(memory: Memory) -> Memory:
            hearing = listen(memory.hearing, poll.attempt, begin, last, answers)
            return replace(memory, sighting=sighting, hearing=hearing)

        return with_news

    async def _look(
        self, view: View, poll: Poll, answers: Mapping[str, bool]
    ) -> tuple[Observation | None, Preflight | None, str]:
        """What rank 0 says of the training and, where it is asked for that, of its preflight; why a part is missing."""
        observation, preflight = None, None
        try:
            if poll.preflight:
                preflight = await self._workers.preflight(poll.address, _expected(view))
            # beside a preflight: it may train already
            observation = await latest(self._workers, poll, answers, _expected(view))
        except ObserveError as silent:
            logger.debug("%s: %s", view.job.key, silent)
            return observation, preflight, str(silent)
        return observation, preflight, ""

    async def _start(self, asked: _Asked, call: Start) -> Change | None:
        try:
            order = asked.view.orders.start(asked.view.job.metadata.uid or "", call.attempt)
            await self._workers.start(call.address, call.attempt, order)
        except ObserveError as error:
            logger.info("%s: is not told to start: %s", asked.view.job.key, error)
            return None
        return lambda memory: replace(memory, started=call.attempt)

    async def _read_output(self, asked: _Asked, call: ReadOutput) -> Change:
        """A log that cannot be read says nothing, neither that there is output nor that there is none."""
        view, begin = asked.view, self._clock()
        try:
            line = await last_line(self._cluster, view, call.pod)
        except ClusterError as error:
            logger.warning("%s: the log of %s is not read: %s", view.job.key, call.pod, error.message)
            return lambda memory: replace(memory, looked=begin)
        return lambda memory: replace(memory, looked=begin, output=heard(memory.output, call.pod, line, begin))

    async def _ask_gang(self, asked: _Asked, call: AskGang) -> Change:
        view = asked.view
        words = await gang_words(self._cluster, self._workers, view, call, self._clock(), _expected(view))
        return lambda memory: replace(memory, words=words)


def _expected(view: View) -> Expected:
    """How much the job's workers may have to tell."""
    plan = view.status.plan
    return Expected(plan.num_accelerators if plan else 1, view.job.spec.metric or "")
