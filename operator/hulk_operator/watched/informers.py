"""Which collections are followed, and where each of them goes; or all of them read once, where nothing is followed.

Pods are told in two streams that share no pod: those with the label of workers, ended ones as well, and all others that
live. Where the operator may see the pods of one namespace only, the agents' own namespace is a third.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from hulk_operator import background, names
from hulk_operator.cluster import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    HULK_JOBS,
    HULK_TOPOLOGIES,
    NODE_PROFILES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_FLAVORS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    WORKLOADS,
    ApiResource,
    Cluster,
    ClusterError,
    Forbidden,
    Informer,
    NotFound,
    Sink,
)
from hulk_operator.watched import garbage
from hulk_operator.watched.kueue_objects import HULKS_WORKLOADS, NOT_READ
from hulk_operator.watched.snapshot import Snapshot
from hulk_operator.watched.store import Store

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
CONNECT_S: Final = 60.0  # twice an informer's longest pause
KUEUE_RETRY_S: Final = 10.0
_NO_KUEUE: Final = (
    f"the cluster does not serve {names.KUEUE_GROUP}/{names.KUEUE_VERSION}: install Kueue 0.15 or newer, or take the "
    f"label {names.LABEL_QUEUE} off the job"
)
_NO_RIGHTS: Final = "the operator may not read Kueue's objects (helm upgrade --set kueue.enabled=true)"
LIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"
_NONE: Final = "metadata.name=none"  # asks for the right to list, not for pods
NO_WORKERS: Final = f"!{names.LABEL_JOB}"


@dataclass(frozen=True, slots=True)
class Scope:
    """What the operator may see: the jobs of one namespace or of all (None), and where Hulk's agents are."""

    namespace: str | None = None
    agents_in: str = names.DEFAULT_NAMESPACE


class Informers:
    """All of them. `heard` is told the name of the one that the API server has said something of."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        scope: Scope | None = None,
        heard: Callable[[str], None] = lambda of: None,
    ) -> None:
        self._cluster, self._store, self._heard = cluster, store, heard
        self._scope = scope or Scope()
        self._synced = asyncio.Event()
        self._informers: Sequence[Informer] = ()

    @property
    def synced(self) -> bool:
        """Whether everything was read once."""
        return self._synced.is_set()

    async def seen(self) -> Snapshot:
        """The cluster as it is now; waits until everything was read once."""
        await self._synced.wait()
        return self._store.snapshot()

    async def connected(self) -> None:
        """Wait until all of it is followed: what was read before the server was away may never have been.

        A kind that the server does not serve any more is not waited for beyond `CONNECT_S`.
        """
        await self._synced.wait()
        try:
            async with asyncio.timeout(CONNECT_S):
                for one in self._informers:
                    await one.connected.wait()
        except TimeoutError:
            log.warning("goes on without news of some kinds")

    async def run(self) -> None:
        """Follow everything until cancelled."""
        found = self._informers = await self._found()
        async with background.running() as tasks:
            for one in found:
                tasks.start("informer", one.run)
            await asyncio.gather(*(one.synced.wait() for one in found))
            tasks.start("garbage", garbage.lay_aside)
            self._synced.set()
            await self._follow_kueue(tasks)

    async def _follow_kueue(self, tasks: background.Tasks) -> None:
        """Kueue's objects as well, once a job names a queue and they can be read."""
        kueue, cluster = self._store.kueue, self._cluster
        await kueue.wanted.wait()
        heard = [partial(self._heard, kind.plural) for kind in (WORKLOADS, RESOURCE_FLAVORS)]
        workloads = Informer(cluster, WORKLOADS, kueue.workloads, heard[0], self._scope.namespace, HULKS_WORKLOADS)
        followed = (workloads, Informer(cluster, RESOURCE_FLAVORS, kueue.flavors, heard[1]))
        while True:
            try:
                await asyncio.gather(*(one.list() for one in followed))
            except NotFound:
                kueue.lack = _NO_KUEUE
            except ClusterError as error:
                kueue.lack = f"{_NO_RIGHTS}: {error.message}" if isinstance(error, Forbidden) else error.message
            else:
                break
            self._store.look_at_queued_jobs()
            await asyncio.sleep(KUEUE_RETRY_S)
        self._informers = (*self._informers, *followed)
        for one in followed:
            tasks.start("informer", one.run)
            await one.connected.wait()
        while True:
            self._tell_whether_followed(followed)
            await asyncio.sleep(RETRY_S)

    def _tell_whether_followed(self, kueues: Sequence[Informer]) -> None:
        """An admission may be gone that was read before a watch broke: nothing is known until it is followed again."""
        lack = "" if all(one.connected.is_set() for one in kueues) else NOT_READ
        if self._store.kueue.lack != lack:
            self._store.kueue.lack = lack
            self._store.look_at_queued_jobs()

    async def _found(self) -> Sequence[Informer]:
        while True:
            try:
                return await informers(self._cluster, self._store, self._scope, self._heard)
            except ClusterError as error:
                log.warning("the cluster is not readable: %s", error.message)
            await asyncio.sleep(RETRY_S)


async def informers(
    cluster: Cluster,
    store: Store,
    scope: Scope | None = None,
    heard: Callable[[str], None] = lambda of: None,
    unseen: Callable[[Forbidden], None] | None = None,
) -> Sequence[Informer]:
    """One for each collection.

    `unseen`: told when pods may not be listed, which then count as none; without it that is `Forbidden`, as nothing
    safe can be planned.
    """
    of = scope or Scope()
    kinds = (
        ("nodes", NODES, store.nodes),
        ("profiles", NODE_PROFILES, store.profiles),
        ("topologies", HULK_TOPOLOGIES, store.topologies),
    )
    found = [Informer(cluster, kind, sink, partial(heard, name)) for name, kind, sink in kinds]
    devices = store.devices
    streams: tuple[tuple[ApiResource, Sink, str | None], ...] = (
        (DEVICE_CLASSES, devices.classes, None),
        (RESOURCE_SLICES, devices.slices, None),
        (RESOURCE_CLAIMS, devices.claims, of.namespace),
        (CLAIM_TEMPLATES, devices.templates, of.namespace),
        (PRIORITY_CLASSES, store.classes, None),
        (RESOURCE_QUOTAS, store.quotas, of.namespace),
    )
    for kind, stream, namespace in streams:
        if await _may_list(cluster, kind, namespace):
            found.append(Informer(cluster, kind, stream, partial(heard, kind.plural), namespace))
            store.sees_classes |= kind is PRIORITY_CLASSES
    for name, sink, namespace, labels, fields in await _pod_streams(cluster, store, of, unseen):
        found.append(Informer(cluster, PODS, sink, partial(heard, name), namespace, labels, fields))
    return found


async def read(
    cluster: Cluster, scope: Scope | None = None, unseen: Callable[[Forbidden], None] | None = None
) -> Snapshot:
    """Everything once, for who follows nothing."""
    store, namespace = Store(), scope.namespace if scope else None
    found = [*await informers(cluster, store, scope, unseen=unseen)]
    if await _may_list(cluster, HULK_JOBS, namespace):  # whose placeholders give way
        found.append(Informer(cluster, HULK_JOBS, store.jobs, namespace=namespace))
    await asyncio.gather(*(one.list() for one in found))
    return store.snapshot()


async def _may_list(cluster: Cluster, kind: ApiResource, namespace: str | None) -> bool:
    """Whether the cluster has a kind, and shows it: older ones do not, nor need everyone see it."""
    try:
        await cluster.list(kind, namespace, fields=_NONE)
    except (NotFound, Forbidden):
        return False
    return True


async def _pod_streams(
    cluster: Cluster, store: Store, of: Scope, unseen: Callable[[Forbidden], None] | None
) -> list[tuple[str, Sink, str | None, str, str]]:
    seen_in = None
    try:
        await cluster.list(PODS, fields=_NONE)
    except Forbidden as error:
        if of.namespace is None:
            if unseen is None:
                raise
            unseen(error)
            return []
        seen_in = of.namespace
    streams: list[tuple[str, Sink, str | None, str, str]] = [
        ("pods", store.pods, of.namespace, names.LABEL_JOB, ""),
        ("other pods", store.others, seen_in, NO_WORKERS, LIVE),
    ]
    if seen_in not in (None, of.agents_in):
        streams.append(("agents", store.agents, of.agents_in, names.AGENT_SELECTOR, ""))
    return streams
