"""torch.distributed's `init_process_group` makes planned groups of whatever backends a program asks for."""

import functools
import sys
from typing import Any


def wrap(torch_distributed: Any) -> None:
    """Have the module's `init_process_group` make planned groups where the plan sums between regions."""
    plain = torch_distributed.init_process_group

    @functools.wraps(plain)
    def init_process_group(*arguments: Any, **options: Any) -> None:
        is_planned = _plan_groups(torch_distributed)
        plain(*arguments, **options)
        if is_planned and torch_distributed.get_rank() == 0:
            _say()

    package = sys.modules["torch.distributed"]  # which takes the name over, if it has not already
    for module in (torch_distributed, package):
        vars(module)["init_process_group"] = init_process_group


@functools.cache
def _plan_groups(torch_distributed: Any) -> bool:
    """From now on torch makes planned groups, also of some of the ranks; whether the plan sums between regions."""
    from hulk_runtime.collective import planned_sums, script_exit  # import torch, as does what follows

    script_exit.end_with_its_code()
    if not planned_sums.is_planned():
        return False
    from torch.nn.parallel import DistributedDataParallel

    from hulk_runtime.collective import ddp
    from hulk_runtime.collective.backend import PlannedGroup

    torch_distributed.ProcessGroup = _stands_for(torch_distributed.ProcessGroup, PlannedGroup)
    ddp.take_over(DistributedDataParallel)
    return True


def _stands_for(every: type, made: type) -> type:
    """A class that makes one kind of groups; an instance of it is a group of any kind, as torch asks."""

    class OfAnyKind(type(every)):  # type: ignore[misc]  # pybind's own metaclass
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, every)

    return OfAnyKind("ProcessGroup", (made,), {})


def _say() -> None:
    from hulk_runtime.collective import planned_sums

    plan = planned_sums.plan()
    assert plan is not None
    regions = ", ".join(dict.fromkeys(worker.region for worker in plan.workers))
    how = "sums between regions go as planned"
    if plan.inner_steps is not None:
        how = (
            f"replicas are to train apart for {plan.inner_steps} steps: Hugging Face's Trainer and Lightning do so by "
            "themselves, other scripts by hulk.DiLoCo"
        )
    print(
        f"hulk: {plan.num_ranks} ranks in {regions}: {how} (spec.instrumentation: none leaves them to torch)",
        file=sys.stderr,
        flush=True,
    )
