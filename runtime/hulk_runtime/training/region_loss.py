"""After a region was cut off: the ranks that are left share the batch anew, agree on the last step, and go on.

A rank may have completed a step that another one has not: the sum reached it just before the region was lost. Then all
take the state of the rank that is ahead; it is the only one that differs, by one step. Its loss is told with it: the
rank that writes the log may never have seen that step's sum.
"""

from dataclasses import dataclass

import torch

from hulk_runtime.collective.process_group import Group
from hulk_runtime.collective.wire.membership import Membership, shares_of
from hulk_runtime.errors import MembershipChangedError
from hulk_runtime.plan.wire import Plan
from hulk_runtime.training import state
from hulk_runtime.training.stepper import Stepper

_STEP_BASE = 1 << 20
_FIELDS = 4


@dataclass(frozen=True, slots=True)
class Regrouped:
    """Who goes on, the last step that all of them have now, and its loss: nan where none was made since the start."""

    membership: Membership
    step: int
    loss: float


def regroup(plan: Plan, group: Group, stepper: Stepper, step: int) -> Regrouped:
    """Agree with the ranks that are left; `step` is this rank's last. Raises PeerLostError."""
    while True:
        membership = group.adopt()
        stepper.share_out(shares(plan, membership))
        try:
            return Regrouped(membership, _align(group, stepper, membership, step), stepper.loss)
        except MembershipChangedError:  # another region
            continue


def shares(plan: Plan, membership: Membership) -> dict[int, int]:
    """Sequences of the same global batch by rank."""
    planned = dict(enumerate(plan.shares))
    return shares_of(sorted(membership.members), planned, plan.training.global_batch)


def left_out(plan: Plan, membership: Membership) -> list[str]:
    """The regions of which nobody takes part any more."""
    by_rank = plan.regions_by_rank()
    present = {by_rank[rank] for rank in membership.members}
    return [region for region in dict.fromkeys(by_rank) if region not in present]


def _align(group: Group, stepper: Stepper, membership: Membership, step: int) -> int:
    high, low = divmod(step, _STEP_BASE)
    rows = torch.zeros(group.world_size, _FIELDS)
    rows[group.rank] = torch.tensor([float(high), float(low), stepper.scale.value, stepper.loss])
    said = rows.flatten().to(group.device)
    group.all_reduce(said, num_exact=len(said)).wait()
    found: list[list[float]] = said.cpu().view(group.world_size, _FIELDS).tolist()
    steps: dict[int, int] = {
        rank: round(found[rank][0]) * _STEP_BASE + round(found[rank][1]) for rank in sorted(membership.members)
    }
    ahead: int = max(steps, key=lambda rank: (steps[rank], -rank))
    if min(steps.values()) < steps[ahead]:
        _take_over(group, stepper, ahead, scale=found[ahead][2])
        stepper.loss = found[ahead][3]
    return steps[ahead]


def _take_over(group: Group, stepper: Stepper, source: int, scale: float) -> None:
    """The state of one rank on all."""
    vector = state.vector(stepper)
    if group.rank != source:
        vector.zero_()
    group.all_reduce(vector, num_exact=len(vector)).wait()
    state.load(stepper, vector)
    stepper.scale.restart(scale)
