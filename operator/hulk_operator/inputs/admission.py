"""Whether a node admits a pod apart from its size: cordons, taints, node selector and required node affinity."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hulk_operator.cluster import Object
from hulk_operator.inputs.node import is_cordoned, is_ready, labels, taints

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
    return is_ready(node) and not kept_out_by(is_cordoned(node), taints(node), spec) and _selected(node, spec)


def wishes(spec: Object) -> Object:
    """Of a pod's spec, what `admits` goes by: the same for pods that only run something else."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    return {"nodeSelector": spec.get("nodeSelector"), "tolerations": spec.get("tolerations"), "affinity": affinity}


def kept_out_by(cordoned: bool, taints: Iterable[Mapping[str, str]], spec: Object) -> str:
    """What keeps new pods of this spec off a node: its cordon, or a taint that they do not tolerate; else empty.

    >>> gpu = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    >>> kept_out_by(False, [gpu], {"tolerations": [{"key": "gpu", "operator": "Exists"}]})
    ''
    >>> kept_out_by(False, [gpu], {})
    'it has the taint gpu=yes:NoSchedule'
    """
    if cordoned:
        return "it is cordoned"
    tolerations = spec.get("tolerations") or ()
    for taint in taints:
        if taint["effect"] in _KEEPS_OUT and not any(_tolerates(one, taint) for one in tolerations):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"it has the taint {taint['key']}{value}:{taint['effect']}"
    return ""


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
