"""Rank 0 of running attempts over HTTP, on one session."""

import aiohttp

from hulk_operator import worker_client
from hulk_operator.observation import Observation, Preflight


class HttpWorkers:
    """See `hulk_operator.reconcile.polling.Workers`; bounded in size and time by `observe`."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def metrics(self, ip: str) -> Observation:
        """Progress."""
        return await worker_client.metrics(self._session, ip)

    async def preflight(self, ip: str) -> Preflight | None:
        """What the ranks measured before the first step."""
        return await worker_client.preflight(self._session, ip)

    async def start(self, ip: str, attempt: int) -> None:
        """Let the first step begin."""
        await worker_client.start(self._session, ip, attempt)

    async def answers(self, ip: str) -> bool:
        """Whether its node lives."""
        return await worker_client.answers(ip)
