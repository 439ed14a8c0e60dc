"""Rank 0 of running attempts over HTTP, on one session."""

import aiohttp

from hulk_operator import observe


class HttpWorkers:
    """See `hulk_operator.reconcile.workers.Workers`; bounded in size and time by `observe`."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def metrics(self, ip: str) -> observe.Observation:
        """Progress."""
        return await observe.metrics(self._session, ip)

    async def preflight(self, ip: str) -> observe.Preflight | None:
        """What the ranks measured before the first step."""
        return await observe.preflight(self._session, ip)

    async def start(self, ip: str, attempt: int) -> None:
        """Let the first step begin."""
        await observe.start(self._session, ip, attempt)

    async def answers(self, ip: str) -> bool:
        """Whether its node lives."""
        return await observe.answers(ip)
