"""ResourceQuotas -> which PriorityClasses they grant, and how many pods of each job they admit.

The API server counts a pod when it is created. The queue stops others before that, so it counts the pods of jobs that
wait beforehand. A quota counts for all pods of its namespace, or for those of some PriorityClasses (`scopeSelector`).
What quotas with other scopes leave is up to the API server. A quota for other objects, of which a job's first attempt
needs one each, admits none of its pods when it is used up.

Kubernetes lets every namespace use every class that its API server's configuration does not limit, and shows that to
nobody. So a class is limited here where a quota of any namespace grants it by name, and where its name is reserved:

| class                  | quota of the job's namespace | quota of another one | ranks as     |
|------------------------|------------------------------|----------------------|--------------|
| high                   |                              |                      | high         |
| high                   |                              | grants high          | none         |
| high                   | grants high or every class   |                      | high         |
| high                   | admits no pod of high        |                      | none         |
| system-node-critical   |                              |                      | none         |
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hulk_operator.api import HulkJob
from hulk_operator.cluster import Object
from hulk_operator.inputs.pod_size import LIMITS, Amounts
from hulk_operator.inputs.quantity import amount

_CLASS: Final = "PriorityClass"
_PREFIX: Final = "requests."
_COUNT: Final = "count/"
_RESERVED: Final = "system-"  # Kubernetes' own classes, which exist in every cluster
_GRANTING: Final = frozenset({"In", "Exists"})


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """How much there is and how much is used, by what a pod takes.

    `expressions` choose the PriorityClasses whose pods it counts, all where there is none.
    """

    hard: Amounts
    used: Amounts
    expressions: tuple[Mapping[str, Any], ...] = ()

    def counts(self, class_name: str) -> bool:
        """Whether it counts pods of a class; "": of none."""
        return all(_fits(class_name, one) for one in self.expressions)

    def grants(self, class_name: str) -> bool:
        """Whether it is there for pods of this class, and admits some."""
        meant = any(one["operator"] in _GRANTING for one in self.expressions)
        return meant and self.counts(class_name) and all(self.hard.values())

    def denies(self, class_name: str) -> bool:
        """Whether it is there to keep pods of this class out."""
        return bool(self.expressions) and self.counts(class_name) and not all(self.hard.values())

    @property
    def named(self) -> frozenset[str]:
        """The classes that it grants by name."""
        values = {name for one in self.expressions if one["operator"] == "In" for name in one.get("values") or ()}
        return frozenset(filter(self.grants, values))

    def pods(self, each: Amounts) -> int | None:
        """How many pods that take so much it admits; None: any number."""
        return min((max(0, num // each[key]) for key, num in self._left().items() if each.get(key)), default=None)

    def lacks(self, objects: Amounts) -> bool:
        """Whether it does not admit so many objects of some kind."""
        left = self._left()
        return any(num > left.get(kind, num) for kind, num in objects.items())

    def _left(self) -> Amounts:
        return {key: limit - self.used.get(key, 0) for key, limit in self.hard.items()}

    def used_at_least(self, amounts: Amounts) -> "ResourceQuota":
        """With no less of it used than that."""
        return replace(self, used={key: max(self.used.get(key, 0), amounts.get(key, 0)) for key in self.hard})

    def less(self, need: Amounts) -> "ResourceQuota":
        """With so much more of it used."""
        return replace(self, used={key: self.used.get(key, 0) + need.get(key, 0) for key in self.hard})


Quotas = Mapping[str, Sequence[ResourceQuota]]
"""By namespace."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A job that may get pods which are not there: how many at most, of which class, and what each takes.

    `objects`: what it has made beside them, once.
    """

    key: str
    namespace: str
    class_name: str
    num_pods: int
    each: Amounts
    objects: Amounts = field(default_factory=dict)


def first_objects(job: HulkJob) -> Amounts:
    """What a job that had no attempt yet needs beside pods; that of a later attempt replaces what is there."""
    if job.status.attempt:
        return {}
    found = {"configmaps": 1, "services": 1}
    if job.spec.has_peer_secret:
        found["secrets"] = 1
    if job.spec.network_policy.enabled:
        found["networkpolicies.networking.k8s.io"] = 1
    return found


def resource_quota(body: Object) -> ResourceQuota:
    """A ResourceQuota as the API server has it; one whose pods other scopes choose as well limits nothing here."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    expressions = [*((spec.get("scopeSelector") or {}).get("matchExpressions") or ())]
    expressions += [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    of_classes = tuple(one for one in expressions if one["scopeName"] == _CLASS)
    if len(of_classes) < len(expressions):
        return ResourceQuota({}, {}, of_classes)
    return ResourceQuota(
        _amounts(status.get("hard") or spec.get("hard") or {}), _amounts(status.get("used") or {}), of_classes
    )


def limited_classes(quotas: Quotas) -> frozenset[str]:
    """The classes that some namespaces are granted by name, so that others are not."""
    return frozenset[str]().union(*(quota.named for found in quotas.values() for quota in found))


def is_granted(class_name: str, own: Sequence[ResourceQuota], limited: frozenset[str]) -> bool:
    """Whether a namespace may use a class to go before others, by its `own` quotas and what `limited` classes are."""
    if any(quota.denies(class_name) for quota in own):
        return False
    if class_name in limited or class_name.startswith(_RESERVED):
        return any(quota.grants(class_name) for quota in own)
    return True


def admitted(
    asking: Iterable[Asking], quotas: Quotas, held: Mapping[tuple[str, str], Amounts] | None = None
) -> dict[str, int]:
    """How many pods the quotas of their namespaces admit of the jobs, which are served in this order.

    `held`: what pods that are known of hold, by namespace and class; a quota may not have counted the newest yet.

    >>> three = ResourceQuota({"pods": 3}, {}, ({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},))
    >>> jobs = [Asking(key, "a", of, 2, {"pods": 1}) for key, of in (("x", "high"), ("y", "high"), ("z", "low"))]
    >>> admitted(jobs, {"a": [three]}), admitted(jobs, {"a": [three]}, {("a", "high"): {"pods": 2}})
    ({'x': 2, 'y': 1, 'z': 2}, {'x': 1, 'y': 0, 'z': 2})
    """
    there: dict[str, dict[str, Amounts]] = defaultdict(dict)
    for (namespace, of_class), amounts in (held or {}).items():
        there[namespace][of_class] = amounts
    left = {namespace: [_with(quota, there[namespace]) for quota in found] for namespace, found in quotas.items()}
    found: dict[str, int] = {}
    for job in asking:
        own = left.get(job.namespace, [])
        limits = (quota.pods(job.each) for quota in own if quota.counts(job.class_name))
        lacks = any(quota.lacks(job.objects) for quota in own)
        num = 0 if lacks else min([job.num_pods, *(limit for limit in limits if limit is not None)])
        found[job.key] = num
        taken = {key: value * num for key, value in job.each.items()} | (job.objects if num else {})
        left[job.namespace] = [quota.less(taken) if quota.counts(job.class_name) else quota for quota in own]
    return found


def _with(quota: ResourceQuota, held: Mapping[str, Amounts]) -> ResourceQuota:
    counted = [amounts for of_class, amounts in held.items() if quota.counts(of_class)]
    return quota.used_at_least({key: sum(amounts.get(key, 0) for amounts in counted) for key in quota.hard})


def _amounts(quantities: Mapping[str, str]) -> Amounts:
    """What pods take by the names that quotas have for it; a limit that stands there twice is the smaller one."""
    found: Amounts = {}
    for resource, quantity in quantities.items():
        key = resource.removeprefix(_PREFIX).removeprefix(_COUNT)
        value = amount(key.removeprefix(LIMITS), quantity)
        found[key] = min(found.get(key, value), value)
    return found


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
