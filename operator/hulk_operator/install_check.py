"""`helm test`: asks an operator whether it is ready, and the API server whether it would admit a HulkJob.

Run in a pod of the release. The job is sent as a dry run with strict validation: the definitions are there, their rules
hold, and no webhook is in the way. Nothing is created.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

import aiohttp

from hulk_operator import names
from hulk_operator.cluster import HULK_JOBS, Cluster, ClusterError, Object, connect

PATIENCE_S: Final = 60.0  # for an operator that has just begun, and for rights that were given a moment ago
RETRY_S: Final = 1.0
ANSWER_S: Final = 5.0


def smallest_job(namespace: str) -> Object:
    """What a HulkJob has at least."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "metadata": {"name": "hulk-test", "namespace": namespace},
        "spec": {"workers": {"max": 1}, "template": {"spec": {"containers": [{"name": "worker", "image": "hulk"}]}}},
    }


async def is_ready(session: aiohttp.ClientSession, url: str) -> str:
    """Ask an operator's /readyz; ValueError with what it said when it is not ready."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    try:
        async with session.get(url, timeout=timeout) as answer:
            if answer.status != 200:
                raise ValueError(f"{url} answers {answer.status}: {await answer.text()}")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ValueError(f"{url} does not answer: {error!r}") from error
    return "an operator is ready"


async def admits(cluster: Cluster, namespace: str) -> str:
    """Send a job as a dry run; ValueError with the API server's words when it is refused."""
    try:
        await cluster.try_create(HULK_JOBS, smallest_job(namespace))
    except ClusterError as error:
        raise ValueError(f"a HulkJob in namespace {namespace} is refused: {error.message}") from error
    return f"a HulkJob in namespace {namespace} is admitted"


async def eventually(check: Callable[[], Awaitable[str]], patience_s: float) -> str:
    """The check's words, tried again for so long while it fails."""
    until = monotonic() + patience_s
    while True:
        try:
            return await check()
        except ValueError:
            if monotonic() >= until:
                raise
            await asyncio.sleep(RETRY_S)


async def _check(ready: str, namespace: str, patience_s: float) -> None:
    cluster = await connect()
    try:
        async with aiohttp.ClientSession() as session:
            print(await eventually(lambda: is_ready(session, ready), patience_s))
        print(await eventually(lambda: admits(cluster, namespace), patience_s))
    finally:
        await cluster.close()


def main() -> None:
    """Exit code 1, with one sentence, when something is missing."""
    parser = argparse.ArgumentParser(prog="python -m hulk_operator.install_check", description=__doc__)
    parser.add_argument("--ready", required=True, help="URL of an operator's /readyz")
    parser.add_argument("--namespace", required=True, help="where the job would be")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds")
    given = parser.parse_args()
    try:
        asyncio.run(_check(given.ready, given.namespace, given.patience))
    except (ClusterError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
