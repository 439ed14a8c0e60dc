"""Whether a node admits a pod apart from its size: cordons, taints, node selector and required node affinity."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hulk_operator.cluster import Object
from hulk_operator.inputs.node import is_ready, labels

_KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})
_OPERATORS: Final[Mapping[str, Callable[[str | None, list[str]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: value is not None and value.lstrip("-").isdigit() and int(value) > int(values[0]),
    "Lt": lambda value, values: value is not None and value.lstrip("-").isdigit() and int(value) < int(values[0]),
}


def admits(node: Object, spec: Object) -> bool:
    """Whether kube-scheduler's filters other than resources let a pod of this spec onto the node.

    Pod (anti-)affinity, topology spread, host ports and volumes are left to kube-scheduler: a gang that they hold back
    runs into its start timeout and avoids the node.
    """
    return (
        is_ready(node)
        and not (node.get("spec") or {}).get("unschedulable")
        and tolerated((node.get("spec") or {}).get("taints") or (), spec.get("tolerations") or ())
        and _selected(node, spec)
    )


def tolerated(taints: Iterable[Mapping[str, str]], tolerations: Iterable[Mapping[str, str]]) -> bool:
    """Whether every taint that keeps pods out is tolerated.

    >>> tolerated([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}], [{"key": "gpu", "operator": "Exists"}])
    True
    """
    known = list(tolerations)
    return all(taint["effect"] not in _KEEPS_OUT or any(_tolerates(one, taint) for one in known) for taint in taints)


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _selected(node: Object, spec: Object) -> bool:
    own = labels(node)
    if any(own.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(_term_matches(term, own, fields) for term in required.get("nodeSelectorTerms") or ())


def _term_matches(term: Object, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    """All requirements of one alternative; an empty one matches nothing."""
    expressions, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not by_field:
        return False
    return all(_matches(one, labels) for one in expressions) and all(_matches(one, fields) for one in by_field)


def _matches(requirement: Object, values: Mapping[str, str]) -> bool:
    return _OPERATORS[requirement["operator"]](values.get(requirement["key"]), requirement.get("values") or [])
