"""The Lease that says which operator acts. Whoever cannot renew it in time must stop, because another one will begin.

Times of other holders are not compared with this machine's clock: a lease is free when it did not change for its
duration, as this process saw it (the way of client-go's leader election).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any

from hulk_operator import names
from hulk_operator.cluster.errors import AlreadyExists, ClusterError, Conflict, NotFound
from hulk_operator.cluster.protocol import ORIGIN, Cluster, Object
from hulk_operator.cluster.resources import LEASES

logger = logging.getLogger(__name__)


class LeaseLost(Exception):  # noqa: N818 -- a fact, as the errors beside it
    """The lease was not renewed in time, or another operator took it."""


@dataclass(slots=True)
class Lease:
    """One named lease and its would-be holder. `duration_s` is what others wait before they take it over."""

    cluster: Cluster
    namespace: str
    identity: str
    clock: Callable[[], datetime]
    duration_s: int = 10
    held: bool = False
    _version: str = ""
    _renewed_at: float = 0.0

    @property
    def valid(self) -> bool:
        """Whether nobody else can hold the lease now, also when this process slept for a while."""
        return self.held and monotonic() - self._renewed_at < self.duration_s

    async def acquire(self) -> None:
        """Wait until the lease is held."""
        seen_version, seen_at = "", monotonic()
        while True:
            try:
                found = await self._read()
                spec = found.get("spec") or {}
                version = found["metadata"]["resourceVersion"]
                if version != seen_version:
                    seen_version, seen_at = version, monotonic()
                holder = spec.get("holderIdentity") or ""
                wait_s = float(spec.get("leaseDurationSeconds") or self.duration_s)
                if holder in ("", self.identity) or monotonic() - seen_at >= wait_s:
                    await self._write(version, self.identity, int(spec.get("leaseTransitions") or 0) + 1)
                    self.held = True
                    logger.info("holds the lease %s/%s", self.namespace, names.LEASE)
                    return
                logger.debug("waits for the lease of %s", holder)
            except ClusterError as error:
                logger.warning("lease %s/%s: %s", self.namespace, names.LEASE, error.message)
            await asyncio.sleep(self.duration_s / 10)

    async def hold(self) -> None:
        """Renew until cancelled; `LeaseLost` when that was not possible for two thirds of the duration."""
        try:
            await self._renew()
        except LeaseLost:
            self.held = False
            raise

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.duration_s / 6)
            limit_s = self._renewed_at + self.duration_s * 2 / 3 - monotonic()
            try:
                async with asyncio.timeout(max(limit_s, 0.1)):
                    await self._write(self._version, self.identity)
            except (Conflict, NotFound) as error:
                raise LeaseLost(f"lease {self.namespace}/{names.LEASE} was taken over: {error.message}") from error
            except (ClusterError, TimeoutError) as error:
                logger.warning("lease %s/%s is not renewed: %s", self.namespace, names.LEASE, error)
                if monotonic() - self._renewed_at >= self.duration_s * 2 / 3:
                    raise LeaseLost(f"lease {self.namespace}/{names.LEASE} could not be renewed") from error

    async def release(self) -> None:
        """Let the next operator begin at once."""
        self.held = False
        try:
            await self._write(self._version, "")
        except ClusterError as error:
            logger.warning("lease %s/%s is not released: %s", self.namespace, names.LEASE, error.message)

    async def _read(self) -> Object:
        try:
            return await self.cluster.get(LEASES, names.LEASE, self.namespace)
        except NotFound:
            metadata = {"name": names.LEASE, "namespace": self.namespace}
            body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": {}}
            try:
                return await self.cluster.create(LEASES, body)
            except AlreadyExists:
                return await self.cluster.get(LEASES, names.LEASE, self.namespace)

    async def _write(self, version: str, holder: str, transitions: int | None = None) -> None:
        now = self.clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: dict[str, Any] = {"holderIdentity": holder, "leaseDurationSeconds": self.duration_s, "renewTime": now}
        if transitions is not None:
            spec |= {"acquireTime": now, "leaseTransitions": transitions}
        token = ORIGIN.set("lease")
        began_at = monotonic()  # others count from the write, which is later
        try:
            written = await self.cluster.patch(
                LEASES, names.LEASE, self.namespace, {"spec": spec}, resource_version=version
            )
        finally:
            ORIGIN.reset(token)
        self._version, self._renewed_at = written["metadata"]["resourceVersion"], began_at
