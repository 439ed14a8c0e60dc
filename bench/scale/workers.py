"""The workers of all jobs that run: an HTTP server at each pod's loopback address, as a training's rank 0 serves it.

Only who watches knows how often a worker was asked, so each request for /metrics is noted with its time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from hulk_operator import names
from hulk_operator.cluster import PODS

from bench.api_server import Bare

STEP_S: Final = 2.0
COMPUTE_S: Final = 1.9
WAIT_S: Final = 10.0
"""A worker that nobody starts begins by itself after so long: its plan asks for no preflight."""
FIXED_LINES: Final = 40
"""Of a process's own metrics, which every worker serves."""


@dataclass(slots=True)
class Worker:
    """One pod's worker. `begun_s`: of its first step; `polls_s`: when its metrics were read."""

    job: str
    attempt: str
    number: int
    num_ranks: int
    begun_s: float
    polls_s: list[float] = field(default_factory=list)

    def text(self) -> str:
        """What /metrics answers now."""
        step = max(0, int((time.monotonic() - self.begun_s) / STEP_S))
        own = f'hulk_worker_own_step{{attempt="{self.attempt}"}} {step}\n'
        return _PROCESS + own + (self._of_job(step) if self.number == 0 else "")

    def _of_job(self, step: int) -> str:
        ranks = range(self.num_ranks)
        info = f'version="bench",wire_version="1",attempt="{self.attempt}",backend="gloo",all_reduce="wan"'
        gauges = {
            "step": step,
            "step_seconds": STEP_S,
            "step_seconds_last": STEP_S,
            "loss": 10 / (step + 1),
            "parameters": 1_315_000_000,
            "gradient_bytes": 5_260_000_000,
            "sent_bytes_total": step * 10**9,
            "checkpoint_step": 0,
            "checkpoint_bytes": 0,
            "membership_epoch": 0,
        }
        lines = [f"hulk_worker_info{{{info}}} 1"]
        for name, value in gauges.items():
            lines += [f"# HELP hulk_worker_{name} As it is now.", f"# TYPE hulk_worker_{name} gauge"]
            lines.append(f"hulk_worker_{name} {value}")
        lines += [f'hulk_worker_compute_seconds{{rank="{rank}"}} {COMPUTE_S}' for rank in ranks]
        lines += [f'hulk_worker_member{{rank="{rank}"}} 1' for rank in ranks]
        return "\n".join(lines) + "\n"


_PROCESS: Final = "".join(
    f"# HELP process_metric_{number} A figure of the process.\n# TYPE process_metric_{number} gauge\n"
    f"process_metric_{number} {number * 1.5e6}\n"
    for number in range(FIXED_LINES)
)


class Workers:
    """Follows Hulk's pods; each that runs listens until it is gone."""

    def __init__(self, bare: Bare) -> None:
        self._bare = bare
        self._workers: dict[str, Worker] = {}  # by address
        self._listening: dict[str, asyncio.Server] = {}
        self._opening: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until cancelled."""
        app = web.Application()
        routes = [web.get("/metrics", self._metrics), web.get("/preflight", self._preflight)]
        app.add_routes([*routes, web.post("/start", self._start)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        async for event in self._bare.watch(PODS.path(), names.LABEL_JOB):
            self._take(runner, event)

    def polls(self) -> dict[str, list[float]]:
        """By job, when its rank 0 began to train, and then when it was asked for its progress."""
        ranks0 = (worker for worker in self._workers.values() if worker.number == 0)
        return {worker.job: [worker.begun_s, *worker.polls_s] for worker in ranks0}

    def _take(self, runner: web.AppRunner, event: dict[str, Any]) -> None:
        pod = event["object"]
        address = pod.get("status", {}).get("podIP", "")
        is_up = event["type"] in ("ADDED", "MODIFIED") and pod["status"].get("phase") == "Running"
        is_up = is_up and "deletionTimestamp" not in pod["metadata"]
        if is_up and address.startswith("127.") and address not in self._workers:
            self._workers[address] = _worker(pod)
            task = asyncio.create_task(self._open(runner, address))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        elif not is_up and address in self._workers:
            del self._workers[address]
            if server := self._listening.pop(address, None):
                server.close()

    async def _open(self, runner: web.AppRunner, address: str) -> None:
        assert runner.server is not None
        loop = asyncio.get_running_loop()
        server = await loop.create_server(runner.server, address, names.WORKER_METRICS_PORT)
        if address in self._workers:
            self._listening[address] = server
        else:  # it has ended meanwhile
            server.close()

    def _asked(self, request: web.Request) -> Worker:
        assert request.transport is not None
        worker = self._workers.get(request.transport.get_extra_info("sockname")[0])
        if worker is None:
            raise web.HTTPServiceUnavailable
        return worker

    async def _metrics(self, request: web.Request) -> web.Response:
        worker = self._asked(request)
        worker.polls_s.append(time.monotonic())
        return web.Response(text=worker.text())

    async def _preflight(self, request: web.Request) -> web.Response:
        worker = self._asked(request)
        compute_s = [COMPUTE_S] * worker.num_ranks
        found = {"attempt": int(worker.attempt), "computeSeconds": compute_s, "slowestSeconds": COMPUTE_S}
        return web.json_response(found)

    async def _start(self, request: web.Request) -> web.Response:
        self._asked(request).begun_s = time.monotonic()
        return web.json_response({})


def _worker(pod: dict[str, Any]) -> Worker:
    """As a worker reads its environment."""
    labels = pod["metadata"]["labels"]
    env = {row["name"]: row.get("value", "") for row in pod["spec"]["containers"][0]["env"]}
    return Worker(
        f"{pod['metadata']['namespace']}/{labels[names.LABEL_JOB]}",
        labels[names.LABEL_ATTEMPT],
        int(labels[names.LABEL_WORKER]),
        int(env[names.ENV_PET_NNODES]) * int(env[names.ENV_PET_NPROC_PER_NODE]),
        time.monotonic() + WAIT_S,
    )
