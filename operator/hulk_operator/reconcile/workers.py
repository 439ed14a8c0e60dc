"""What running workers are asked, and whose answer counts when several are."""

import asyncio
from typing import Protocol

from hulk_operator.observe import Observation, ObserveError, Preflight
from hulk_operator.reconcile.types import Poll


class Workers(Protocol):
    """What a worker of a running attempt can be asked (`ip`: its pod's); `ObserveError` when it does not answer."""

    async def metrics(self, ip: str) -> Observation:
        """Its progress."""
        ...

    async def preflight(self, ip: str) -> Preflight | None:
        """What the ranks measured before the first step; None before that is known."""
        ...

    async def start(self, ip: str, attempt: int) -> None:
        """Let the first step begin."""
        ...


async def latest(workers: Workers, poll: Poll) -> Observation:
    """What the rank of the latest membership epoch says, all asked at once; the first one where they are alike.

    `ObserveError` of the first when nobody answers.
    """

    async def ask(ip: str) -> Observation | ObserveError:
        try:
            return await workers.metrics(ip)
        except ObserveError as error:
            return error

    found = await asyncio.gather(*map(ask, (poll.ip, *poll.others)))
    answers = [seen for seen in found if isinstance(seen, Observation)]
    if not answers:
        raise next(error for error in found if isinstance(error, ObserveError))
    return max(answers, key=lambda seen: (seen.attempt == poll.attempt, seen.epoch or 0))
