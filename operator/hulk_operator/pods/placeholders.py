"""What asks for nodes: placeholder pods of a job's size, or a ProvisioningRequest; and what is seen of the pods.

A placeholder is no worker: it has the label `hulk.dev/placeholder` and no attempt, so that neither the gang's Service
nor its NetworkPolicy selects it. It is never ready, so that the user's own Services leave it out as well, although it
has the template's labels, which affinity rules may name. By its PriorityClass it gives way to any pod that needs its
room, so what it takes counts as free: as long as it is there for a job that asks so, and nothing draws out its end.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import Object
from hulk_operator.inputs.pod_size import Amounts, requests
from hulk_operator.inputs.quantity import CPU
from hulk_operator.inputs.shortage import Shortage, worker_size
from hulk_operator.pods.manifests import RESTRICTED_CONTAINER, RESTRICTED_POD, owner_reference
from hulk_operator.pods.worker_status import is_worker, job_key_of, owner_uid

_KEPT: Final = ("nodeSelector", "tolerations", "topologySpreadConstraints", "runtimeClassName", "schedulerName", "os")
"""What of a worker's PodSpec says where it may be."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OF_KUEUE: Final = f"{names.KUEUE_GROUP}/"
_GRACE_S: Final = 1  # none at all would free its devices before the kubelet has
_END_S: Final = 30.0  # by then a kubelet has ended one that is deleted


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """How nodes are asked for, by the chart's values."""

    placeholder_image: str = names.PLACEHOLDER_IMAGE
    provisioning_class: str = names.PROVISIONING_CLASS


DEFAULT_SCALE_UP: Final = ScaleUp()


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder pod: of which generation of its job, on which node (empty: none yet), and what it takes there.

    `ends_at_once`: it has no long grace period, and no finalizer keeps it. `deleting_since`: when that was first seen.
    """

    name: str
    job: str
    job_uid: str
    generation: int
    number: int
    node: str
    amounts: Amounts
    ended: bool
    ends_at_once: bool
    deleting_since: datetime | None = None

    def gives_way(self, job: HulkJob | None, now: datetime) -> bool:
        """Whether what it takes is as good as free. `job`: the one that its label names.

        Anyone who may create pods may make one that looks like it, name any owner, and hold what looks free for good.
        """
        if job is None or job.metadata.uid != self.job_uid or job.spec.placement.allow_scale_up != "placeholders":
            return False
        is_late = self.deleting_since is not None and now - self.deleting_since > timedelta(seconds=_END_S)
        return self.ends_at_once and not is_late


def is_placeholder(pod: Object) -> bool:
    """Whether a pod asks for a node for a job; what gives way to nobody is none, whatever its labels say."""
    labels = pod["metadata"].get("labels") or {}
    number = pod["metadata"]["name"].rpartition("-")[2]
    is_labelled = names.LABEL_JOB in labels and labels.get(names.LABEL_PLACEHOLDER, "").isdecimal()
    gives_way = pod["spec"].get("priorityClassName") == names.PLACEHOLDER_CLASS
    return is_labelled and gives_way and number.isdecimal() and bool(owner_uid(pod)) and not is_worker(pod)


def placeholder_pod(pod: Object, now: datetime, before: Placeholder | None = None) -> Placeholder:
    """The placeholder in a pod for which `is_placeholder` holds, seen at `now`; `before`: as it was last seen."""
    metadata = pod["metadata"]
    since = before.deleting_since if before is not None and before.deleting_since else now
    return Placeholder(
        name=metadata["name"],
        job=job_key_of(pod),
        job_uid=owner_uid(pod),
        generation=int(metadata["labels"][names.LABEL_PLACEHOLDER]),
        number=int(metadata["name"].rpartition("-")[2]),
        node=pod["spec"].get("nodeName") or "",
        amounts=requests(pod["spec"]),
        ended=(pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"),
        ends_at_once=_ends_at_once(pod),
        deleting_since=since if "deletionTimestamp" in metadata else None,
    )


def _ends_at_once(pod: Object) -> bool:
    """Who deletes a pod may ask for another grace period than its own."""
    metadata = pod["metadata"]
    periods = (pod["spec"].get("terminationGracePeriodSeconds"), metadata.get("deletionGracePeriodSeconds", _GRACE_S))
    return not metadata.get("finalizers") and all(period is not None and period <= _GRACE_S for period in periods)


def placeholders(
    job: HulkJob, lack: Shortage, numbers: Iterable[int], avoided: Iterable[str], image: str
) -> tuple[Object, ...]:
    """Pods that lack the same room as the job's workers. `job`: as its pods would be made; `avoided`: nodes."""
    own = _labels(job)
    spec = {**_spec(job, lack, avoided, image), "priorityClassName": names.PLACEHOLDER_CLASS}
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": _metadata(job, names.placeholder(job.metadata.name, number), own),
            "spec": {**spec, "readinessGates": [{"conditionType": names.LABEL_PLACEHOLDER}]},
        }
        for number in numbers
    )


def provisioning_request(
    job: HulkJob, lack: Shortage, avoided: Iterable[str], settings: ScaleUp
) -> tuple[Object, Object]:
    """A PodTemplate of the workers' size, and the ProvisioningRequest for so many of it."""
    name = names.provisioning_request(job.metadata.name, job.metadata.generation)
    spec = _spec(job, lack, avoided, settings.placeholder_image)
    if job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": _metadata(job, name),
        "template": {"metadata": {"labels": _labels(job)}, "spec": spec},
    }
    request = {
        "apiVersion": f"{names.AUTOSCALING_GROUP}/v1",
        "kind": "ProvisioningRequest",
        "metadata": _metadata(job, name),
        "spec": {
            "provisioningClassName": settings.provisioning_class,
            "podSets": [{"count": lack.num_workers, "podTemplateRef": {"name": name}}],
        },
    }
    return template, request


def _metadata(job: HulkJob, name: str, own: Object | None = None) -> Object:
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": {**(own or {}), **names.placeholder_labels(job.metadata.name, job.metadata.generation)},
        "ownerReferences": [owner_reference(job)],
    }


def _labels(job: HulkJob) -> Object:
    """Those of the template, without what Kueue counts pods by."""
    labels = job.spec.template.metadata.labels
    return {key: value for key, value in labels.items() if not key.startswith(_OF_KUEUE)}


def _spec(job: HulkJob, lack: Shortage, avoided: Iterable[str], image: str) -> Object:
    """One container that takes what all of a worker's containers take together."""
    pod = job.spec.template.pod_spec()
    quantities = {name: f"{value}m" if name == CPU else str(value) for name, value in worker_size(job).items()}
    container = {
        "name": "placeholder",
        "image": image,
        "resources": {"requests": quantities, "limits": quantities},
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
    }
    return {
        **{key: pod[key] for key in _KEPT if key in pod},
        "affinity": _affinity(job, pod.get("affinity") or {}, lack, avoided),
        "containers": [container],
        "securityContext": RESTRICTED_POD,
        "terminationGracePeriodSeconds": _GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }


def _affinity(job: HulkJob, affinity: Object, lack: Shortage, avoided: Iterable[str]) -> Object:
    """The template's, with every alternative narrowed to the regions that the job may use, and to other nodes than
    those that it avoids.
    """
    regions = [_expression("In", lack.regions)] if lack.regions else []
    if not lack.regions and job.spec.placement.denied_regions:
        regions = [_expression("NotIn", job.spec.placement.denied_regions)]
    if (job.spec.parallelism.pipeline or 1) == 1:  # then every worker holds all layers
        regions += [_expression("In", pin.regions) for pin in job.spec.placement.pins if pin.regions and not pin.nodes]
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(avoided)]
    if not regions and not fields:
        return affinity
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get(_REQUIRED) or {}
    alternatives: list[Object] = required.get("nodeSelectorTerms") or [{}]
    narrowed = {**required, "nodeSelectorTerms": [_narrowed(term, regions, fields) for term in alternatives]}
    return {**affinity, "nodeAffinity": {**node_affinity, _REQUIRED: narrowed}}


def _narrowed(term: Object, expressions: list[Object], fields: list[Object]) -> Object:
    more: dict[str, Any] = {"matchExpressions": expressions, "matchFields": fields}
    return {**term, **{key: [*(term.get(key) or ()), *value] for key, value in more.items() if value}}


def _expression(operator: str, regions: Iterable[str]) -> Object:
    return {"key": names.NODE_REGION, "operator": operator, "values": list(regions)}
