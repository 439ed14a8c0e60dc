"""`python -m bench.scale.gateway FOLDER UPSTREAM --port PORT`: a server before the real one that counts what passes.

UPSTREAM is a kubeconfig with the rights that the client is to have. Bodies pass as they are, compressed where they are.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import ClientTimeout, web
from yarl import URL

from bench.api_server import Bare, connect
from bench.scale import access
from bench.scale.meter import METER_PATH, Meter

_OF_ONE_CONNECTION: Final = frozenset(("host", "connection", "content-length", "transfer-encoding"))


@dataclass(slots=True)
class Gateway:
    """Passes requests on."""

    bare: Bare
    meter: Meter = field(default_factory=Meter)

    def app(self) -> web.Application:
        """For aiohttp."""
        app = web.Application(client_max_size=4 << 20)
        app.router.add_get(METER_PATH, self._counted)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        return app

    async def _counted(self, _: web.Request) -> web.Response:
        return web.json_response(self.meter.snapshot())

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _OF_ONE_CONNECTION}
        async with self.bare.session.request(
            request.method,
            URL(self.bare.url + request.raw_path, encoded=True),
            headers=headers,
            data=await request.read() or None,
            timeout=ClientTimeout(total=None),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),
        ) as answer:
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in _OF_ONE_CONNECTION}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            self.meter.add(request, 0)
            async for chunk in answer.content.iter_any():
                self.meter.add(request, len(chunk), requests=0)
                await response.write(chunk)
        return response


async def serve(folder: Path, upstream: Path, port: int) -> None:
    """Until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with connect(upstream) as bare:
        runner = web.AppRunner(Gateway(bare).app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, access.HOST, port, ssl_context=access.server_context(folder)).start()
        await stop.wait()
        await runner.cleanup()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("upstream", type=Path)
    parser.add_argument("--port", type=int, required=True)
    asked = parser.parse_args()
    asyncio.run(serve(asked.folder, asked.upstream, asked.port))


if __name__ == "__main__":
    main()
