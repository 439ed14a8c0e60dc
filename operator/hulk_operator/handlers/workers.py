"""Rank 0 of running attempts over HTTP, on one session."""

import aiohttp

from hulk_operator import worker_client
from hulk_operator.observation import Observation, Preflight


class HttpWorkers:
    """See `hulk_operator.reconcile.polling.Workers`; bounded in size and time by `observe`."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def metrics(self, address: str) -> Observation:
        """Progress."""
        return await worker_client.metrics(self._session, address)

    async def preflight(self, address: str) -> Preflight | None:
        """What the ranks measured before the first step."""
        return await worker_client.preflight(self._session, address)

    async def start(self, address: str, attempt: int, order: str) -> None:
        """Let the first step begin."""
        await worker_client.start(self._session, address, attempt, order)

    async def answers(self, address: str) -> bool:
        """Whether its node lives."""
        return await worker_client.answers(address)
