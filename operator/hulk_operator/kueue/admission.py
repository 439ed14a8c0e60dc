"""What an admission says: how many workers, of which flavors, and which of them where by Kueue's topology."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hulk_operator import names
from hulk_operator.cluster import Object

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Flavor:
    """A ResourceFlavor: which nodes it means, and what pods need to tolerate there."""

    node_labels: Labels
    tolerations: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A place of Kueue's topology, by the labels of its nodes, and how many workers it gets."""

    labels: Labels
    num_workers: int


@dataclass(frozen=True, slots=True)
class PodUpdate:
    """What pods get: of flavors, or of an admission check such as a ProvisioningRequest."""

    labels: Labels
    annotations: Labels
    node_selector: Labels
    tolerations: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Admission:
    """An admission as it stands in a Workload; flavors by their names. No `domains`: no topology was asked for."""

    cluster_queue: str
    num_workers: int
    flavors: tuple[str, ...]
    domains: tuple[Domain, ...] = ()
    updates: tuple[PodUpdate, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """An admission with its flavors looked up: what a plan keeps to, and what its pods get."""

    num_workers: int
    pods: PodUpdate
    domains: tuple[Domain, ...] = ()


def flavor(body: Object) -> Flavor:
    """A ResourceFlavor as it is watched."""
    spec = body.get("spec") or {}
    return Flavor(spec.get("nodeLabels") or {}, tuple(spec.get("tolerations") or ()))


def admission(spec: Object, status: Object) -> Admission | None:
    """The admission in a Workload's status; None where it has none. ValueError where it is of other pod sets."""
    given = status.get("admission")
    if not given:
        return None
    assignments = {one["name"]: one for one in given.get("podSetAssignments") or ()}
    if names.POD_SET not in assignments:
        raise ValueError(f"an admission of pod sets {sorted(assignments)}, not {names.POD_SET}")
    mine = assignments[names.POD_SET]
    return Admission(
        cluster_queue=given.get("clusterQueue") or "",
        num_workers=mine.get("count", spec["podSets"][0]["count"]),
        flavors=tuple(sorted(set((mine.get("flavors") or {}).values()))),
        domains=tuple(_domains(mine.get("topologyAssignment") or {})),
        updates=tuple(_updates(status)),
    )


def _updates(status: Object) -> Iterator[PodUpdate]:
    for check in status.get("admissionChecks") or ():
        for update in check.get("podSetUpdates") or ():
            if update["name"] == names.POD_SET:
                yield PodUpdate(
                    update.get("labels") or {},
                    update.get("annotations") or {},
                    update.get("nodeSelector") or {},
                    tuple(update.get("tolerations") or ()),
                )


def _domains(assignment: Object) -> Iterator[Domain]:
    """The domains of a topology assignment, in which values that are alike are written once.

    >>> hosts = {"individual": {"prefix": "node-", "roots": ["1", "2"]}}
    >>> slices = [{"domainCount": 2, "valuesPerLevel": [hosts], "podCounts": {"universal": 3}}]
    >>> [(one.labels["host"], one.num_workers) for one in _domains({"levels": ["host"], "slices": slices})]
    [('node-1', 3), ('node-2', 3)]
    """
    levels = assignment.get("levels") or ()
    for part in assignment.get("slices") or ():
        for number in range(part["domainCount"]):
            values = [_value(of_level, number) for of_level in part["valuesPerLevel"]]
            counts = part["podCounts"]
            count = counts["universal"] if "universal" in counts else counts["individual"][number]
            yield Domain(dict(zip(levels, values, strict=True)), count)


def _value(of_level: Mapping[str, Any], number: int) -> str:
    if "universal" in of_level:
        return str(of_level["universal"])
    own = of_level["individual"]
    return f"{own.get('prefix', '')}{own['roots'][number]}{own.get('suffix', '')}"
