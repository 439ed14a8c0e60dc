"""PodSpec -> what kube-scheduler counts for the pod, by resource (see `quantity` for the units)."""

from collections.abc import Iterable, Mapping

from hulk_operator.cluster import Object
from hulk_operator.inputs.quantity import amounts

Amounts = dict[str, int]
PODS = "pods"


def requests(spec: Object) -> Amounts:
    """Effective requests of a pod, one pod slot included.

    As kube-scheduler counts: the containers and sidecars together, or an init container with the sidecars before it,
    whichever is more; plus the overhead. A request that is absent is the limit.

    >>> requests({"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Ki"}}}]})
    {'cpu': 1000, 'memory': 1024, 'pods': 1}
    """
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        need = _container(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, need))
            peak = _max(peak, sidecars)
        else:
            peak = _max(peak, _sum((sidecars, need)))
    together = _sum((sidecars, *(_container(container) for container in spec["containers"])))
    whole = {**_max(peak, together), **_declared(spec.get("resources") or {})}
    return _sum((whole, amounts(spec.get("overhead") or {}), {PODS: 1}))


def _container(container: Object) -> Amounts:
    return _declared(container.get("resources") or {})


def _declared(resources: Mapping[str, Mapping[str, str]]) -> Amounts:
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for resource, value in part.items():
            total[resource] = total.get(resource, 0) + value
    return total


def _max(first: Amounts, second: Amounts) -> Amounts:
    return {key: max(first.get(key, 0), second.get(key, 0)) for key in {**first, **second}}
