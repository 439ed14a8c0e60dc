"""`python -m bench.scale.life KUBECONFIG --port PORT --nodes N --pods N`: everyone in the cluster but the operator.

    kubelets    report each node's status once in five minutes, as they do where nothing changes
    others      replace a pod of theirs now and then: one a second of 5,000
    agents      measure as they are ordered
    workers     answer at the addresses of Hulk's pods

GET /polls on PORT says when each job's workers were asked. `--kwok`: kwok plays the kubelets.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Final

from aiohttp import web
from hulk_operator.cluster import NODES, PODS

from bench.api_server import Bare, connect
from bench.scale.access import HOST
from bench.scale.agents import agents
from bench.scale.foreign_pods import APPS, OTHERS, creatable, foreign_pod
from bench.scale.nodes import node_conditions, node_name
from bench.scale.stub.writes import timestamp
from bench.scale.workers import Workers
from bench.scale.writing import Writer

REPORT_S: Final = 300.0
PODS_PER_REPLACED: Final = 5_000
"""Of so many pods of others, one is replaced each second."""
WEB: Final = APPS.index("web")


async def report(writer: Writer, num_nodes: int) -> None:
    """Node after node, each once in `REPORT_S`."""
    while True:
        for index in range(num_nodes):
            await asyncio.sleep(REPORT_S / num_nodes)
            change = {"status": {"conditions": node_conditions(timestamp())}}
            writer.merge(f"{NODES.path(None, node_name(index))}/status", change, "kubelet")


async def replace(writer: Writer, num_nodes: int, num_pods: int) -> None:
    """One server after the other: the old one goes, a new one comes on the same node."""
    version = 0
    while num_pods > WEB * num_nodes:
        for index in range(num_pods - WEB * num_nodes):
            await asyncio.sleep(PODS_PER_REPLACED / num_pods)
            old, new = (foreign_pod(index, WEB, number) for number in (version, version + 1))
            writer.delete(PODS.path(OTHERS, old["metadata"]["name"]))
            writer.create(PODS.path(OTHERS), creatable(new))
        version += 1


async def live(bare: Bare, port: int, num_nodes: int, num_pods: int, *, has_kubelets: bool) -> None:
    """Until cancelled, or the server is gone."""
    writer, workers = Writer(bare), Workers(bare)

    async def polls(_: web.Request) -> web.Response:
        return web.json_response(workers.polls())

    app = web.Application()
    app.add_routes([web.get("/polls", polls)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    async with asyncio.TaskGroup() as group:
        group.create_task(writer.run())
        group.create_task(workers.run())
        group.create_task((await agents(bare, writer)).run())
        group.create_task(replace(writer, num_nodes, num_pods))
        if not has_kubelets:
            group.create_task(report(writer, num_nodes))
        await web.TCPSite(runner, HOST, port).start()


async def run(asked: argparse.Namespace) -> None:
    """As the command line says."""
    async with connect(asked.kubeconfig) as bare:
        await live(bare, asked.port, asked.nodes, asked.pods, has_kubelets=asked.kwok)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kubeconfig", type=Path)
    for name in ("port", "nodes", "pods"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--kwok", action="store_true")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
