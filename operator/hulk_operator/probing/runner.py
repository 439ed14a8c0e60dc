"""The probing loop: reads nodes and profiles, lets `decide` choose, writes the orders. The only I/O of probing.

One pass is: a NodeProfile for every node (owned by the Node, so that Kubernetes deletes it with the node), then the
orders that changed, then an Event for each link that was refused. A pass that fails is repeated; a crash between two
writes leaves at most one side of a test ordered, which gives up by itself.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from hulk_operator import names
from hulk_operator.api import LinkStatus, NodeProfile
from hulk_operator.cluster import (
    EVENTS,
    NODE_PROFILES,
    AlreadyExists,
    Cluster,
    ClusterError,
    NotFound,
    Object,
)
from hulk_operator.inputs.node import is_ready, region
from hulk_operator.inputs.region_pins import untrusted
from hulk_operator.observation import ObservedLink
from hulk_operator.probing import links_under_load
from hulk_operator.probing.events import NAMESPACE as EVENTS_NAMESPACE
from hulk_operator.probing.events import Said, event
from hulk_operator.probing.link_validation import Accepted, Rejection, accept
from hulk_operator.probing.measurement_schedule import decide, foreign_addresses
from hulk_operator.probing.types import Budget, Decision, ProbeNode
from hulk_operator.watched import Snapshot

log = logging.getLogger(__name__)

MIN_INTERVAL_S: Final = 1.0  # between passes
REST: Final = 5.0  # and so many times what the last one took
MAX_INTERVAL_S: Final = 10.0
NUM_WRITES: Final = 16  # in flight
LOAD_S: Final = 30.0  # between two writes of the links under load from one node
LOAD_MANAGER: Final = f"{names.FIELD_MANAGER}-links"  # apart from the operator's other fields of the status


@dataclass(frozen=True, slots=True)
class ProbeState:
    """What probing knows after a pass; immutable, read by metrics and planning."""

    accepted: Accepted = field(default_factory=lambda: Accepted(()))
    region_of: Mapping[str, str] = field(default_factory=dict)
    decision: Decision = field(default_factory=lambda: Decision({}))
    num_tests: int = 0  # ordered since the operator started
    num_errors: int = 0


class ProbeNodes:
    """Nodes as probing sees them, of which those that are as they were are not read again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Object, frozenset[str], ProbeNode]] = {}

    def of(self, seen: Snapshot) -> list[ProbeNode]:
        """All of them."""
        self._known = {
            name: self._one(node.body, seen.agents.get(name, frozenset())) for name, node in seen.nodes.items()
        }
        return [node for _, _, node in self._known.values()]

    def _one(self, body: Object, agents: frozenset[str]) -> tuple[Object, frozenset[str], ProbeNode]:
        known = self._known.get(body["metadata"]["name"])
        if known is not None and known[0] is body and known[1] == agents:
            return known
        return body, agents, probe_node(body, agents)


@dataclass(slots=True)
class Prober:
    """The loop's state. `jobs` are the nodes of each running job.

    `seen` answers the cluster as it is now, `wrote` is told of every profile as it was written: the watch may be late,
    and the next pass must know what it ordered. `failed` is told of every pass that failed. `namespace`: the only one
    that may be written to, None for all. Who knows of a change calls `wake`.
    """

    cluster: Cluster
    seen: Callable[[], Awaitable[Snapshot]]
    jobs: Callable[[], Iterable[Collection[str]]]
    budget: Budget = field(default_factory=Budget)
    wrote: Callable[[Object], object] = lambda _: None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    state: ProbeState = field(default_factory=ProbeState)
    failed: Callable[[], None] = lambda: None
    namespace: str | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _said: Said = field(default_factory=Said)
    _nodes: ProbeNodes = field(default_factory=ProbeNodes)
    _load_written_s: dict[str, float] = field(default_factory=dict)

    def wake(self) -> None:
        """Nodes, profiles or agents are others now."""
        self._changed.set()

    async def run(self) -> None:
        """Pass after pass until cancelled: soon after a change, and now and then because time goes on."""
        while True:
            self._changed.clear()
            begun_s = time.monotonic()
            await self._try_tick()
            await asyncio.sleep(max(MIN_INTERVAL_S, REST * (time.monotonic() - begun_s)))
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_INTERVAL_S):  # wait_for may lose a cancellation
                    await self._changed.wait()

    async def _try_tick(self) -> None:
        try:
            await self.tick()
        except ClusterError as error:
            log.warning("probing: %s", error)
        except Exception:  # one object that is not as it should be must not end the operator
            log.exception("probing: the pass failed")
        else:
            return
        self.failed()
        self.state = replace(self.state, num_errors=self.state.num_errors + 1)

    async def tick(self) -> ProbeState:
        """One pass. `ClusterError` when the API server does not take part."""
        now = self.clock()
        seen = await self.seen()
        await self._create_missing(seen)
        nodes, doubted, accepted, decision = await asyncio.to_thread(
            _decide, self._nodes, seen, tuple(self.jobs()), self.budget, now
        )
        profiles = seen.profiles
        unreadable = [Rejection(name, "", "UnreadableProfile", why) for name, why in seen.unreadable.items()]
        await self._order(profiles, decision)
        self._remember(decision)
        region_of = {node.name: node.region for node in nodes if node.trusted}
        labels = [Rejection(name, "", *why) for name, why in doubted.items()]
        said = [*accepted.rejections, *unreadable, *(one for one in labels if one.source in profiles)]
        await self._tell(said, profiles, now)
        self.state = ProbeState(
            accepted=Accepted(
                accepted.links,
                # foreign addresses are only counted: an agent that was just replaced has one for a moment
                (*accepted.rejections, *unreadable, *labels, *foreign_addresses(nodes, profiles)),
            ),
            region_of=region_of,
            decision=decision,
            num_tests=self.state.num_tests + len(decision.attempts),
            num_errors=self.state.num_errors,
        )
        return self.state

    async def record_load(self, observed: Iterable[ObservedLink], job_nodes: Collection[str]) -> None:
        """Write what a job saw of its own links, each source node at most once in `LOAD_S`."""
        now = self.clock()
        for source, new in links_under_load.rows(observed, job_nodes, now).items():
            if now.timestamp() - self._load_written_s.get(source, 0.0) >= LOAD_S:
                await self._write_load(source, new, now)

    async def _write_load(self, source: str, new: tuple[LinkStatus, ...], now: datetime) -> None:
        try:
            profile = NodeProfile.model_validate(await self.cluster.get(NODE_PROFILES, source))
            entries = [row.wire() for row in links_under_load.merged(profile, new, now)]
            body = {"metadata": {"name": source}, "status": {"links": entries}}
            await self.cluster.apply(
                NODE_PROFILES, source, None, body, field_manager=LOAD_MANAGER, subresource="status"
            )
        except NotFound:  # the node went away meanwhile
            return
        self._load_written_s[source] = now.timestamp()

    async def _create_missing(self, seen: Snapshot) -> None:
        existing = seen.profiles.keys() | seen.unreadable.keys()
        missing = [node.body for name, node in seen.nodes.items() if name not in existing and not _leaving(node.body)]

        async def create(node: Object) -> None:
            try:
                self.wrote(await self.cluster.create(NODE_PROFILES, profile_for(node)))
            except AlreadyExists:  # made since the list
                return

        await _all(create(node) for node in missing)

    async def _order(self, profiles: Mapping[str, NodeProfile], decision: Decision) -> None:
        changed = {
            name: orders for name, orders in decision.measurements.items() if orders != profiles[name].spec.measurements
        }

        async def write(name: str) -> None:
            orders = changed[name]
            highest = max([profiles[name].spec.measurement_id, *(order.id for order in orders)])
            spec: dict[str, Any] = {"measurementId": highest, "measurements": [order.wire() for order in orders]}
            try:
                self.wrote(await self.cluster.patch(NODE_PROFILES, name, None, {"spec": spec}))
            except NotFound:  # the node went away meanwhile
                return

        await _all(write(name) for name in changed)

    def _remember(self, decision: Decision) -> None:
        self.budget = replace(self.budget, history=decision.history)
        for attempt in decision.attempts:
            log.info("bandwidth test %d: %s -> %s", attempt.id, attempt.source, attempt.target)

    async def _tell(self, rejections: Sequence[Rejection], profiles: Mapping[str, NodeProfile], now: datetime) -> None:
        for rejection in self._said.new(rejections, now):
            log.warning("%s -> %s: %s: %s", rejection.source, rejection.target, rejection.reason, rejection.message)
            if rejection.source in profiles and self.namespace in (None, EVENTS_NAMESPACE):
                try:
                    await self.cluster.create(EVENTS, event(rejection, profiles[rejection.source], now))
                except ClusterError as error:  # an event is a courtesy; the metrics say it too
                    log.info("no event: %s", error)


def _decide(
    known: ProbeNodes, seen: Snapshot, jobs: Iterable[Collection[str]], budget: Budget, now: datetime
) -> tuple[list[ProbeNode], Mapping[str, tuple[str, str]], Accepted, Decision]:
    """In a thread: with thousands of nodes it takes longer than the event loop may stand still.

    A node that only says that it is in a region does not stand for it: what it measures would steer everybody's jobs.
    """
    nodes = known.of(seen)
    doubted = untrusted({node.name: node.region for node in nodes}, seen.declared)
    nodes = [replace(node, trusted=False) if node.name in doubted else node for node in nodes]
    accepted = accept(seen.profiles.values(), seen.nodes.keys(), now)
    return nodes, doubted, accepted, decide(now, nodes, seen.profiles, jobs, budget)


def probe_node(node: Object, agents: frozenset[str] = frozenset()) -> ProbeNode:
    """A Node object as probing sees it, with the addresses of its agent's pods."""
    status = node.get("status") or {}
    own = {row["address"] for row in status.get("addresses") or () if row["type"] == "InternalIP"}
    return ProbeNode(
        name=node["metadata"]["name"],
        region=region(node),
        ready=is_ready(node) and not _leaving(node),
        addresses=agents | own,
    )


def profile_for(node: Object) -> Object:
    """The empty NodeProfile of a node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PROFILE_KIND,
        "metadata": {
            "name": node["metadata"]["name"],
            "labels": {names.LABEL_MANAGED_BY: names.MANAGER},
            "ownerReferences": [owner],
        },
        "spec": {},
    }


def _leaving(node: Object) -> bool:
    return "deletionTimestamp" in node["metadata"]


async def _all(writes: Iterable[Awaitable[None]]) -> None:
    """Carry out writes, at most `NUM_WRITES` at once; the first error after all have ended."""
    places = asyncio.Semaphore(NUM_WRITES)

    async def one(write: Awaitable[None]) -> None:
        async with places:
            await write

    results = await asyncio.gather(*(one(write) for write in writes), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
