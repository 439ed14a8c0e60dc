"""Kopf's watches of jobs and sweeps -> the store and the work queue. No finalizers, no annotations: only `on.event`.

What else is watched is followed by informers (`watched`), which are cheaper. Kopf lists and watches, and reconnects;
what it delivers is taken over as it is. It starts when the CRDs are served.

Two of its habits are changed. By itself it gives a listing up after a minute of errors, and then all watches; here it
tries for ever. What it still takes for fatal (such as CRDs that are gone) stops its other watches only half: they may
hang for ten minutes, in which the operator acts on an old picture; here the process is killed after `MAX_END_S`, and
Kubernetes starts it again.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import kopf

from hulk_operator import names
from hulk_operator.cluster import Object, object_key
from hulk_operator.sweeps.owned_objects import sweep_key_of
from hulk_operator.watched import Store

MAX_PAUSE_S: Final = 10.0
MAX_END_S: Final = 20.0  # from the first watch that failed, or a signal, to the end of the process
_DELETED: Final = "DELETED"


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds between the tries of one request: doubled each time up to a bound, without an end.

    >>> from itertools import islice
    >>> list(islice(Pauses(1.0), 6))
    [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    """

    first_s: float

    def __iter__(self) -> Iterator[float]:
        pause_s = self.first_s
        while True:
            yield pause_s
            pause_s = min(MAX_PAUSE_S, 2 * pause_s)


@dataclass(slots=True)
class Watches:
    """Takes events over.

    `add` asks for a pass over a job, `add_sweep` over a sweep, `changed` tells the planning pass that more may fit.
    """

    store: Store
    add: Callable[[str], None]
    changed: Callable[[], None]
    add_sweep: Callable[[str], None] = lambda _: None

    def on_job(self, kind: str | None, body: Object) -> None:
        """A HulkJob was added, changed or deleted."""
        if kind == _DELETED:
            self.store.jobs.delete(body)
            self.changed()
        else:
            self.store.jobs.put(body)
        self.add(object_key(body))
        if sweep := sweep_key_of(body):
            self.add_sweep(sweep)

    def on_sweep(self, kind: str | None, body: Object) -> None:
        """A HulkSweep was added, changed or deleted."""
        if kind == _DELETED:
            self.store.sweeps.delete(body)
        else:
            self.store.sweeps.put(body)
        self.add_sweep(object_key(body))

    def registry(self) -> kopf.OperatorRegistry:
        """Kopf's handlers for these events."""
        registry = kopf.OperatorRegistry()

        async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
            return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

        kopf.on.login(registry=registry)(login)
        self._watch(registry, (names.GROUP, names.VERSION, names.JOB_PLURAL), self.on_job)
        self._watch(registry, (names.GROUP, names.VERSION, names.SWEEP_PLURAL), self.on_sweep)
        return registry

    def _watch(
        self,
        registry: kopf.OperatorRegistry,
        resource: tuple[str, str, str],
        take: Callable[[str | None, Object], None],
    ) -> None:
        async def handler(event: Mapping[str, Any], **_: Any) -> None:
            take(event["type"], event["object"])

        kopf.on.event(*resource, registry=registry, id=f"hulk-{resource[2]}")(handler)


def settings(first_pause_s: float = 1.0) -> kopf.OperatorSettings:
    """Kopf as a watcher and nothing else."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True  # the CRDs are there when it starts, and it lists no namespaces
    chosen.networking.error_backoffs = Pauses(first_pause_s)
    chosen.process.ultimate_exiting_timeout = MAX_END_S
    chosen.queueing.idle_timeout = 1.0  # a worker task per object ends soon after its last event
    return chosen
