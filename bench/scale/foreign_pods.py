"""What others run on the nodes, an agent of Hulk's among it: about 9 KB each with managedFields, as real pods."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import cache
from typing import Final

from bench.scale.jobs import SYSTEM
from bench.scale.nodes import ACCELERATORS, NODE_NET, TIME, Object, is_busy, node_name, uid
from bench.scale.stub.controllers import running
from bench.scale.stub.managed_fields import updated

OTHERS: Final = "others"
POD_NET: Final = ipaddress.IPv4Address("10.128.0.0")
NUM_DAEMONS: Final = 3
APPS: Final = ("agent", "kube-proxy", "log-collector", "training", "web")


def foreign_pods(num_nodes: int, num_pods: int) -> Iterator[Object]:
    """What others run, spread over all nodes: first an agent's pod each, then other daemons, trainings and servers."""
    return (foreign_pod(number % num_nodes, number // num_nodes) for number in range(num_pods))


def foreign_pod(index: int, place: int, version: int = 0) -> Object:
    """The pod at a place of a node; `version`: how often it was replaced."""
    is_training = APPS[place % len(APPS)] == "training" and is_busy(index)
    item = _foreign_pod(index, place, version, is_training=is_training)
    item["metadata"]["managedFields"] = _foreign_fields(place, is_training)
    return item


@cache
def _foreign_fields(place: int, is_training: bool) -> list[Object]:
    """Pods of one place have the same fields."""
    item = _foreign_pod(0, place, 0, is_training=is_training)
    made = {**item, "status": {}}
    made["metadata"]["managedFields"] = updated(None, made, "kube-controller-manager", "", TIME)
    return updated(made, item, "kubelet", "status", TIME)


def _foreign_pod(index: int, place: int, version: int, *, is_training: bool) -> Object:
    app = APPS[place % len(APPS)]
    name = f"{app}-{index:05d}-{place}-{version}"
    address = str(POD_NET + index * 256 + 2 + place)
    resources: Object = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    if is_training:
        for amounts in resources.values():
            amounts["nvidia.com/gpu"] = str(ACCELERATORS)
    labels = {"app": app, "pod-template-hash": f"{place:010x}", "team": f"team-{index % 20}"}
    if app == "agent":
        labels |= {"app.kubernetes.io/name": "hulk", "app.kubernetes.io/component": "agent"}
    item: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": SYSTEM if app == "agent" else OTHERS,
            "uid": uid("pod", (index * 1000 + place) * 10_000 + version),
            "creationTimestamp": TIME,
            "labels": labels,
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "8080",
                "checksum/config": f"{index * 1000 + place:064x}",
                "kubectl.kubernetes.io/restartedAt": TIME,
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet" if place < NUM_DAEMONS else "ReplicaSet",
                    "name": app,
                    "uid": uid("owner", place),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": _foreign_spec(app, node_name(index), resources),
    }
    item["status"] = {
        **running(item["spec"], address, TIME),
        "qosClass": "Burstable",
        "hostIP": str(NODE_NET + 1 + index),
    }
    return item


def _foreign_spec(app: str, node: str, resources: Object) -> Object:
    env: list[Object] = [
        {"name": f"{app.upper().replace('-', '_')}_SETTING_{number}", "value": f"value-{number}"} for number in range(8)
    ]
    env += [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in (
            ("POD_NAME", "metadata.name"),
            ("POD_NAMESPACE", "metadata.namespace"),
            ("NODE", "spec.nodeName"),
        )
    ]
    mounts = ("config", "data", "tmp", "kube-api-access")
    probe = {
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "periodSeconds": 10,
        "failureThreshold": 3,
    }
    container = {
        "name": app,
        "image": f"registry.example.com/infra/{app}:v1.2.3",
        "imagePullPolicy": "IfNotPresent",
        "command": [f"/usr/bin/{app}"],
        "args": [f"--setting-{number}=value-{number}" for number in range(6)],
        "env": env,
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "resources": resources,
        "livenessProbe": {**probe, "timeoutSeconds": 1, "successThreshold": 1},
        "readinessProbe": {**probe, "timeoutSeconds": 1, "successThreshold": 1},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": name, "mountPath": f"/var/{name}"} for name in mounts],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    taints = ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "unschedulable")
    return {
        "nodeName": node,
        "containers": [container],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": app,
        "serviceAccountName": app,
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"key": f"node.kubernetes.io/{taint}", "operator": "Exists"} for taint in taints],
        "volumes": [{"name": name, "configMap": {"name": f"{app}-{name}", "defaultMode": 420}} for name in mounts],
    }


def creatable(pod: Object) -> Object:
    """A pod as its controller creates it on a node; without owners and accounts, which an API server looks for."""
    metadata, left_out = pod["metadata"], ("serviceAccount", "serviceAccountName", "preemptionPolicy", "priority")
    kept = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations")}
    spec = {key: value for key, value in pod["spec"].items() if key not in left_out}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}
