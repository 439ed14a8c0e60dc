"""Carries out what a pass asks of Kueue's objects. Kueue writes them as well: who comes too late looks again."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from hulk_operator.api import HulkJob
from hulk_operator.cluster import (
    PRIORITY_CLASSES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    AlreadyExists,
    ApiResource,
    Cluster,
    Conflict,
    NotFound,
    Object,
    Refused,
)
from hulk_operator.kueue import WorkloadState
from hulk_operator.pods import reason_of
from hulk_operator.reconcile.types import Dequeue, Enqueue, Memory, TellKueue, Unqueued, View

logger = logging.getLogger(__name__)

_CLASSES: Final = {classes.kind: classes for classes in (PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES)}
_OPTIONAL: Final = ("priorityClassRef", "priority", "maximumExecutionTimeSeconds")


class KueueActions:
    """`seen` is told of every Workload that was written, `check_lease` raises where nothing may be changed any more."""

    def __init__(
        self,
        cluster: Cluster,
        seen: Callable[[ApiResource, Object], None],
        remember: Callable[[HulkJob, Callable[[Memory], Memory]], None],
        check_lease: Callable[[], None],
    ) -> None:
        self._cluster, self._seen, self._remember, self._check_lease = cluster, seen, remember, check_lease

    async def enqueue(self, view: View, action: Enqueue) -> None:
        """Make or change a Workload, with its class's number; what is refused is said of the job."""
        unqueued = None
        try:
            spec = {**action.body["spec"], **await self._priority(action.body["spec"].get("priorityClassRef"))}
            if action.known is None:
                await self._create({**action.body, "spec": spec})
            else:
                await self._change(action.body, spec, action.known)
        except (NotFound, Refused) as error:
            reason = "PriorityClassNotFound" if isinstance(error, NotFound) else reason_of(error.reason, "Refused")
            message = f"the job is in no queue of Kueue: {error.message}"
            unqueued = Unqueued(view.job.metadata.generation, view.now, reason, message)
        self._remember(view.job, lambda memory: replace(memory, unqueued=unqueued))

    async def tell(self, _: View, action: TellKueue) -> None:
        """Patch a Workload's status."""
        await self._patch(action.state, action.change, subresource="status")

    async def dequeue(self, view: View, action: Dequeue) -> None:
        """Delete a Workload."""
        self._check_lease()
        with suppress(NotFound, Conflict):
            namespace = view.job.metadata.namespace
            await self._cluster.delete(WORKLOADS, action.state.name, namespace, uid=action.state.uid)

    async def _create(self, body: Object) -> None:
        """One that is there already was made by an earlier pass: its name is the job's uid's."""
        with suppress(AlreadyExists):
            self._seen(WORKLOADS, await self._cluster.create(WORKLOADS, body))

    async def _change(self, body: Object, spec: Object, known: WorkloadState) -> None:
        annotations = {"annotations": body["metadata"]["annotations"]}
        await self._patch(known, {"metadata": annotations, "spec": {**dict.fromkeys(_OPTIONAL), **spec}})

    async def _patch(self, state: WorkloadState, change: Mapping[str, Any], subresource: str | None = None) -> None:
        self._check_lease()
        try:
            written = await self._cluster.patch(
                WORKLOADS, state.name, state.namespace, change, subresource=subresource, resource_version=state.version
            )
        except (Conflict, NotFound) as error:
            logger.debug("Workload %s/%s: %s", state.namespace, state.name, error.message)
            return
        self._seen(WORKLOADS, written)

    async def _priority(self, named: Mapping[str, str] | None) -> Mapping[str, int]:
        if named is None:
            return {}
        return {"priority": int((await self._cluster.get(_CLASSES[named["kind"]], named["name"]))["value"])}
