"""PodSpec -> what kube-scheduler and quotas count for the pod, by resource (see `quantity` for the units)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hulk_operator.cluster import Object
from hulk_operator.inputs.quantity import amounts

Amounts = dict[str, int]
PODS = "pods"
LIMITS: Final = "limits."  # before a resource: what a quota has for the limits of pods


def requests(spec: Object) -> Amounts:
    """Effective requests of a pod, one pod slot included.

    As kube-scheduler counts: the containers and sidecars together, or an init container with the sidecars before it,
    whichever is more; plus the overhead. A request that is absent is the limit.

    >>> requests({"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Ki"}}}]})
    {'cpu': 1000, 'memory': 1024, 'pods': 1}
    """
    return _sum((_together(spec, _requested), amounts(spec.get("overhead") or {}), {PODS: 1}))


def limits(spec: Object) -> Amounts:
    """Effective limits of a pod by quotas' names, counted as requests are. Overhead adds to what has a limit.

    >>> limits({"containers": [{"resources": {"limits": {"cpu": "2"}}}], "overhead": {"cpu": "1", "memory": "1Ki"}})
    {'limits.cpu': 3000}
    """
    found, overhead = _together(spec, _limited), amounts(spec.get("overhead") or {})
    return {LIMITS + resource: value + overhead.get(resource, 0) for resource, value in found.items()}


def _together(spec: Object, of: Callable[[Object], Amounts]) -> Amounts:
    """What all containers take. `of`: what one set of resources says."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        need = of(container.get("resources") or {})
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, need))
            peak = _max(peak, sidecars)
        else:
            peak = _max(peak, _sum((sidecars, need)))
    together = _sum((sidecars, *(of(container.get("resources") or {}) for container in spec["containers"])))
    return {**_max(peak, together), **of(spec.get("resources") or {})}


def _requested(resources: Mapping[str, Mapping[str, str]]) -> Amounts:
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _limited(resources: Mapping[str, Mapping[str, str]]) -> Amounts:
    return amounts(resources.get("limits") or {})


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for resource, value in part.items():
            total[resource] = total.get(resource, 0) + value
    return total


def _max(first: Amounts, second: Amounts) -> Amounts:
    return {key: max(first.get(key, 0), second.get(key, 0)) for key in {**first, **second}}
