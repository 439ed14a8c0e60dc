"""Plan + HulkJob -> the pods of an attempt, as the API server wants them.

Everything in the user's template is kept; Hulk adds names, labels, the node, the accelerators and the environment, and
fills in the restricted PodSecurity settings where the user says nothing. What all workers share is built once: a pod
of its own is a few small dicts around it.
"""

from collections.abc import Iterable
from typing import Final

from hulk_placement.plan import Plan

from hulk_operator import names
from hulk_operator.api import HulkJob, Storage
from hulk_operator.cluster import Object
from hulk_operator.pods.environment import Env, rank_env, shared_env
from hulk_operator.pods.host_ports import OWN, Ports
from hulk_operator.pods.instrumentation import (
    DEFAULT_INSTRUMENTATION,
    Instrumentation,
    instrumented,
    is_instrumented,
)
from hulk_operator.pods.launcher import stays
from hulk_operator.pods.orders import NO_ORDERS, Orders
from hulk_operator.pods.worker_secret import with_peer_secret

RESTRICTED_POD: Final = {
    "runAsNonRoot": True,
    "runAsUser": names.RESTRICTED_USER,
    "runAsGroup": names.RESTRICTED_USER,
    "fsGroup": names.RESTRICTED_USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED_CONTAINER: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def owner_reference(job: HulkJob) -> Object:
    """Children go with their job; they never hold up its deletion."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def pods(
    job: HulkJob,
    plan: Plan,
    workers: Iterable[int],
    ports: Ports = OWN,
    orders: Orders = NO_ORDERS,
    group: str = "",
    instrumentation: Instrumentation = DEFAULT_INSTRUMENTATION,
) -> tuple[Object, ...]:
    """The pods of some workers of a plan, the ports that these listen on, and the PodGroup that they are bound as.

    `instrumentation`: what brings the all-reduce into them, where they need that.
    """
    name, namespace = job.metadata.name, job.metadata.namespace
    meta = job.spec.template.metadata
    extra = {key: value for key, value in (meta.model_extra or {}).items() if key not in ("name", "namespace")}
    worker_name = job.spec.template.spec.containers[0].name
    annotations = {names.ANNOTATION_DEFAULT_CONTAINER: worker_name, **meta.annotations}
    grouped = {"schedulingGroup": {"podGroupName": group}} if group else {}
    spec = {**_shared_spec(job, plan), **grouped}
    if is_instrumented(job, plan):
        spec = instrumented(spec, instrumentation)
    env = shared_env(job, plan, orders, ports)
    owners = [owner_reference(job)]
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **extra,
                "annotations": {**annotations, names.ANNOTATION_CONTAINER: worker_name},
                "name": names.pod(name, plan.attempt, worker),
                "namespace": namespace,
                "labels": {**meta.labels, **names.worker_labels(name, plan.attempt, worker)},
                "ownerReferences": owners,
            },
            "spec": _worker_spec(spec, env, plan, worker, names.pod(name, plan.attempt, worker), ports),
        }
        for worker in workers
    )


def _shared_spec(job: HulkJob, plan: Plan) -> Object:
    """The PodSpec without what differs between workers."""
    spec = job.spec.template.pod_spec()
    containers = [_secured(container) for container in spec["containers"]]
    security = {**_volume_group(job), **spec.get("securityContext", RESTRICTED_POD)}
    first, checkpoint_volumes = _with_checkpoint(_worker_container(containers[0], job), job)
    first, peer_volumes = with_peer_secret(first, job, security)
    first, memory_volumes = _with_shared_memory(first, bool(spec.get("hostIPC")))
    volumes = [*(spec.get("volumes") or ()), _plan_volume(job, plan), *peer_volumes, *checkpoint_volumes]
    priority = {"priorityClassName": job.spec.priority_class_name} if job.spec.priority_class_name else {}
    defaults: Object = {"enableServiceLinks": False}
    if spec.get("hostNetwork") and spec.get("dnsPolicy") in (None, "ClusterFirst"):  # which stands for Default there
        spec = {**spec, "dnsPolicy": "ClusterFirstWithHostNet"}  # or rank 0's name would not be found
    if "serviceAccountName" not in spec:
        defaults["automountServiceAccountToken"] = False
    inits = {"initContainers": [_secured(init) for init in spec["initContainers"]]} if "initContainers" in spec else {}
    return {
        **defaults,
        **spec,
        **priority,
        **inits,
        "securityContext": security,
        "restartPolicy": "Never",
        "subdomain": names.service(job.metadata.name, plan.attempt),
        "containers": [first, *containers[1:]],
        "volumes": [*volumes, *memory_volumes],
    }


def _worker_spec(shared: Object, common_env: Env, plan: Plan, worker: int, name: str, ports: Ports) -> Object:
    first, *others = shared["containers"]
    env = [*common_env, *rank_env(plan, worker, ports), *(first.get("env") or ())]
    taken = _container_ports(worker, ports)
    listens = {"ports": [*(first.get("ports") or ()), *taken]} if taken else {}
    return {
        **shared,
        "hostname": name,
        "affinity": _pinned(shared.get("affinity") or {}, plan.workers[worker].machine),
        "containers": [{**first, **listens, "env": env}, *others],
    }


def _container_ports(worker: int, ports: Ports) -> list[Object]:
    """What a worker takes of its node's ports."""
    if not ports.on_host:
        return []
    taken = {"hulk-metrics": ports.metrics(worker)} | ({"hulk-master": ports.master} if worker == 0 else {})
    return [{"name": name, "containerPort": port, "hostPort": port} for name, port in taken.items()]


def _pinned(affinity: Object, node: str) -> Object:
    """The user's affinity, with every alternative narrowed to one node (terms are alternatives: any one suffices)."""
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    alternatives: list[Object] = required.get("nodeSelectorTerms") or [{}]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{**term, "matchFields": [*(term.get("matchFields") or ()), field]} for term in alternatives]
    narrowed = {**required, "nodeSelectorTerms": terms}
    return {**affinity, "nodeAffinity": {**node_affinity, "requiredDuringSchedulingIgnoredDuringExecution": narrowed}}


def _volume_group(job: HulkJob) -> Object:
    """A new volume belongs to root: whoever is to write checkpoints to a claim must be in the group that owns it."""
    storage = _storage(job)
    if not storage or not storage.persistent_volume_claim:
        return {}
    return {"fsGroup": names.RESTRICTED_USER, "fsGroupChangePolicy": "OnRootMismatch"}


def _storage(job: HulkJob) -> Storage | None:
    return job.spec.checkpoint.storage if job.spec.checkpoint else None


def _secured(container: Object) -> Object:
    """A container with the restricted settings, and last lines that outlive it: those of an init container, too."""
    return {
        "securityContext": RESTRICTED_CONTAINER,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **container,
    }


def with_accelerators(container: Object, job: HulkJob) -> Object:
    """The first container with its accelerators."""
    resources = container.get("resources") or {}
    accelerators = {job.spec.workers.resource_name: str(job.spec.workers.accelerators_per_worker)}
    limits = {**(resources.get("limits") or {}), **accelerators}
    requests = {**(resources.get("requests") or {}), **accelerators}
    return {**container, "resources": {**resources, "limits": limits, "requests": requests}}


def _worker_container(container: Object, job: HulkJob) -> Object:
    """The first container with its accelerators and the plan."""
    mount = {"name": names.PLAN_VOLUME, "mountPath": names.PLAN_DIRECTORY, "readOnly": True}
    return {**with_accelerators(container, job), "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}


def _with_checkpoint(container: Object, job: HulkJob) -> tuple[Object, list[Object]]:
    """The worker container and the volumes that the job's checkpoint storage needs."""
    storage = _storage(job)
    if storage and storage.persistent_volume_claim:
        mount = {"name": names.CHECKPOINT_VOLUME, "mountPath": names.CHECKPOINT_DIRECTORY}
        claim = {"claimName": storage.persistent_volume_claim}
        volume = {"name": names.CHECKPOINT_VOLUME, "persistentVolumeClaim": claim}
        return {**container, "volumeMounts": [*container["volumeMounts"], mount]}, [volume]
    if storage and storage.secret_name:
        source = {"secretRef": {"name": storage.secret_name}}
        return {**container, "envFrom": [*(container.get("envFrom") or ()), source]}, []
    return container, []


def _with_shared_memory(container: Object, host_ipc: bool) -> tuple[Object, list[Object]]:
    """The worker container with as much shared memory as its memory limit allows, where the template mounts none.

    Container runtimes give 64 MiB, of which the workers of a DataLoader die ("bus error").
    """
    mounts = container["volumeMounts"]
    if host_ipc or any(mount.get("mountPath", "").rstrip("/") == names.SHARED_MEMORY_DIRECTORY for mount in mounts):
        return container, []
    mount = {"name": names.SHARED_MEMORY_VOLUME, "mountPath": names.SHARED_MEMORY_DIRECTORY}
    volume = {"name": names.SHARED_MEMORY_VOLUME, "emptyDir": {"medium": "Memory"}}
    return {**container, "volumeMounts": [*mounts, mount]}, [volume]


def _plan_volume(job: HulkJob, plan: Plan) -> Object:
    """The attempt's plan; where pods stay, that of the attempt in force, and beside it what the pod is now."""
    if not stays(job):
        config_map = {"name": names.plan_config_map(job.metadata.name, plan.attempt)}
        return {"name": names.PLAN_VOLUME, "configMap": config_map}
    files = {names.GANG_ATTEMPT_FILE: names.LABEL_ATTEMPT, names.GANG_WORKER_FILE: names.LABEL_WORKER}
    items = [{"path": path, "fieldRef": {"fieldPath": f"metadata.labels['{label}']"}} for path, label in files.items()]
    sources = [{"configMap": {"name": names.gang_config_map(job.metadata.name)}}, {"downwardAPI": {"items": items}}]
    return {"name": names.PLAN_VOLUME, "projected": {"sources": sources}}
