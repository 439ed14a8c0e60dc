"""An admission applied: to a job before its pods are made, to the nodes that a plan may use, to a plan that runs."""

from collections.abc import Iterable, Mapping
from typing import Any

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.api.template import PodTemplate
from hulk_operator.cluster import Object
from hulk_operator.kueue.admission import Domain, Flavor, Labels, Placement, PodUpdate
from hulk_operator.kueue.state import WorkloadState


def placement(state: WorkloadState, flavors: Mapping[str, Flavor]) -> Placement | None:
    """What a Workload was admitted to; None without an admission, or where a flavor of it is not known."""
    given = state.admission
    if given is None or not flavors.keys() >= set(given.flavors):
        return None
    update = PodUpdate(
        labels={
            names.LABEL_POD_SET: names.POD_SET,
            names.LABEL_LOCAL_QUEUE: state.queue,
            **_label(names.LABEL_CLUSTER_QUEUE, given.cluster_queue),
        },
        annotations={names.ANNOTATION_WORKLOAD: state.name},
        node_selector={},
        tolerations=(),
    )
    for name in given.flavors:
        update = _merged(update, PodUpdate({}, {}, flavors[name].node_labels, flavors[name].tolerations))
    for more in given.updates:
        update = _merged(update, more)
    return Placement(state.num_workers, update, given.domains)


def as_admitted(job: HulkJob, given: Placement | None) -> HulkJob:
    """The job with no more workers than were admitted, and with what its pods get from the admission.

    What is trained stays the same however many workers were admitted: a global batch that follows from `workers.max`
    follows from the job's own.
    """
    if given is None:
        return job
    spec = job.spec
    changes: dict[str, Any] = {
        "workers": spec.workers.model_copy(update={"max": min(spec.workers.max, given.num_workers)}),
        "training": spec.training.model_copy(update={"global_batch": spec.global_batch}),
        "template": _template(spec.template, given),
    }
    return job.model_copy(update={"spec": spec.model_copy(update=changes)})


def within(
    given: Placement | None, candidates: Mapping[str, int], room: Mapping[str, int], nodes: Mapping[str, Labels]
) -> Mapping[str, int]:
    """Of the workers that each node may get, those that an admission leaves; `nodes`: their labels.

    In a domain of several nodes, those with the most `room` get its workers, so that it gets no more than it was given.
    """
    if given is None:
        return candidates
    fitting = {name: num for name, num in candidates.items() if _has(nodes[name], given.pods.node_selector)}
    if not given.domains:
        return fitting
    left: dict[str, int] = {}
    for domain in given.domains:
        rest = domain.num_workers
        inside = [name for name in fitting if name not in left and _has(nodes[name], domain.labels)]
        for name in sorted(inside, key=lambda name: (-room.get(name, 0), name)):
            left[name] = min(rest, fitting[name], room.get(name, 0))
            rest -= left[name]
    return {name: num for name, num in left.items() if num}


def fits(given: Placement, workers: Iterable[str], nodes: Mapping[str, Labels]) -> bool:
    """Whether workers on these nodes, one for each, keep to the admission; of a node that is gone nothing is known."""
    places = [nodes[name] for name in workers if name in nodes]
    if not all(_has(place, given.pods.node_selector) for place in places):
        return False
    inside = [sum(_has(place, domain.labels) for place in places) for domain in given.domains]
    most = [domain.num_workers for domain in given.domains]
    everywhere = not given.domains or sum(inside) == len(places)
    return everywhere and all(num <= limit for num, limit in zip(inside, most, strict=True))


def _template(template: PodTemplate, given: Placement) -> PodTemplate:
    meta, pod, new = template.metadata, template.pod_spec(), given.pods
    annotations = {**meta.annotations, **new.annotations, **_topology(meta.annotations, given.domains)}
    pod["nodeSelector"] = {**(pod.get("nodeSelector") or {}), **new.node_selector}
    pod["tolerations"] = _joined(tuple(pod.get("tolerations") or ()), new.tolerations)
    metadata = {**meta.wire(), "labels": {**meta.labels, **new.labels}, "annotations": annotations}
    return PodTemplate.model_validate({"metadata": metadata, "spec": pod})


def _topology(annotations: Labels, domains: tuple[Domain, ...]) -> dict[str, str]:
    """Pods with one of these annotations are not counted again beside their Workload, which has their room already."""
    own = (names.ANNOTATION_REQUIRED_TOPOLOGY, names.ANNOTATION_PREFERRED_TOPOLOGY, names.ANNOTATION_ANY_TOPOLOGY)
    return {names.ANNOTATION_ANY_TOPOLOGY: "true"} if domains and not annotations.keys() & set(own) else {}


def _merged(one: PodUpdate, more: PodUpdate) -> PodUpdate:
    return PodUpdate(
        {**one.labels, **more.labels},
        {**one.annotations, **more.annotations},
        {**one.node_selector, **more.node_selector},
        tuple(_joined(one.tolerations, more.tolerations)),
    )


def _joined(first: tuple[Object, ...], second: tuple[Object, ...]) -> list[Object]:
    return [*first, *(one for one in second if one not in first)]


def _label(key: str, value: str) -> dict[str, str]:
    """A label, where the value can be one."""
    return {key: value} if value and len(value) <= names.DNS_LABEL_LENGTH and "." not in value else {}


def _has(own: Labels, wanted: Labels) -> bool:
    return wanted.items() <= own.items()
