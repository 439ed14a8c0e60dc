"""Refused links -> Kubernetes Events on the NodeProfile, each at most once an hour.

The API server admits events about cluster-scoped objects in one namespace only. An operator for a single namespace has
no rights there and writes none; its log and `hulk_links_refused` say the same.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from hulk_operator import names
from hulk_operator.api import NodeProfile, format_time
from hulk_operator.cluster import Object
from hulk_operator.probing.link_validation import Rejection

REPEAT_S: Final = 3600.0
MAX_PER_PASS: Final = 20
NAMESPACE: Final = "default"  # where Kubernetes keeps the events of cluster-scoped objects


@dataclass(slots=True)
class Said:
    """What was said lately; forgets what may be said again."""

    _times: dict[Rejection, float] = field(default_factory=dict)

    def new(self, rejections: Iterable[Rejection], now: datetime) -> tuple[Rejection, ...]:
        """Those not said within the last hour, at most `MAX_PER_PASS`; they count as said from now on."""
        now_s = now.timestamp()
        self._times = {said: time_s for said, time_s in self._times.items() if now_s - time_s < REPEAT_S}
        fresh = [rejection for rejection in dict.fromkeys(rejections) if rejection not in self._times][:MAX_PER_PASS]
        self._times |= dict.fromkeys(fresh, now_s)
        return tuple(fresh)


def event(rejection: Rejection, profile: NodeProfile, now: datetime) -> Object:
    """The Event about one refused link."""
    time = format_time(now.replace(microsecond=0))
    unique = f"{rejection.source}|{rejection.target}|{rejection.reason}|{time}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"hulk-link-{hashlib.blake2b(unique.encode(), digest_size=10).hexdigest()}",
            "namespace": NAMESPACE,
        },
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.PROFILE_KIND,
            "name": profile.metadata.name,
            "uid": profile.metadata.uid,
        },
        "type": "Warning",
        "reason": rejection.reason,
        "message": f"{_what(rejection)}: {rejection.message}",
        "source": {"component": names.FIELD_MANAGER},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }


def _what(rejection: Rejection) -> str:
    """A link, or where it has no target, the node itself."""
    if not rejection.target:
        return f"node {rejection.source} gets no new pods"
    return f"link {rejection.source} -> {rejection.target} is ignored"
