"""Clocks that are an hour off, either way: no time of another machine's clock is compared with the operator's.

The operator's own clock is the API server's, read off the dates of its answers.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from hulk_operator.cluster import NODES, ApiCluster
from hulk_operator.cluster.server_clock import ServerClock
from hulk_operator.pods import pods
from hulk_operator.reconcile.recipe import Decision, decide
from hulk_operator.reconcile.types import Admission, Memory, View
from hulk_operator.watched import Store
from kubernetes.aio.client import ApiClient, Configuration
from views import GENERATION, NOW, full, job, plan, running, status
from views import NODES as NAMES

HOUR = timedelta(hours=1)
WRONG = pytest.mark.parametrize("wrong", [-HOUR, HOUR], ids=["slow", "fast"])


class Cluster:
    """What the operator sees, at times that a test says. `versions` go up with each word."""

    def __init__(self) -> None:
        self.now = NOW
        self.store = Store(lambda: self.now)
        self.version = 0
        for name in NAMES:
            self.node(name, "True", NOW)

    def node(self, name: str, ready: str, since: datetime) -> None:
        """A node says how it is, by its own clock."""
        row = {"type": "Ready", "status": ready, "lastTransitionTime": stamp(since)}
        self.store.nodes.put({"metadata": self._metadata({"name": name}), "status": {"conditions": [row]}})

    def pod(self, worker: int, deletion: dict[str, Any] | None = None, **container: Any) -> None:
        """A pod of the first attempt is told of."""
        (raw,) = pods(job(), plan(), [worker])
        state = container or {"running": {}}
        said: dict[str, Any] = {
            "phase": "Failed" if container else "Running",
            "podIP": f"10.0.0.{worker + 1}",
            "containerStatuses": [{"name": "worker", "state": state}],
        }
        metadata = self._metadata({**raw["metadata"], "uid": f"p{worker}", **(deletion or {})})
        self.store.pods.put(
            {**raw, "metadata": metadata, "spec": {**raw["spec"], "nodeName": NAMES[worker]}, "status": said}
        )

    def decide(self, found: Any, at: datetime) -> Decision:
        """A pass."""
        one = job().model_copy(update={"status": found})
        seen = {"pods": self.store.pods_of("lab/demo"), "nodes": self.store.node_states(), "full": full()}
        return decide(
            View(
                one, found, at, memory=Memory("u1", swept_to=found.attempt, admission=Admission(GENERATION, at)), **seen
            )
        )

    def _metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        return {**metadata, "resourceVersion": str(self.version)}


def stamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def ended(time: datetime, message: str = "boom") -> dict[str, Any]:
    return {"terminated": {"exitCode": 1, "reason": "Error", "message": message, "finishedAt": stamp(time)}}


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@WRONG
def test_the_cause_of_a_broken_gang_is_waited_for_from_when_it_was_seen(wrong: timedelta) -> None:
    cluster = Cluster()
    for worker in range(3):
        cluster.pod(worker)
    cluster.pod(1, **ended(NOW + wrong))
    found = running(since_s=7200)
    waits = cluster.decide(found, later(1))
    assert waits.view.status.failures == 0
    assert waits.requeue_after_s == pytest.approx(59)
    assert cluster.decide(found, later(61)).view.status.failures == 1


@WRONG
def test_the_first_to_be_seen_to_fail_is_the_cause(wrong: timedelta) -> None:
    cluster = Cluster()
    cluster.pod(0)
    cluster.pod(2, **ended(NOW + wrong, "the cause"))
    cluster.now = later(1)
    cluster.pod(1, **ended(later(1), "a consequence"))
    cluster.pod(0, **ended(later(1) - wrong, "another one"))
    last = cluster.decide(running(since_s=7200), later(2)).view.status.last_failure
    assert last is not None
    assert (last.node, last.message) == ("node-2", "the cause")


@WRONG
def test_a_pod_that_ends_is_waited_for_from_when_its_deletion_was_seen(wrong: timedelta) -> None:
    cluster = Cluster()
    deletion = {"deletionTimestamp": stamp(later(30) + wrong), "deletionGracePeriodSeconds": 30}
    cluster.pod(0, deletion)
    cluster.now = later(20)
    cluster.pod(0, deletion)  # told again: it counts from the first time
    found = status(1, since_s=100, Planned=(False, "Resized"))
    assert cluster.decide(found, later(20)).requeue_after_s == pytest.approx(40)  # 30 s of grace, 30 s for leftovers
    assert any(step.name == "plan" for step, _ in cluster.decide(found, later(61)).actions)


@WRONG
def test_a_node_is_lost_when_it_was_seen_unready_for_long(wrong: timedelta) -> None:
    cluster = Cluster()
    for worker in range(3):
        cluster.pod(worker)
    cluster.node("node-1", "False", NOW + wrong)
    cluster.now = later(20)
    cluster.node("node-1", "False", NOW + wrong)  # a heartbeat
    found = running(since_s=7200)
    assert cluster.decide(found, later(29)).view.status.disruptions == 0
    made = cluster.decide(found, later(31)).view.status
    assert made.disruptions == 1
    assert made.last_failure is not None
    assert made.last_failure.message == "node node-1 is not ready since 12:00:00 UTC"


@WRONG
def test_an_operator_that_starts_waits_anew_and_never_for_hours(wrong: timedelta) -> None:
    cluster = Cluster()
    cluster.now = later(600)
    cluster.pod(0)
    cluster.pod(1, **ended(NOW + wrong))
    cluster.pod(2)
    assert cluster.decide(running(since_s=7200), later(600)).requeue_after_s == pytest.approx(60)


@WRONG
def test_the_operators_time_is_the_api_servers(wrong: timedelta) -> None:
    own_s = [1000.0]
    clock = ServerClock(lambda: own_s[0], wall=lambda: NOW.timestamp())
    assert clock.now() == NOW
    clock.heard((NOW + wrong).strftime("%a, %d %b %Y %H:%M:%S GMT"), asked_at_s=999.9)
    assert abs(clock.now() - NOW - wrong) < timedelta(seconds=1)
    own_s[0] += 60
    assert abs(clock.now() - NOW - wrong) < timedelta(seconds=61)


def test_a_clock_that_is_right_to_the_second_is_left_alone_and_words_that_are_no_date_are_passed_over() -> None:
    clock = ServerClock(lambda: 1000.0, wall=lambda: NOW.timestamp())
    for date in ((NOW + timedelta(seconds=1)).strftime("%a, %d %b %Y %H:%M:%S GMT"), "", None, "soon"):
        clock.heard(date, asked_at_s=1000.0)
    assert clock.now() == NOW


@WRONG
async def test_every_answer_of_the_api_server_says_what_time_it_is(wrong: timedelta) -> None:
    async def answer(_: web.Request) -> web.Response:
        date = (datetime.now(UTC) + wrong).strftime("%a, %d %b %Y %H:%M:%S GMT")
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []}, headers={"Date": date})

    app = web.Application()
    app.router.add_get("/api/v1/nodes", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    cluster = ApiCluster(ApiClient(Configuration(host=f"http://127.0.0.1:{port}")))
    try:
        await cluster.list(NODES)
        assert abs(cluster.clock.now() - datetime.now(UTC) - wrong) < timedelta(seconds=5)
    finally:
        await cluster.close()
        await runner.cleanup()
