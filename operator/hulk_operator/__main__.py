"""`hulk-operator`: runs the operator until SIGTERM. Exit code 1: it cannot go on and shall be started again."""

import os
import socket
import sys


def main() -> None:
    """Entry point; everything heavy is imported here, because the planner's process imports this module as well."""
    import asyncio
    import logging

    from hulk_operator.background import BackgroundError
    from hulk_operator.cluster import ClusterError, LeaseLost, connect
    from hulk_operator.handlers.operator import run
    from hulk_operator.handlers.serving import serve
    from hulk_operator.handlers.settings import from_environment
    from hulk_operator.handlers.workers import HttpWorkers
    from hulk_operator.metrics import Health

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("kopf", "aiohttp.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)

    try:
        settings = from_environment(os.environ, f"{socket.gethostname()}_{os.getpid()}")
    except ValueError as error:
        sys.exit(f"hulk-operator: {error}")

    async def operate() -> None:
        health = Health()
        cluster = await connect(wrote=health.wrote)
        try:
            await run(cluster, HttpWorkers(), settings, health, serve, cluster.clock.now)
        finally:
            await cluster.close()

    try:
        asyncio.run(operate())
    except (ClusterError, LeaseLost, BackgroundError) as error:
        sys.exit(f"hulk-operator: {error}")


if __name__ == "__main__":
    main()
