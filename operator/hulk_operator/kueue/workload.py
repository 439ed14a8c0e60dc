"""A HulkJob -> the Workload that stands for it in a queue: one pod set of all its workers.

Kueue admits up to `workers.max` workers, and where that is more than there is, as many as there are down to
`workers.min` (partial admission). Priorities are numbers of other objects: the caller fills them in. A PriorityClass
that is not the namespace's to use counts for nothing, as in Hulk's own queue: Kueue asks no ResourceQuota.
"""

import hashlib
import json
from typing import Final

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import Object
from hulk_operator.cluster.resources import WORKLOADS
from hulk_operator.inputs.stage_constraints import num_workers
from hulk_operator.kueue.state import WorkloadState
from hulk_operator.pods import owner_reference, with_accelerators

_KIND: Final = names.JOB_KIND.lower()
_HASH_LENGTH: Final = 5
_TOPOLOGY: Final = {
    names.ANNOTATION_REQUIRED_TOPOLOGY: "required",
    names.ANNOTATION_PREFERRED_TOPOLOGY: "preferred",
}


def workload_name(job: HulkJob) -> str:
    """Named as Kueue names Workloads: no other job, also not a later one of the same name, has it."""
    identity = "\n".join((names.JOB_KIND, names.GROUP, job.metadata.name, job.metadata.uid or ""))
    short = hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    return f"{_KIND}-{job.metadata.name}"[: names.DNS_LABEL_LENGTH - 1 - _HASH_LENGTH] + f"-{short}"


def workload(job: HulkJob, may_use_class: bool = True) -> Object:
    """The Workload of a job of a queue; UnusableJobError where no number of workers fits its layout.

    `may_use_class`: whether the PriorityClass that the job names counts.
    """
    pod_sets = [_pod_set(job)]
    name = job.metadata.name
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {
            "name": workload_name(job),
            "namespace": job.metadata.namespace,
            "labels": {**names.job_labels(name), names.LABEL_OWNER_UID: job.metadata.uid},
            "annotations": {names.ANNOTATION_POD_SETS_DIGEST: pod_sets_digest(pod_sets)},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "queueName": job.queue,
            "podSets": pod_sets,
            **_priority_class(job, may_use_class),
            **_execution_time(job),
        },
    }


def pod_sets_digest(pod_sets: list[Object]) -> str:
    """What pod sets ask for, as the API server's defaults do not change it."""
    return hashlib.sha256(json.dumps(pod_sets, sort_keys=True).encode()).hexdigest()[:16]


def differs(state: WorkloadState, wanted: Object) -> bool:
    """Whether the job asks for something else by now than what the Workload was admitted, or waits, for."""
    spec, annotations = wanted["spec"], wanted["metadata"]["annotations"]
    return (state.digest, state.queue, state.max_execution_s) != (
        annotations[names.ANNOTATION_POD_SETS_DIGEST],
        spec["queueName"],
        spec.get("maximumExecutionTimeSeconds"),
    )


def wrong_priority(state: WorkloadState, wanted: Object) -> bool:
    """Whether the job names another class by now, and that can be told: with quota only another of Kueue's own."""
    known = wanted["spec"].get("priorityClassRef")
    new = (known["kind"], known["name"]) if known else None
    kinds = {name[0] if name else "" for name in (state.priority_class, new)}
    return state.priority_class != new and (not state.is_reserved or kinds == {"WorkloadPriorityClass"})


def _pod_set(job: HulkJob) -> Object:
    least, most = num_workers(job.spec)
    meta, spec = job.spec.template.metadata, job.spec.template.pod_spec()
    first, *others = spec["containers"]
    priority = {"priorityClassName": job.spec.priority_class_name} if job.spec.priority_class_name else {}
    pod = {**spec, **priority, "restartPolicy": "Never", "containers": [with_accelerators(first, job), *others]}
    return {
        "name": names.POD_SET,
        "count": most,
        **({"minCount": least} if least < most else {}),
        "template": {"metadata": {"labels": meta.labels, "annotations": meta.annotations}, "spec": pod},
        **_topology_request(meta.annotations),
    }


def _topology_request(annotations: dict[str, str]) -> Object:
    """What the template's annotations ask of Kueue's topology, as for other kinds of jobs."""
    for annotation, field in _TOPOLOGY.items():
        if annotation in annotations:
            return {"topologyRequest": {field: annotations[annotation]}}
    if annotations.get(names.ANNOTATION_ANY_TOPOLOGY) == "true":
        return {"topologyRequest": {"unconstrained": True}}
    return {}


def _priority_class(job: HulkJob, may_use_class: bool) -> Object:
    """The class that decides among Workloads; a WorkloadPriorityClass does not touch the pods' own priority."""
    if name := job.metadata.labels.get(names.LABEL_WORKLOAD_PRIORITY):
        return {"priorityClassRef": {"group": names.KUEUE_GROUP, "kind": "WorkloadPriorityClass", "name": name}}
    if may_use_class and (name := job.spec.priority_class_name):
        return {"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name}}
    return {}


def _execution_time(job: HulkJob) -> Object:
    seconds = job.metadata.labels.get(names.LABEL_MAX_EXECUTION, "")
    return {"maximumExecutionTimeSeconds": int(seconds)} if seconds.isdecimal() and int(seconds) > 0 else {}
