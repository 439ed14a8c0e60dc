"""Pods that are no workers, trimmed to what they take of their node and, of Hulk's agents, where they answer."""

from collections.abc import Callable
from dataclasses import dataclass

from hulk_operator import names
from hulk_operator.cluster import Object
from hulk_operator.inputs.pod_size import Amounts, requests
from hulk_operator.pods import Placeholder, WorkerPod

_AGENT_LABELS = dict(term.split("=") for term in names.AGENT_SELECTOR.split(","))


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """What a pod takes of its node, nothing before it is bound; `addresses`: its own, where it is an agent's."""

    node: str
    amounts: Amounts
    addresses: frozenset[str] = frozenset()

    @property
    def has_devices(self) -> bool:
        """Whether it takes anything that a device plugin counts."""
        return any("/" in resource for resource in self.amounts)


Pod = WorkerPod | Placeholder | ForeignPod


class ForeignPods:
    """Sums of what they take, by node. Each sum is replaced as a whole, so that who has read it may keep it."""

    def __init__(self, freed: Callable[[], None]) -> None:
        """`freed`: told when a pod has given devices back."""
        self._freed = freed
        self.taken: dict[str, Amounts] = {}
        self.agents: dict[str, frozenset[str]] = {}

    def told(self, _: str, was: Pod | None, now: Pod | None) -> None:
        """One pod, as it was and as it is."""
        if was == now:
            return
        if isinstance(was, ForeignPod):
            self._add(was, -1)
            self._forget_agent(was)
        if isinstance(now, ForeignPod):
            self._add(now, 1)
            if now.addresses:
                self.agents[now.node] = self.agents.get(now.node, frozenset()) | now.addresses
        elif isinstance(was, ForeignPod) and was.has_devices:
            self._freed()

    def _add(self, pod: ForeignPod, sign: int) -> None:
        if not pod.amounts:
            return
        left = dict(self.taken.get(pod.node, {}))
        for resource, value in pod.amounts.items():
            left[resource] = left.get(resource, 0) + sign * value
        left = {resource: value for resource, value in left.items() if value}
        if left:
            self.taken[pod.node] = left
        else:
            self.taken.pop(pod.node, None)

    def _forget_agent(self, pod: ForeignPod) -> None:
        if pod.addresses:
            self.agents[pod.node] = self.agents[pod.node] - pod.addresses


def foreign_pod(pod: Object, agents_in: str) -> ForeignPod:
    """A pod that is no worker. Only in the namespace `agents_in` may a pod be an agent: labels are anybody's."""
    node = pod["spec"].get("nodeName") or ""
    amounts = requests(pod["spec"]) if node and not _has_ended(pod) else {}
    return ForeignPod(node, amounts, _addresses(pod) if _is_agent(pod, agents_in) else frozenset())


def _has_ended(pod: Object) -> bool:
    """Not so one that a finalizer keeps: its owner may use its devices still."""
    is_kept = "deletionTimestamp" in pod["metadata"] and bool(pod["metadata"].get("finalizers"))
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") and not is_kept


def _is_agent(pod: Object, agents_in: str) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return pod["metadata"].get("namespace") == agents_in and _AGENT_LABELS.items() <= labels.items()


def _addresses(pod: Object) -> frozenset[str]:
    status = pod.get("status") or {}
    own = {status.get("podIP"), *(row.get("ip") for row in status.get("podIPs") or ())}
    return frozenset(address for address in own if address)
