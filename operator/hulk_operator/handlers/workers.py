"""Workers of running attempts over HTTP, so many connections at once."""

import asyncio
import resource
from typing import Final

from hulk_operator import worker_client
from hulk_operator.observation import Expected, Observation, Preflight

MAX_CONNECTIONS: Final = 1024


class HttpWorkers:
    """See `hulk_operator.reconcile.polling.Workers`; each request is bounded in size and time by `worker_client`.

    At most half of the files that the process may open are connections to workers: the others are the API server's.
    """

    def __init__(self) -> None:
        max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._free = asyncio.Semaphore(MAX_CONNECTIONS if max_files < 0 else min(MAX_CONNECTIONS, max_files // 2))

    async def metrics(self, address: str, expected: Expected) -> Observation:
        """Progress."""
        async with self._free:
            return await worker_client.metrics(address, expected)

    async def preflight(self, address: str, expected: Expected) -> Preflight | None:
        """What the ranks measured before the first step."""
        async with self._free:
            return await worker_client.preflight(address, expected)

    async def start(self, address: str, attempt: int, order: str) -> None:
        """Let the first step begin."""
        async with self._free:
            await worker_client.start(address, attempt, order)

    async def answers(self, address: str) -> bool:
        """Whether its node lives."""
        async with self._free:
            return await worker_client.answers(address)
