"""Give a lab back as it was after `up`, in seconds: for tests that share one."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from hulk_lab import addons, node
from hulk_lab.api import Api
from hulk_lab.processes import wait_until
from hulk_lab.up import Lab
from hulk_lab.wan import relay

_KEPT = {"default", "kube-system", "kube-public", "kube-node-lease", addons.STORE_NAMESPACE}
_TIMEOUT_S = 120


def reset(lab: Lab, keep: Collection[str] = ()) -> None:
    """Heal every link, start dead nodes, clear cordons and taints, delete users' namespaces and pods in `default`.

    keep: namespaces of users that stay, for example of what was installed once for many tests.
    """
    for link in lab.spec.links:
        relay.heal(lab.net, link.source, link.target)
    if lab.nodes:
        with ThreadPoolExecutor(len(lab.nodes)) as pool:
            list(pool.map(node.start, lab.nodes))
    api = lab.control.api()
    for place in lab.nodes:
        api.patch(place.path, {"spec": {"unschedulable": None, "taints": None}})
    api.delete("/api/v1/namespaces/default/pods")
    for name in _foreign(api, keep):
        api.delete(f"/api/v1/namespaces/{name}")
    wait_until(
        lambda: not _foreign(api, keep), "deletion of the users' namespaces", timeout_s=_TIMEOUT_S, interval_s=0.2
    )
    path = "/api/v1/namespaces/default/pods"
    wait_until(lambda: not api.get(path)["items"], "deletion of pods", timeout_s=_TIMEOUT_S, interval_s=0.2)


def _foreign(api: Api, keep: Collection[str]) -> list[str]:
    names = (item["metadata"]["name"] for item in api.get("/api/v1/namespaces")["items"])
    return [name for name in names if name not in _KEPT and name not in keep]
