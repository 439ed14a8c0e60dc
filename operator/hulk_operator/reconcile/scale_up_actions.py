"""Asks for nodes, and ends that. What is refused is said of the job and tried again; it holds up no pass."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import (
    POD_TEMPLATES,
    PODS,
    PROVISIONING_REQUESTS,
    AlreadyExists,
    ApiResource,
    Cluster,
    Conflict,
    Forbidden,
    NotFound,
    Object,
    Refused,
)
from hulk_operator.pods import reason_of
from hulk_operator.reconcile.attempt_state import PLACEHOLDERS
from hulk_operator.reconcile.types import (
    Create,
    CreatePlaceholders,
    EndScaleUp,
    Memory,
    NodeRequest,
    RequestNodes,
    View,
)

UNAVAILABLE: Final = "ScaleUpUnavailable"
REQUESTED: Final = "ProvisioningRequested"
_OVER: Final = {
    "Failed": "ProvisioningFailed",
    "BookingExpired": "BookingExpired",
    "CapacityRevoked": "CapacityRevoked",
}
"""Conditions of a ProvisioningRequest after which nothing more comes of it, and the reason of the job's condition."""
_NO_KIND: Final = (
    f"the cluster does not serve {PROVISIONING_REQUESTS.api_version}: install the ProvisioningRequest definition of "
    "Cluster Autoscaler, or set placement.allowScaleUp: placeholders"
)
_NO_RIGHTS: Final = (
    "the operator may not make ProvisioningRequests (helm upgrade --set scaleUp.provisioningRequests=true)"
)


class ScaleUpActions:
    """`create` makes objects as the executor does, `check_lease` raises where nothing may be deleted any more."""

    def __init__(
        self,
        cluster: Cluster,
        create: Callable[[View, Create], Awaitable[None]],
        remember: Callable[[HulkJob, Callable[[Memory], Memory]], None],
        check_lease: Callable[[], None],
    ) -> None:
        self._cluster, self._make, self._remember, self._check_lease = cluster, create, remember, check_lease

    async def create(self, view: View, action: CreatePlaceholders) -> None:
        """Make placeholder pods."""
        try:
            await self._make(view, Create(PODS, action.bodies))
        except Refused as error:
            message = f"no placeholder pods: {error.message}"
            self._learn(view, "refused", reason_of(error.reason, type(error).__name__), message)
        else:
            self._learn(view, "asked", PLACEHOLDERS)

    async def request(self, view: View, action: RequestNodes) -> None:
        """Make a ProvisioningRequest, or read what became of it."""
        name = action.request["metadata"]["name"]
        try:
            found = await self._request(name, view.job.metadata.namespace, action)
        except NotFound:
            await self._delete(POD_TEMPLATES, name, view)
            self._learn(view, "refused", UNAVAILABLE, _NO_KIND)
        except Forbidden as error:
            self._learn(view, "refused", UNAVAILABLE, f"{_NO_RIGHTS}: {error.message}")
        except Refused as error:
            await self._delete(POD_TEMPLATES, name, view)
            self._learn(view, "refused", reason_of(error.reason, "Refused"), error.message)
        else:
            self._read(view, name, found)

    async def end(self, view: View, action: EndScaleUp) -> None:
        """Delete all of it. What was refused stays known, so that it is not tried again at once."""
        meta = view.job.metadata
        self._check_lease()
        if view.placeholders:
            labels = f"{names.LABEL_JOB}={meta.name},{names.LABEL_MANAGED_BY}={names.MANAGER},{names.LABEL_PLACEHOLDER}"
            await self._cluster.delete_all(PODS, meta.namespace or "", labels=labels)
        if action.request:
            for resource in (PROVISIONING_REQUESTS, POD_TEMPLATES):
                await self._delete(resource, action.request, view)
        known = view.memory.node_request
        if known is None or known.state == "asked":
            self._remember(view.job, lambda memory: replace(memory, node_request=None))

    async def _request(self, name: str, namespace: str | None, action: RequestNodes) -> Object:
        with suppress(NotFound):
            return await self._cluster.get(PROVISIONING_REQUESTS, name, namespace)
        with suppress(AlreadyExists):
            await self._cluster.create(POD_TEMPLATES, action.template)
        return await self._cluster.create(PROVISIONING_REQUESTS, action.request)

    async def _delete(self, resource: ApiResource, name: str, view: View) -> None:
        self._check_lease()
        with suppress(NotFound, Conflict, Forbidden):  # without the right to delete none was made
            await self._cluster.delete(resource, name, view.job.metadata.namespace)

    def _read(self, view: View, name: str, found: Object) -> None:
        conditions = (found.get("status") or {}).get("conditions") or ()
        said = {one["type"]: one for one in conditions if one["status"] == "True"}
        for kind, reason in _OVER.items():
            if kind in said:
                return self._learn(view, "over", reason, _words(name, said[kind]))
        for kind in ("Provisioned", "Accepted"):
            if kind in said:
                return self._learn(view, "asked", kind, _words(name, said[kind]))
        return self._learn(view, "asked", REQUESTED, f"ProvisioningRequest {name} waits for Cluster Autoscaler")

    def _learn(self, view: View, state: Any, reason: str, message: str = "") -> None:
        known = NodeRequest(view.job.metadata.generation, view.now, state, reason, message)
        self._remember(view.job, lambda memory: replace(memory, node_request=known))


def _words(name: str, said: Mapping[str, Any]) -> str:
    return f"ProvisioningRequest {name} is {said['type']}: {said.get('message') or said.get('reason') or ''}"
