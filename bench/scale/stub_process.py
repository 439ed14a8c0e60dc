"""`python -m bench.scale.stub_process FOLDER --port PORT --nodes N --pods N --pool N`: serve a cluster until SIGTERM.

FOLDER holds the authority that signed the certificates of the server and of its clients (`bench.scale.access`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
from pathlib import Path

from aiohttp import web
from hulk_operator.cluster import HULK_TOPOLOGIES, NODES, PODS

from bench.scale import access, foreign_pods, jobs, nodes
from bench.scale.stub import writes
from bench.scale.stub.controllers import Controllers
from bench.scale.stub.kinds import NAMESPACES, SERVED
from bench.scale.stub.server import Server
from bench.scale.stub.store import Store
from bench.scale.stub.target import Target


def cluster(num_nodes: int, num_pods: int, num_pool: int) -> Store:
    """A store with everything that is there before the operator."""
    store = Store(SERVED)
    for name in ("default", jobs.NAMESPACE, foreign_pods.OTHERS, jobs.SYSTEM):
        writes.create(store, Target(NAMESPACES, "", name), jobs.namespace(name), "bench")
    writes.create(store, Target(HULK_TOPOLOGIES, "", "cluster"), jobs.topology(), "bench")
    store.load(NODES, list(nodes.nodes(num_nodes, num_pool)))
    store.load(PODS, list(foreign_pods.foreign_pods(num_nodes, num_pods)))
    return store


async def serve(store: Store, folder: Path, port: int) -> None:
    """Until SIGTERM."""
    Controllers(store)
    runner = web.AppRunner(Server(store).app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, access.HOST, port, ssl_context=access.server_context(folder)).start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await runner.cleanup()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name in ("port", "nodes", "pods", "pool"):
        parser.add_argument(f"--{name}", type=int, required=True)
    asked = parser.parse_args()
    store = cluster(asked.nodes, asked.pods, asked.pool)
    gc.freeze()  # the cluster is there to stay: no collection need look at it again
    asyncio.run(serve(store, asked.folder, asked.port))


if __name__ == "__main__":
    main()
