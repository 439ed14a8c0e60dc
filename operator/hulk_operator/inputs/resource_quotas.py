"""ResourceQuotas -> how many pods of each job they admit: for more, the queue takes nothing from others.

The API server counts a pod when it is created. The queue stops others before that, so it counts the pods of jobs that
wait beforehand. A quota counts for all pods of its namespace, or for those of some PriorityClasses (`scopeSelector`).
Quotas with other scopes are left to the API server.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hulk_operator.cluster import Object
from hulk_operator.inputs.pod_size import Amounts
from hulk_operator.inputs.quantity import amount

_CLASS: Final = "PriorityClass"
_PREFIX: Final = "requests."
_ALSO: Final = {"count/pods": "pods"}


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """What one leaves, by what a pod takes; `expressions` choose the PriorityClasses whose pods it counts."""

    left: Amounts
    expressions: tuple[Mapping[str, Any], ...] = ()

    def counts(self, class_name: str) -> bool:
        """Whether it counts pods of a class; "": of none."""
        return all(_fits(class_name, one) for one in self.expressions)

    def pods(self, each: Amounts) -> int | None:
        """How many pods that take so much it admits; None: any number."""
        return min((max(0, left // each[key]) for key, left in self.left.items() if each.get(key)), default=None)

    def less(self, need: Amounts) -> "ResourceQuota":
        """With so much of it taken."""
        return ResourceQuota({key: left - need.get(key, 0) for key, left in self.left.items()}, self.expressions)


@dataclass(frozen=True, slots=True)
class Asking:
    """A job that may get pods which are not there: how many at most, of which class, and what each takes."""

    key: str
    namespace: str
    class_name: str
    num_pods: int
    each: Amounts


def resource_quota(body: Object) -> ResourceQuota | None:
    """A ResourceQuota as the API server has it; None where other scopes choose the pods that it counts."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    expressions = [*((spec.get("scopeSelector") or {}).get("matchExpressions") or ())]
    expressions += [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    if any(one["scopeName"] != _CLASS for one in expressions):
        return None
    hard, used = status.get("hard") or spec.get("hard") or {}, status.get("used") or {}
    left = {_key(key): amount(_key(key), limit) - amount(_key(key), used.get(key, "0")) for key, limit in hard.items()}
    return ResourceQuota(left, tuple(expressions))


def admitted(asking: Iterable[Asking], quotas: Mapping[str, Sequence[ResourceQuota]]) -> dict[str, int]:
    """How many pods the quotas of their namespaces admit of the jobs, which are served in this order.

    >>> three = ResourceQuota({"pods": 3}, ({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},))
    >>> jobs = [Asking(key, "a", of, 2, {"pods": 1}) for key, of in (("x", "high"), ("y", "high"), ("z", "low"))]
    >>> admitted(jobs, {"a": [three]})
    {'x': 2, 'y': 1, 'z': 2}
    """
    left = {namespace: list(found) for namespace, found in quotas.items()}
    found: dict[str, int] = {}
    for job in asking:
        own = left.get(job.namespace, [])
        limits = (quota.pods(job.each) for quota in own if quota.counts(job.class_name))
        found[job.key] = num = min([job.num_pods, *(limit for limit in limits if limit is not None)])
        taken = {key: value * num for key, value in job.each.items()}
        left[job.namespace] = [quota.less(taken) if quota.counts(job.class_name) else quota for quota in own]
    return found


def _key(resource: str) -> str:
    """What a pod takes by the name that a quota has for it."""
    return _ALSO.get(resource, resource.removeprefix(_PREFIX))


def _fits(class_name: str, expression: Mapping[str, Any]) -> bool:
    values = expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return class_name in values
        case "NotIn":
            return class_name not in values
        case "Exists":
            return bool(class_name)
        case _:  # DoesNotExist
            return not class_name
