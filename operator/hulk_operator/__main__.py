"""`hulk-operator`: runs the operator until SIGTERM. Exit code 1: it cannot go on and shall be started again."""

import os
import socket
import sys

SWITCH_S = 0.001
"""How long a thread that plans may keep the event loop waiting for the interpreter; Python's own is 5 ms."""


def main() -> None:
    """Entry point; everything heavy is imported here, because the planner's process imports this module as well."""
    import asyncio

    from hulk_operator import background, logs
    from hulk_operator.background import BackgroundError
    from hulk_operator.cluster import ClusterError, LeaseLost, connect
    from hulk_operator.handlers.operator import run
    from hulk_operator.handlers.serving import serve
    from hulk_operator.handlers.settings import from_environment
    from hulk_operator.handlers.workers import HttpWorkers
    from hulk_operator.metrics import Health

    sys.setswitchinterval(SWITCH_S)
    try:
        level = logs.configure(os.environ)
        settings = from_environment(os.environ, f"{socket.gethostname()}_{os.getpid()}")
    except ValueError as error:
        sys.exit(f"hulk-operator: {error}")

    async def operate() -> None:
        health = Health()
        cluster = await connect(wrote=health.wrote)
        try:
            async with background.running() as tasks:
                following = tasks.start("log level", level.follow)
                await run(cluster, HttpWorkers(), settings, health, serve, cluster.clock.now)
                following.cancel()
        finally:
            await cluster.close()

    try:
        asyncio.run(operate())
    except (ClusterError, LeaseLost, BackgroundError) as error:
        logs.ROOT.critical("hulk-operator ends: %s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
