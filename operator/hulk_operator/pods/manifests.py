"""Plan + HulkJob -> the pods of an attempt, as the API server wants them.

Everything in the user's template is kept; Hulk adds names, labels, the node, the accelerators and the environment, and
fills in the restricted PodSecurity settings where the user says nothing. What all workers share is built once: a pod
of its own is a few small dicts around it.
"""

from collections.abc import Iterable
from typing import Any, Final

from hulk_placement.plan import Plan

from hulk_operator import names
from hulk_operator.api import HulkJob, Storage
from hulk_operator.cluster import Object
from hulk_operator.pods.worker_secret import peer_environment, with_peer_secret

RESTRICTED_USER: Final = 65532  # the usual "nonroot"
DEFAULT_GRACE_S: Final = 30  # Kubernetes' own
_RESTRICTED_POD: Final = {
    "runAsNonRoot": True,
    "runAsUser": RESTRICTED_USER,
    "runAsGroup": RESTRICTED_USER,
    "fsGroup": RESTRICTED_USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_RESTRICTED_CONTAINER: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
Env = list[dict[str, Any]]


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


def stays(job: HulkJob) -> bool:
    """Whether the job's pods can stay from one attempt to the next: they run Hulk's launcher, which starts the ranks.

    A program of its own has the rank of one attempt in its environment, and ends with that attempt.
    """
    command = (job.spec.template.spec.containers[0].model_extra or {}).get("command") or ()
    return isinstance(command, list | tuple) and bool(command) and str(command[0]).split("/")[-1] == names.LAUNCHER


def pods(job: HulkJob, plan: Plan, workers: Iterable[int]) -> tuple[Object, ...]:
    """The pods of some workers of a plan."""
    name, namespace = job.metadata.name, job.metadata.namespace
    meta = job.spec.template.metadata
    extra = {key: value for key, value in (meta.model_extra or {}).items() if key not in ("name", "namespace")}
    annotations = {"annotations": dict(meta.annotations)} if meta.annotations else {}
    spec = _shared_spec(job, plan)
    shared_env = _shared_env(job, plan)
    owners = [owner_reference(job)]
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **extra,
                **annotations,
                "name": names.pod(name, plan.attempt, worker),
                "namespace": namespace,
                "labels": {**meta.labels, **names.worker_labels(name, plan.attempt, worker)},
                "ownerReferences": owners,
            },
            "spec": _worker_spec(spec, shared_env, plan, worker, names.pod(name, plan.attempt, worker)),
        }
        for worker in workers
    )


def _shared_spec(job: HulkJob, plan: Plan) -> Object:
    """The PodSpec without what differs between workers."""
    spec = job.spec.template.pod_spec()
    containers = [_secured(container) for container in spec["containers"]]
    volumes = [*(spec.get("volumes") or ()), _plan_volume(job, plan)]
    security = {**_volume_group(job), **spec.get("securityContext", _RESTRICTED_POD)}
    first, checkpoint_volumes = _with_checkpoint(_worker_container(containers[0], job), job)
    first, peer_volumes = with_peer_secret(first, job, security)
    priority = {"priorityClassName": job.spec.priority_class_name} if job.spec.priority_class_name else {}
    defaults: Object = {"enableServiceLinks": False}
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
        "volumes": [*volumes, *peer_volumes, *checkpoint_volumes],
    }


def _worker_spec(shared: Object, shared_env: Env, plan: Plan, worker: int, name: str) -> Object:
    first, *others = shared["containers"]
    env = [*shared_env, *_rank_env(plan, worker), *(first.get("env") or ())]
    return {
        **shared,
        "hostname": name,
        "affinity": _pinned(shared.get("affinity") or {}, plan.workers[worker].machine),
        "containers": [{**first, "env": env}, *others],
    }


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
    return {"fsGroup": RESTRICTED_USER, "fsGroupChangePolicy": "OnRootMismatch"}


def _storage(job: HulkJob) -> Storage | None:
    return job.spec.checkpoint.storage if job.spec.checkpoint else None


def _secured(container: Object) -> Object:
    return {"securityContext": _RESTRICTED_CONTAINER, **container}


def _worker_container(container: Object, job: HulkJob) -> Object:
    """The first container with its accelerators, the plan and a message that outlives it."""
    resources = container.get("resources") or {}
    accelerators = {job.spec.workers.resource_name: str(job.spec.workers.accelerators_per_worker)}
    limits = {**(resources.get("limits") or {}), **accelerators}
    requests = {**(resources.get("requests") or {}), **accelerators}
    mount = {"name": names.PLAN_VOLUME, "mountPath": names.PLAN_DIRECTORY, "readOnly": True}
    return {
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **container,
        "resources": {**resources, "limits": limits, "requests": requests},
        "volumeMounts": [*(container.get("volumeMounts") or ()), mount],
    }


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


def _plan_volume(job: HulkJob, plan: Plan) -> Object:
    """The attempt's plan; where pods stay, that of the attempt in force, and beside it what the pod is now."""
    if not stays(job):
        config_map = {"name": names.plan_config_map(job.metadata.name, plan.attempt)}
        return {"name": names.PLAN_VOLUME, "configMap": config_map}
    files = {names.GANG_ATTEMPT_FILE: names.LABEL_ATTEMPT, names.GANG_WORKER_FILE: names.LABEL_WORKER}
    items = [{"path": path, "fieldRef": {"fieldPath": f"metadata.labels['{label}']"}} for path, label in files.items()]
    sources = [{"configMap": {"name": names.gang_config_map(job.metadata.name)}}, {"downwardAPI": {"items": items}}]
    return {"name": names.PLAN_VOLUME, "projected": {"sources": sources}}


def network_interface(job: HulkJob) -> str | None:
    """What gloo talks over in the job's pods; None where only they know, because the template refers to something."""
    found = _own_env(job).get(names.ENV_GLOO_INTERFACE, names.NETWORK_INTERFACE)
    return found if found and "$(" not in found else None


def _own_env(job: HulkJob) -> dict[str, str | None]:
    """What the template sets of the worker's environment; None for what is not a plain value."""
    entries = (entry.wire() for entry in job.spec.template.spec.containers[0].env)
    return {entry["name"]: entry.get("value") for entry in entries}


def _shared_env(job: HulkJob, plan: Plan) -> Env:
    """What every worker is told. Hulk's names come first, so that the user's may refer to them."""
    values = {
        names.ENV_JOB: names.key(job.metadata.namespace or "", job.metadata.name),
        names.ENV_JOB_UID: job.metadata.uid or "",
        names.ENV_PLAN: names.PLAN_PATH,
        names.ENV_METRICS_PORT: str(names.WORKER_METRICS_PORT),
        **peer_environment(job),
        **attempt_environment(job, plan),
    }
    if stays(job):
        grace_s = (job.spec.template.spec.model_extra or {}).get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        values |= {names.ENV_GANG: names.PLAN_DIRECTORY, names.ENV_GRACE_SECONDS: str(grace_s)}
    given = _own_env(job)
    for interface in (names.ENV_GLOO_INTERFACE, names.ENV_NCCL_INTERFACE):
        if interface not in given:
            values[interface] = names.NETWORK_INTERFACE
    return _env(values)


def attempt_environment(job: HulkJob, plan: Plan) -> dict[str, str]:
    """What every worker is told and the next attempt may change."""
    address = names.master_address(job.metadata.namespace or "", job.metadata.name, plan.attempt)
    values = {
        names.ENV_MASTER_ADDR: address,
        names.ENV_MASTER_PORT: str(names.MASTER_PORT),
        names.ENV_ATTEMPT: str(plan.attempt),
        **_checkpoint_env(job),
    }
    if plan.workers[0].num_accelerators > 1:
        values |= {
            names.ENV_PET_NNODES: str(len(plan.workers)),
            names.ENV_PET_MASTER_ADDR: address,
            names.ENV_PET_MASTER_PORT: str(names.MASTER_PORT),
        }
    return values


def _rank_env(plan: Plan, worker: int) -> Env:
    num_accelerators = plan.workers[worker].num_accelerators
    ranks = {names.ENV_WORKER: str(worker)}
    if num_accelerators == 1:
        ranks |= {
            names.ENV_RANK: str(worker),
            names.ENV_WORLD_SIZE: str(len(plan.workers)),
            names.ENV_LOCAL_RANK: "0",
            names.ENV_LOCAL_WORLD_SIZE: "1",
        }
    else:
        ranks |= {names.ENV_PET_NPROC_PER_NODE: str(num_accelerators), names.ENV_PET_NODE_RANK: str(worker)}
    return _env(ranks)


def _checkpoint_env(job: HulkJob) -> dict[str, str]:
    checkpoint = job.spec.checkpoint
    if checkpoint is None:
        return {}
    return {
        names.ENV_CHECKPOINT_URL: checkpoint.storage.url or f"file://{names.CHECKPOINT_DIRECTORY}",
        names.ENV_CHECKPOINT_EVERY_STEPS: str(checkpoint.every_steps),
        names.ENV_CHECKPOINT_KEEP: str(checkpoint.keep),
    }


def _env(values: dict[str, str]) -> Env:
    return [{"name": name, "value": value} for name, value in values.items()]
