"""What other controllers hold up: scheduling gates before a pod starts, finalizers after it has ended."""

from collections.abc import Iterable
from typing import Final

from hulk_operator.api import ConditionType
from hulk_operator.pods import WorkerPod
from hulk_operator.reconcile.attempt_state import deployed, head, in_force, num_workers, set_condition
from hulk_operator.reconcile.held_pods import held_pods
from hulk_operator.reconcile.types import NOTHING, Outcome, View
from hulk_operator.status import holds

_NUM_NAMED: Final = 3


def held(view: View) -> Outcome:
    """Say which pods wait for which finalizer."""
    pods = held_pods(view)
    if pods:
        each = _named(f"pod {pod.name} waits for {_list(pod.finalizers, 'finalizer')}" for pod in pods)
        message = f"{each}: {'its' if len(pods) == 1 else 'their'} accelerators stay reserved until then"
        return Outcome(status=set_condition(view, ConditionType.HELD, True, "Finalizers", head(message)))
    if holds(view.status, ConditionType.HELD):
        message = "no pod that has ended is held by a finalizer any more"
        return Outcome(status=set_condition(view, ConditionType.HELD, False, "Gone", message))
    return NOTHING


def gated(view: View) -> Outcome:
    """Say behind which scheduling gates the gang waits; the time until they are gone is no start timeout."""
    if not in_force(view) or deployed(view):
        return NOTHING
    pods = [pod for pod in view.gang if pod.gates]
    if pods:
        message = f"{len(pods)} of {num_workers(view)} pods wait behind scheduling gates: {_named(map(_gates, pods))}"
        return Outcome(status=set_condition(view, ConditionType.GATED, True, "SchedulingGates", head(message)))
    if holds(view.status, ConditionType.GATED):
        message = "no pod waits behind a scheduling gate any more"
        return Outcome(status=set_condition(view, ConditionType.GATED, False, "GatesRemoved", message))
    return NOTHING


def _gates(pod: WorkerPod) -> str:
    return f"{pod.name} for {_list(pod.gates, 'gate')}"


def _list(found: tuple[str, ...], what: str) -> str:
    return f"{what}{'s' if len(found) > 1 else ''} {', '.join(found)}"


def _named(texts: Iterable[str]) -> str:
    first, *others = found = tuple(texts)
    more = len(others) - (_NUM_NAMED - 1)
    return "; ".join(found[:_NUM_NAMED]) + (f"; and {more} more" if more > 0 else "") if others else first
