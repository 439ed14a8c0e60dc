"""A program that is the workers of many jobs: it answers at every address of 127/8, on one port, which it prints.

What a job's workers do is told by its number: one of 40 takes connections and never answers, one of 40 never stops to,
and the others tell of a step more each time.
"""

import asyncio
import socket
from collections import Counter
from typing import ClassVar

from many_jobs import worker_at

NUM_KINDS = 40
SILENT, ENDLESS = 0, 20
LINE = b"a 1\n"


class Worker(asyncio.Protocol):
    """One connection."""

    steps: ClassVar[Counter[int]] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Whose worker is asked?"""
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.is_writing = transport, True
        self.job, _ = worker_at(transport.get_extra_info("sockname")[0])

    def data_received(self, data: bytes) -> None:
        """Each request comes in one piece."""
        kind = self.job % NUM_KINDS
        if kind == ENDLESS:
            self.transport.write(b"HTTP/1.0 200 OK\r\n\r\n")
            self.flood()
        elif kind != SILENT:
            self.steps[self.job] += 1
            body = f'hulk_worker_step {self.steps[self.job]}\nhulk_worker_info{{attempt="1"}} 1\n'.encode()
            self.transport.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            self.transport.close()

    def flood(self) -> None:
        """As much as is taken."""
        while self.is_writing and not self.transport.is_closing():
            self.transport.write(LINE * 4096)

    def pause_writing(self) -> None:
        """Enough for now."""
        self.is_writing = False

    def resume_writing(self) -> None:
        """More is taken."""
        self.is_writing = True
        self.flood()


async def main() -> None:
    """Answer until killed."""
    taken = socket.create_server(("0.0.0.0", 0), backlog=4096)
    await asyncio.get_running_loop().create_server(Worker, sock=taken)
    print(taken.getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
