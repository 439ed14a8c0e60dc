"""PriorityClasses -> how important a job's pods are, and whether they may take the place of others.

A pod without a class gets the one that is the default of the cluster; where there is none, its priority is 0. A class
whose `preemptionPolicy` is Never goes first among those that wait, and stops nobody. A class that the ResourceQuotas of
the job's namespace would have to grant, and do not, ranks no higher than none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hulk_operator.cluster import Object

_NEVER: Final = "Never"


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """One class; without a name, what pods have where no class is theirs. `note`: why it counts for less."""

    name: str = ""
    value: int = 0
    preempts: bool = True
    is_default: bool = False
    note: str = ""

    def ungranted(self, usual: "PriorityClass", namespace: str) -> "PriorityClass":
        """What it counts for where it is not granted: as the class of pods that name none, where that is less."""
        if self.value <= usual.value:
            return self
        note = f"PriorityClass {self.name} counts for nothing here: no ResourceQuota of namespace {namespace} grants it"
        return replace(self, value=usual.value, note=note)


NO_CLASS: Final = PriorityClass()


def priority_class(body: Object) -> PriorityClass:
    """A PriorityClass as the API server has it."""
    preempts, is_default = body.get("preemptionPolicy") != _NEVER, bool(body.get("globalDefault"))
    return PriorityClass(body["metadata"]["name"], int(body["value"]), preempts, is_default)


def class_of(name: str | None, classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    """The class of pods that name one, or none; None where there is no such class.

    >>> high, usual = PriorityClass("high", 9), PriorityClass("usual", 5, is_default=True)
    >>> class_of(None, {"high": high, "usual": usual}).value, class_of(None, {"high": high}).value
    (5, 0)
    """
    if name is not None:
        return classes.get(name)
    defaults = [one for one in classes.values() if one.is_default]
    return min(defaults, key=lambda one: one.value, default=NO_CLASS)  # as Kubernetes does where there are several
