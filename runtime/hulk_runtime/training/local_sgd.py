"""Local SGD: each rank trains by itself for some steps, then all take one outer step together.

DiLoCo (Douillard et al., arXiv 2311.08105): a round is H inner steps and an outer step. In inner step s rank r updates
its own parameters p_r with its own share of the step's global batch, so that a round reads the same sequences as H
synchronous steps. The outer step moves the anchor, from which all began the round:

    g = sum over ranks of share_r / batch x (anchor - p_r)      one all-reduce
    v = momentum v + g                                          momentum and learning rate are the plan's
    anchor = anchor - learning rate (g + momentum v)            where all begin the next round

A rank keeps its inner optimizer's vectors to itself, but for what goes into a checkpoint: before that they become their
mean over the ranks. So what is saved is what every rank goes on with, and a run that resumes goes on as the one that
saved would have, with any number of ranks.

What ranks tell each other rides in the outer all-reduce, so a wish to stop is granted at the end of a round.
"""

from collections.abc import Mapping

import torch

from hulk_runtime.collective.process_group import Group
from hulk_runtime.diloco.outer_step import Nesterov
from hulk_runtime.diloco.settings import outer_of
from hulk_runtime.plan.wire import Plan
from hulk_runtime.training.data_parallel import RankReport, StepReport
from hulk_runtime.training.stepper import Stepper, Task, Timing


class LocalStepper(Stepper):
    """Inner steps, and outer ones after every `plan.inner_steps` of them and after the last.

    The first steps, `warmup_steps` of the plan, are those of every other stepper.
    """

    def __init__(self, plan: Plan, group: Group, task: Task, metrics_port: int) -> None:
        assert plan.inner_steps is not None
        super().__init__(plan, group, task, metrics_port)
        self._inner_steps, self._warmup = plan.inner_steps, plan.warmup_steps
        self._global_batch = plan.training.global_batch
        self._last_step = plan.training.steps
        outer = outer_of(plan)
        self._outer = Nesterov(self.flat.parameters_N, outer.momentum)
        self._outer_learning_rate = outer.learning_rate
        self._anchor_N = torch.empty_like(self.flat.parameters_N)
        self._at_anchor = True

    def share_out(self, shares: Mapping[int, int]) -> None:
        """As every stepper; the outer step weighs each rank by its share."""
        super().share_out(shares)
        self._divisor = len(self._sequences)
        self._share = len(self._sequences) / sum(shares.values())

    @property
    def vectors(self) -> list[torch.Tensor]:
        """The outer velocity is the last."""
        return [*super().vectors, *self._outer.states]

    def together(self, step: int, stop: bool, save: bool) -> tuple[Timing, StepReport]:
        """One inner step, and where it is a round's last the outer step. Raises PeerLostError at the anchor."""
        if step <= self._warmup:
            return self._of_all(step, stop, save)
        if self._at_anchor:
            self._anchor_N.copy_(self.flat.parameters_N)
            self._at_anchor = False
        started = self._now()
        loss = self._inner_step(step)
        computed = self._now()
        compute_s = computed - started
        mine = RankReport(step, compute_s, self._link, self._sum)
        if (step - self._warmup) % self._inner_steps and step != self._last_step:
            return Timing(compute_s, compute_s, 0.0), StepReport(loss, False, (mine,), of_all=False)
        report = self._outer_step(step, self._tail.pack(loss * self._share, stop, mine, save))
        ended = self._now()
        return Timing(ended - started, compute_s, ended - computed), report

    def _of_all(self, step: int, stop: bool, save: bool) -> tuple[Timing, StepReport]:
        own, self._divisor = self._divisor, self._global_batch
        try:
            return super().together(step, stop, save)
        finally:
            self._divisor = own

    def _inner_step(self, step: int) -> float:
        """Mean loss of this rank's share. The loss scale, too, is each rank's own within a round."""
        self.flat.start()
        loss = self._backward(step, together=False)
        if self.scale.unscale(self.flat.gradients_N):
            self.optimizer.update(self.flat.parameters_N, self.flat.gradients_N, step, self._task.learning_rate)
        return loss

    def _outer_step(self, step: int, tail: torch.Tensor) -> StepReport:
        """All that can fail comes before anything that is saved changes."""
        parameters_N, gradients_N = self.flat.parameters_N, self.flat.gradients_N
        torch.sub(self._anchor_N, parameters_N, out=gradients_N).mul_(self._share)
        parameters_N.copy_(self._anchor_N)
        self._at_anchor = True
        self.flat.finish(tail)
        report = self._tail.unpack(self.flat.tail)
        self._require_lockstep(step, report)
        if report.save or report.stop or step == self._last_step:
            self._agree()
        self._outer.update(parameters_N, gradients_N, step, self._outer_learning_rate)
        self.loss = report.loss
        self._look_at_links()
        return report

    def _agree(self) -> None:
        """Inner vectors become their mean over the ranks, loss scales the smallest."""
        group, states = self._group, self.optimizer.states
        scales_R = torch.zeros(group.world_size, device=group.device)
        scales_R[group.rank] = self.scale.value
        shared = torch.cat([*(state_N * self._share for state_N in states), scales_R])
        group.all_reduce(shared, num_exact=len(shared)).wait()
        means, scales_R = shared[: -group.world_size], shared[-group.world_size :]
        for state_N, mean_N in zip(states, means.chunk(max(1, len(states))), strict=False):
            state_N.copy_(mean_N)
        self.scale.restart(float(scales_R.min()))
