"""Hold job pods to their node's speed: machines of a lab really differ, and timings repeat.

A job pod is one that asks for accelerators. It gets its share of its node's speed: of 0.2 cores on a node with two
accelerators, a pod with one gets 0.1. The quota's period is 10 ms and it is on the pod's group only: agents and system
pods are outside. The kubelet makes a pod's group before its first container, and this loop sees it within a tenth of a
second.
"""

from __future__ import annotations

import contextlib
import http.client
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from hulk_lab import cgroups, up
from hulk_lab.api import Api, ApiError
from hulk_lab.cgroups import Quota
from hulk_lab.nodeconfig import RESOURCE
from hulk_lab.wan.addresses import NodeNetwork

_LOOK_EVERY_S = 0.1


@dataclass(slots=True)
class Governor:
    """The quotas of one lab's pods; what a pod asks for never changes, so each is looked up once."""

    lab: str
    nodes: tuple[NodeNetwork, ...]
    api: Api
    quotas: dict[str, Quota | None] = field(default_factory=dict)

    def look(self) -> None:
        """One round over all nodes."""
        present: set[str] = set()
        for node in self.nodes:
            groups = cgroups.pod_groups(self.lab, node.name)
            present |= groups.keys()
            if groups.keys() - self.quotas.keys():
                self._learn(node)
            for uid, group in groups.items():
                quota = self.quotas.get(uid)
                if quota is not None:
                    with contextlib.suppress(OSError):  # the pod has just gone
                        if cgroups.limit_cpu(group, quota):
                            print(f"{node.name} pod {uid}: {quota.quota_us} of every {quota.period_us} us", flush=True)
        self.quotas = {uid: quota for uid, quota in self.quotas.items() if uid in present}

    def _learn(self, node: NodeNetwork) -> None:
        pods = self.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node.name}")["items"]
        for pod in pods:
            self.quotas[pod["metadata"]["uid"]] = quota_of(num_accelerators(pod["spec"]), node)
        for uid in cgroups.pod_groups(self.lab, node.name):  # deleted already: nothing to learn any more
            self.quotas.setdefault(uid, None)


def num_accelerators(spec: dict[str, Any]) -> int:
    """What all containers of a pod ask for together."""
    limits = (container.get("resources", {}).get("limits", {}) for container in spec["containers"])
    return sum(int(limit.get(RESOURCE, 0)) for limit in limits)


def quota_of(num_accelerators: int, node: NodeNetwork) -> Quota | None:
    """A pod's share of its node's speed; None for a pod without accelerators."""
    if num_accelerators == 0:
        return None
    return Quota.of(node.speed * num_accelerators / max(node.num_accelerators, num_accelerators))


def main() -> None:
    """Run until the lab stops this process."""
    lab = up.find(sys.argv[1])
    governor = Governor(lab.spec.name, lab.net.nodes, lab.control.api())
    while True:
        try:
            governor.look()
        except (OSError, http.client.HTTPException, ApiError) as error:  # the API server restarts: look again
            print(f"API server: {error}", flush=True)
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    main()
