"""The operator's HTTP port: /metrics, /healthz and /readyz from questions to the operator."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from hulk_operator import names


async def serve(
    exposition: Callable[[], Awaitable[bytes]],
    healthy: Callable[[], bool],
    ready: Callable[[], bool],
    port: int = names.OPERATOR_METRICS_PORT,
    host: str | None = None,
) -> web.AppRunner:
    """Serve until the returned runner is cleaned up. `OSError` when the port is taken; host None: every address."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=await exposition(), content_type="text/plain")

    async def health(_: web.Request) -> web.Response:
        return _answer(healthy(), "not healthy")

    async def readiness(_: web.Request) -> web.Response:
        return _answer(ready(), "not ready")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", health), web.get("/readyz", readiness)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner


def _answer(good: bool, otherwise: str) -> web.Response:
    return web.Response(text="ok\n") if good else web.Response(text=f"{otherwise}\n", status=503)
