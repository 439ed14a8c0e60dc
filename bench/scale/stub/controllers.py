"""The stub's scheduler, kubelets and garbage collector.

A pod is bound to the node that its required node affinity names by `metadata.name`, as Hulk's pods do; one that names
none waits for ever. Whether it fits is not asked: whoever asks the stub looks at the end at what each node holds.
Pods' addresses are on the loopback network, so that a program on this machine can answer there as a worker.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
from dataclasses import dataclass, field
from typing import Any, Final

from hulk_operator.cluster import PODS, ApiResource

from bench.scale.stub import writes
from bench.scale.stub.managed_fields import updated
from bench.scale.stub.store import Event, Object, Record, Store
from bench.scale.stub.target import Target

FIRST_ADDRESS: Final = ipaddress.IPv4Address("127.64.0.1")
BIND_S, START_S, END_S, COLLECT_S = 0.01, 0.05, 0.05, 0.5
_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


@dataclass(slots=True)
class Controllers:
    """Act on a store's objects from their making on."""

    store: Store
    _num_addresses: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.store.happened.append(self._look)

    def _look(self, resource: ApiResource, event: Event) -> None:
        """What is to be done about an event: bind, start, end, or collect what belonged to it."""
        record, loop = event.record, asyncio.get_running_loop()
        if event.type == "DELETED" and self.store.dependents.get(record.uid):
            loop.call_later(COLLECT_S, self._collect, record.uid)
        if resource != PODS or event.type == "DELETED":
            return
        if event.type == "MODIFIED" and b'"deletionTimestamp"' in record.body:
            loop.call_later(END_S, self._end, record.key, record.uid)
        elif record.fields["status.phase"] == "Pending":
            has_node = bool(record.fields["spec.nodeName"])
            act, after_s = (self._start, START_S) if has_node else (self._bind, BIND_S)
            loop.call_later(after_s, act, record.key, record.uid)

    def _pod(self, key: str, uid: str) -> Record | None:
        record = self.store.collections[PODS].records.get(key)
        return record if record is not None and record.uid == uid else None

    def _bind(self, key: str, uid: str) -> None:
        if (record := self._pod(key, uid)) is None or record.fields["spec.nodeName"]:
            return
        pod = record.read()
        if node := named_node(pod["spec"]):
            pod["spec"]["nodeName"] = node
            pod["status"]["conditions"] = [condition("PodScheduled")]
            self._write(record, pod, "kube-scheduler", "binding")

    def _start(self, key: str, uid: str) -> None:
        if (record := self._pod(key, uid)) is None or record.fields["status.phase"] != "Pending":
            return
        pod = record.read()
        address = str(FIRST_ADDRESS + next(self._num_addresses))
        pod["status"] |= running(pod["spec"], address, writes.timestamp())
        self._write(record, pod, "kubelet", "status")

    def _end(self, key: str, uid: str) -> None:
        if (record := self._pod(key, uid)) is not None:
            self.store.remove(PODS, record)

    def _collect(self, owner: str) -> None:
        for resource, key in sorted(self.store.dependents.pop(owner, ()), key=lambda one: (one[0].plural, one[1])):
            namespace, _, name = key.rpartition("/")
            if key in self.store.collections[resource].records:
                writes.delete(self.store, Target(resource, namespace, name), {})

    def _write(self, before: Record, pod: Object, manager: str, subresource: str) -> None:
        fields = updated(before.read(), pod, manager, subresource, writes.timestamp())
        pod["metadata"]["managedFields"] = fields
        self.store.put(PODS, pod)


def named_node(spec: Object) -> str:
    """The node that a pod's required affinity names; empty where it names none."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for row in term.get("matchFields") or ():
            if row["key"] == "metadata.name" and row["operator"] == "In":
                return str(row["values"][0])
    return ""


def condition(kind: str) -> dict[str, Any]:
    """One condition that holds since now."""
    return {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": writes.timestamp()}


def running(spec: Object, address: str, now: str) -> dict[str, Any]:
    """The status of a pod all of whose containers run."""
    containers = [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": f"{each['image']}@sha256:{'0' * 64}",
            "containerID": f"containerd://{'0' * 64}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "lastState": {},
            "state": {"running": {"startedAt": now}},
        }
        for each in spec["containers"]
    ]
    return {
        "phase": "Running",
        "conditions": [condition(kind) for kind in (*_CONDITIONS, "PodScheduled")],
        "containerStatuses": containers,
        "hostIP": "10.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
    }
