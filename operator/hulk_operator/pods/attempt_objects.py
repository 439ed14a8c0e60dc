"""Plan + HulkJob -> what an attempt needs beside its pods: the full plan, stable names, a fence, a group to bind."""

import json
from base64 import b64encode
from collections.abc import Iterable

from hulk_placement.plan import Plan

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import POD_GROUPS, Object
from hulk_operator.pods.environment import attempt_environment
from hulk_operator.pods.host_ports import OWN, Ports
from hulk_operator.pods.manifests import owner_reference
from hulk_operator.pods.orders import Orders


def plan_config_map(
    job: HulkJob, attempt: int, blob: bytes, digest: str, why: tuple[str, ...] = (), basis: bytes | None = None
) -> Object:
    """The full plan, mounted by every pod, its reasons, and what it was made of; immutable: it can only be read."""
    packed = {names.PLAN_KEY: blob} | ({} if basis is None else {names.PLAN_BASIS_KEY: basis})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            **_metadata(job, names.plan_config_map(job.metadata.name, attempt), attempt),
            "annotations": {names.ANNOTATION_PLAN_DIGEST: digest},
        },
        "immutable": True,
        "data": {names.PLAN_WHY_KEY: "\n".join(why)},
        "binaryData": {key: b64encode(content).decode() for key, content in packed.items()},
    }


def gang_config_map(job: HulkJob, plan: Plan, blob: bytes, orders: Orders, is_broken: bool = False) -> Object:
    """What a launcher needs to start the ranks of the attempt in force; the one object that each attempt changes.

    Which worker a pod is, its own labels say. `is_broken`: a node of the attempt before was lost, so that its ranks
    wait for each other in vain and are to end at once.
    """
    environment = attempt_environment(job, plan, orders) | ({names.ENV_END_SECONDS: "0"} if is_broken else {})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job, names.gang_config_map(job.metadata.name), plan.attempt),
        "data": {names.GANG_ENVIRONMENT_KEY: json.dumps(environment, sort_keys=True)},
        "binaryData": {names.PLAN_KEY: b64encode(blob).decode()},
    }


def service(job: HulkJob, attempt: int, ports: Ports = OWN) -> Object:
    """Headless: its name is rank 0's address, whichever pod that is, and also before it is ready.

    Of one family, the cluster's first, so that all ranks meet in the same one.
    """
    served = {"rendezvous": ports.master, "hulk-metrics": ports.metrics(0)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, names.service(job.metadata.name, attempt), attempt),
        "spec": {
            "clusterIP": "None",
            "ipFamilyPolicy": "SingleStack",
            "publishNotReadyAddresses": True,
            "selector": names.worker_labels(job.metadata.name, attempt, 0),
            "ports": [{"name": name, "port": port, "targetPort": port} for name, port in served.items()],
        },
    }


def metrics_readers(operator_in: str, prometheus_in: Iterable[str] = ()) -> tuple[Object, ...]:
    """Who reaches the workers' port 9400, as peers of a NetworkPolicy: the operator, and all of some namespaces."""
    namespaces = [{"matchLabels": {names.LABEL_NAMESPACE_NAME: name}} for name in (operator_in, *prometheus_in)]
    operator = {"namespaceSelector": namespaces[0], "podSelector": {"matchLabels": names.OPERATOR_LABELS}}
    return (operator, *({"namespaceSelector": selector} for selector in namespaces[1:]))


def network_policy(job: HulkJob, attempt: int, readers: tuple[Object, ...]) -> Object:
    """Workers of one attempt reach each other, `readers` their metrics, others only what the job's own rules say."""
    assert readers, "no peers would be everybody"
    selector = {"matchLabels": names.attempt_labels(job.metadata.name, attempt)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(job, names.network_policy(job.metadata.name, attempt), attempt),
        "spec": {
            "podSelector": selector,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": selector}]},
                {"from": list(readers), "ports": [{"protocol": "TCP", "port": names.WORKER_METRICS_PORT}]},
                *job.spec.network_policy.rules(),
            ],
        },
    }


def pod_group(job: HulkJob, attempt: int, num_pods: int) -> Object:
    """The scheduler binds all of so many pods, or none."""
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": _metadata(job, names.pod_group(job.metadata.name, attempt), attempt),
        "spec": {"schedulingPolicy": {"gang": {"minCount": num_pods}}},
    }


def _metadata(job: HulkJob, name: str, attempt: int) -> Object:
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": names.attempt_labels(job.metadata.name, attempt),
        "ownerReferences": [owner_reference(job)],
    }
