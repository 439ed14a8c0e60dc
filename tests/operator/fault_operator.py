"""The product's own operator with short waits: how it is started, and the program that is then run.

Pods that kwok simulates have no processes: rank 0 never answers, and its prediction is the assumed one at once.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hulk_operator import names
from hulk_operator.cluster import LeaseLost, connect
from hulk_operator.handlers.operator import run
from hulk_operator.handlers.serving import serve
from hulk_operator.handlers.settings import from_environment
from hulk_operator.metrics import Health
from hulk_operator.observation import Expected, Observation, ObserveError, Preflight
from hulk_operator.reconcile.types import Timing

TIMING = Timing(
    backoff_s=0.5,
    max_backoff_s=2.0,
    settle_s=1.0,
    alone_s=0.5,
    not_ready_s=1.0,
    leftover_s=5.0,
    poll_s=5.0,
    preflight_poll_s=0.5,
    preflight_wait_s=0.5,
    resync_s=30.0,
    retry_plan_s=2.0,
    node_request_s=0.5,
    retry_node_request_s=1.0,
)


class Silent:
    """Rank 0 of a pod without a process."""

    async def metrics(self, ip: str, expected: Expected) -> Observation:
        """Nothing is served."""
        raise ObserveError(f"{ip} does not answer")

    async def preflight(self, ip: str, expected: Expected) -> Preflight | None:
        """Nothing is served."""
        raise ObserveError(f"{ip} does not answer")

    async def start(self, ip: str, attempt: int, order: str) -> None:
        """Nobody listens."""
        raise ObserveError(f"{ip} does not answer")

    async def answers(self, ip: str) -> bool:
        """Nor is there a node."""
        return False


@dataclass(slots=True)
class OperatorProcess:
    """One operator that runs."""

    process: asyncio.subprocess.Process
    log: Path
    port: int

    async def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """SIGTERM, also when it is halted; answers its exit code."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        return await self.process.wait()

    def said(self, words: str) -> bool:
        """Whether its log holds some words."""
        return words in self.log.read_text()


@asynccontextmanager
async def operator(
    kubeconfig: Path, log: Path, port: int, lease_namespace: str, namespace: str = "", lease_s: int = 60
) -> AsyncIterator[OperatorProcess]:
    """An operator for one namespace or for all; stopped at the end."""
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        names.ENV_NAMESPACE: namespace,
        names.ENV_LEASE_NAMESPACE: lease_namespace,
        names.ENV_LEASE_SECONDS: str(lease_s),
        names.ENV_METRICS_PORT: str(port),
    }
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, env=environment, stdout=out, stderr=out
        )
    running_operator = OperatorProcess(process, log, port)
    try:
        yield running_operator
    finally:
        await running_operator.stop()


async def main() -> None:
    """Run until stopped."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    settings = replace(from_environment(os.environ, f"fault-{os.getpid()}"), timing=TIMING)
    cluster = await connect()
    try:
        await run(cluster, Silent(), settings, Health(), serve, cluster.clock.now)
    finally:
        await cluster.close()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LeaseLost as lost:
        sys.exit(f"hulk-operator: {lost}")
