"""What running workers are asked, and whose answer counts when several are."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from hulk_operator.cluster import Cluster, ClusterError
from hulk_operator.observation import Expected, Observation, ObserveError, Preflight
from hulk_operator.pods.worker import WorkerPod
from hulk_operator.reconcile.silence import GangWords, WorkerWords
from hulk_operator.reconcile.types import AskGang, Poll, View

NUM_KNOCKS: Final = 256
NUM_SURVIVORS: Final = 3
NUM_LAST_LINES: Final = 3
NUM_ASKED: Final = 64
"""Workers of a large gang that are asked for their last lines."""
NUM_ASKED_AT_ONCE: Final = 4  # by NUM_LOGS gangs: a third of the connections to the API server
GANG_SECONDS: Final = 20.0


class Workers(Protocol):
    """What a worker of a running attempt can be asked (`address`: host:port); `ObserveError` without an answer."""

    async def metrics(self, address: str, expected: Expected) -> Observation:
        """Its progress."""
        ...

    async def preflight(self, address: str, expected: Expected) -> Preflight | None:
        """What the ranks measured before the first step; None before that is known."""
        ...

    async def start(self, address: str, attempt: int, order: str) -> None:
        """Let the first step begin; `order`: what the worker knows the operator by."""
        ...

    async def answers(self, address: str) -> bool:
        """Whether anything answers at the pod's address, and be it with a refusal."""
        ...


async def knock(workers: Workers, doors: Mapping[str, str]) -> dict[str, bool]:
    """Which nodes answer, all of them asked at once as far as NUM_KNOCKS allows."""
    free = asyncio.Semaphore(NUM_KNOCKS)

    async def one(address: str) -> bool:
        async with free:
            return await workers.answers(address)

    return dict(zip(doors, await asyncio.gather(*map(one, doors.values())), strict=True))


async def furthest(workers: Workers, addresses: Sequence[str], expected: Expected) -> Observation | None:
    """What the one of the first few says that has come furthest; None when nobody answers."""
    answers = await asyncio.gather(*(_ask(workers, address, expected) for address in addresses[:NUM_SURVIVORS]))
    found = [seen for seen in answers if isinstance(seen, Observation)]
    return max(found, key=lambda seen: seen.own_step or 0, default=None)


async def latest(workers: Workers, poll: Poll, answers: Mapping[str, bool], expected: Expected) -> Observation:
    """What the rank of the latest membership epoch says, all asked at once; the first one where they are alike.

    `ObserveError` of the first when nobody answers. Who is on a node that did not answer a knock is not asked: that
    would only take time.
    """
    deaf = {poll.doors[node] for node, answered in answers.items() if not answered}
    asked = [address for address in (poll.address, *poll.others) if address not in deaf]
    if not asked:
        raise ObserveError(f"no node of {', '.join((poll.address, *poll.others))} answers")
    found = await asyncio.gather(*(_ask(workers, address, expected) for address in asked))
    said = [seen for seen in found if isinstance(seen, Observation)]
    if not said:
        raise next(error for error in found if isinstance(error, ObserveError))
    return max(said, key=lambda seen: (seen.attempt == poll.attempt, seen.epoch or 0))


async def _ask(workers: Workers, address: str, expected: Expected) -> Observation | ObserveError:
    try:
        return await workers.metrics(address, expected)
    except ObserveError as error:
        return error


async def last_line(cluster: Cluster, view: View, pod: str) -> str:
    """The last line of a worker's log, with its node's time; empty while there is none. `ClusterError`."""
    namespace, container = _place(view)
    lines = await cluster.log(pod, namespace, container=container, tail_lines=1, timestamps=True)
    return lines[-1] if lines else ""


async def gang_words(
    cluster: Cluster, workers: Workers, view: View, action: AskGang, now: datetime, expected: Expected
) -> GangWords:
    """Last lines and own steps of an attempt's workers, the first NUM_ASKED, as far as GANG_SECONDS allow."""
    free, end_s = asyncio.Semaphore(NUM_ASKED_AT_ONCE), asyncio.get_running_loop().time() + GANG_SECONDS

    async def one(pod: WorkerPod) -> WorkerWords:
        try:
            async with asyncio.timeout_at(end_s), free:
                seen = await _ask(workers, pod.address, expected) if pod.address else None
                step = seen.own_step if isinstance(seen, Observation) and seen.own_attempt == pod.attempt else None
                lines, silent = await _last_lines(cluster, view, pod, action.bound_s)
        except TimeoutError:
            return WorkerWords(pod.worker, ("(its log was not read in time)",), True)
        return WorkerWords(pod.worker, lines, silent, step)

    found = await asyncio.gather(*map(one, action.pods[:NUM_ASKED]))
    return GangWords(view.status.attempt, now, tuple(found))


async def _last_lines(cluster: Cluster, view: View, pod: WorkerPod, bound_s: float) -> tuple[tuple[str, ...], bool]:
    """A worker's last lines, and whether all of them are older than `bound_s` by its node's own clock."""
    namespace, container = _place(view)
    since_s = max(1, round(bound_s))
    try:
        lines = await cluster.log(pod.name, namespace, container=container, tail_lines=NUM_LAST_LINES)
        recent = await cluster.log(pod.name, namespace, container=container, tail_lines=1, since_s=since_s)
    except ClusterError as error:
        return (f"(its log cannot be read: {error.message})",), True
    return lines, not recent


def _place(view: View) -> tuple[str, str]:
    """Namespace and container of the job's workers."""
    return view.job.metadata.namespace or "", view.job.spec.template.spec.containers[0].name
