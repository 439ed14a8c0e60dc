"""What a job lacks on the nodes that there are, in words and in numbers: what new nodes would have to be like."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hulk_placement.words import counted

from hulk_operator.api import HulkJob
from hulk_operator.cluster import Object
from hulk_operator.inputs.pod_size import PODS, Amounts
from hulk_operator.inputs.quantity import CPU, amount_words
from hulk_operator.inputs.topology import worker_amounts

_MAX_NAMED: Final = 4


@dataclass(frozen=True, slots=True)
class Shortage:
    """Of `num_workers` that a job needs at least beside those whose pods it has, `num_fitting` find room.

    `regions`: the only ones where they may be; empty: any but those that the job denies. `untrusted`: nodes that would
    take them but for their region labels, which are not to be believed.
    """

    num_workers: int
    num_fitting: int
    regions: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()


def worker_size(job: HulkJob) -> Amounts:
    """What a worker's pod takes, by resource, without its slot; device claims of its template are left out."""
    workers, pod = job.spec.workers, job.spec.template.pod_spec()
    size = worker_amounts(pod, workers.resource_name, workers.accelerators_per_worker)
    return {resource: value for resource, value in size.items() if resource != PODS and value}


def shortage_words(job: HulkJob, lack: Shortage) -> str:
    """The sentence for the job's condition: how many workers of what size lack room, on which nodes.

    `job` is the job as its pods would be made.
    """
    size, pod = worker_size(job), job.spec.template.pod_spec()
    each = ", ".join(f"{resource} {amount_words(resource, size[resource])}" for resource in _in_order(size))
    num_lacking = lack.num_workers - lack.num_fitting
    where = "; ".join(_where(job, pod, lack))
    return (
        f"Room is lacking for {num_lacking} of {counted(lack.num_workers, 'worker')}, each of {each}"
        f"{f', on nodes with {where}' if where else ''}."
    )


def _in_order(size: Mapping[str, int]) -> list[str]:
    """Accelerators first."""
    return sorted(size, key=lambda resource: ("/" not in resource, resource != CPU, resource))


def _where(job: HulkJob, pod: Object, lack: Shortage) -> Iterator[str]:
    if selector := pod.get("nodeSelector"):
        yield f"labels {_few([f'{key}={value}' for key, value in sorted(selector.items())])}"
    if ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
        yield "the template's node affinity"
    if lack.regions:
        yield f"region {_few(list(lack.regions))}"
    elif denied := job.spec.placement.denied_regions:
        yield f"a region other than {_few(list(denied))}"
    if tolerations := pod.get("tolerations"):
        yield f"no taints but {_few([_toleration(one) for one in tolerations])}"


def _toleration(one: Mapping[str, Any]) -> str:
    """
    >>> _toleration({"key": "rented", "value": "yes", "effect": "NoSchedule"}), _toleration({"operator": "Exists"})
    ('rented=yes:NoSchedule', 'any')
    """
    if not one.get("key"):
        return "any"
    value = f"={one['value']}" if one.get("value") else ""
    return f"{one['key']}{value}" + (f":{one['effect']}" if one.get("effect") else "")


def _few(words: list[str]) -> str:
    more = f" and {len(words) - _MAX_NAMED} more" if len(words) > _MAX_NAMED else ""
    return ", ".join(words[:_MAX_NAMED]) + more
