"""What first steps tell of a model of which the spec says nothing -> `ObservedModel`, for later plans."""

from typing import Any, Final

from hulk_operator import names
from hulk_operator.api import ObservedModel
from hulk_operator.inputs.unknown_model import template_digest
from hulk_operator.observation import Observation
from hulk_operator.reconcile.plan_summary import microseconds
from hulk_operator.reconcile.types import View

NUM_WARMING_STEPS: Final = 2  # kernels are chosen, memory is found


def observed_model(view: View, seen: Observation) -> ObservedModel | None:
    """What was measured last, in whichever attempt; what this attempt has not measured yet is as it was."""
    before = view.status.observed.model if view.status.observed else None
    if view.job.spec.model is not None:
        return None
    if not seen.num_parameters or not seen.gradient_bytes:
        return before
    template = template_digest(view.job.spec)
    sizes = ObservedModel(parameters=seen.num_parameters, gradient_bytes=seen.gradient_bytes, template=template)
    if times := _times(view, seen):
        return sizes.model_copy(update=times)
    return (
        before.model_copy(update=sizes.model_dump(exclude_unset=True))
        if before and before.template == template
        else sizes
    )


def _times(view: View, seen: Observation) -> dict[str, Any]:
    """What rank 0 computes in a step, of which part of the batch, on what; empty where that is not known."""
    compute_s = seen.compute_s.get(0)
    if compute_s is None or seen.step_s is None or view.full is None or (seen.step or 0) <= NUM_WARMING_STEPS:
        return {}
    plan, spec = view.full.plan, view.job.spec
    node = plan.rank_machines[0]
    state = view.nodes.get(node)
    if state is None:
        return {}
    return {
        "step_microseconds": microseconds(seen.step_s),
        "compute_microseconds": max(1, microseconds(compute_s)),
        "sequences": plan.shares[0] if spec.training.global_batch else None,
        "node": node,
        "product": state.products.get(spec.workers.resource_name, names.UNKNOWN_PRODUCT),
    }
