"""What running workers are asked, and whose answer counts when several are."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from hulk_operator.observation import Observation, Preflight
from hulk_operator.reconcile.types import Poll
from hulk_operator.worker_client import ObserveError

NUM_KNOCKS: Final = 128
NUM_SURVIVORS: Final = 3


class Workers(Protocol):
    """What a worker of a running attempt can be asked (`address`: host:port); `ObserveError` without an answer."""

    async def metrics(self, address: str) -> Observation:
        """Its progress."""
        ...

    async def preflight(self, address: str) -> Preflight | None:
        """What the ranks measured before the first step; None before that is known."""
        ...

    async def start(self, address: str, attempt: int) -> None:
        """Let the first step begin."""
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


async def furthest(workers: Workers, addresses: Sequence[str]) -> Observation | None:
    """What the one of the first few says that has come furthest; None when nobody answers."""
    answers = await asyncio.gather(*(_ask(workers, address) for address in addresses[:NUM_SURVIVORS]))
    found = [seen for seen in answers if isinstance(seen, Observation)]
    return max(found, key=lambda seen: seen.own_step or 0, default=None)


async def latest(workers: Workers, poll: Poll, answers: Mapping[str, bool]) -> Observation:
    """What the rank of the latest membership epoch says, all asked at once; the first one where they are alike.

    `ObserveError` of the first when nobody answers. Who is on a node that did not answer a knock is not asked: that
    would only take time.
    """
    deaf = {poll.doors[node] for node, answered in answers.items() if not answered}
    asked = [address for address in (poll.address, *poll.others) if address not in deaf]
    if not asked:
        raise ObserveError(f"no node of {', '.join((poll.address, *poll.others))} answers")
    found = await asyncio.gather(*(_ask(workers, address) for address in asked))
    said = [seen for seen in found if isinstance(seen, Observation)]
    if not said:
        raise next(error for error in found if isinstance(error, ObserveError))
    return max(said, key=lambda seen: (seen.attempt == poll.attempt, seen.epoch or 0))


async def _ask(workers: Workers, address: str) -> Observation | ObserveError:
    try:
        return await workers.metrics(address)
    except ObserveError as error:
        return error
