"""DiLoCo around a script's own loop: replicas train apart, and come together once a round.

    with hulk.DiLoCo(model, optimizer, sync_every=50):
        for batch in batches:
            loss(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()

Each call of the optimizer's `step` is an inner step. With several fragments, layers come together in turn; with a
delay, training goes on while they are summed (Streaming DiLoCo, arXiv 2501.18512). At the end of the context all
replicas come together once more, and have the same parameters.
"""

import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from hulk_runtime.diloco import ddp_apart, replicas, state, trained
from hulk_runtime.diloco.ddp_apart import Apart
from hulk_runtime.diloco.fragment import Fragment, UnderWay
from hulk_runtime.diloco.fragments import num_units
from hulk_runtime.diloco.outer_step import Factory, Outer, outer_for
from hulk_runtime.diloco.replicas import Introduction
from hulk_runtime.diloco.settings import Job, Settings
from hulk_runtime.diloco.sums import Sums, sums_of
from hulk_runtime.diloco.warmup import Gradients

_entered: Final["weakref.WeakSet[torch.optim.Optimizer]"] = weakref.WeakSet()


class DiLoCo:
    """A context in which replicas train apart; what a script leaves out is as its job says.

    `fragments`: their number, or the modules that each is made of. `outer`: an `Outer`, or what makes one of torch's
    optimizers of a list of parameters; absent: `Outer(1, 0.5)`, with a delay `Outer(0.7, 0.9)`. `mixing`: what part of
    a replica's own parameters is left by a merge; 0.5 with a delay, else 0. `compression`: none, bf16, int8 or int4, of
    outer gradients, with error feedback. `group`: the ranks that hold the same parameters; absent: found. `warmup`:
    steps before the first round, in which gradients are summed; those of a job are less by the steps that the inner
    optimizer has made when a context is entered without a state. `weight`: what this replica counts, such as its
    sequences per step.
    Raises ValueError, with the numbers, for what cannot be.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inner_optimizer: torch.optim.Optimizer,
        *,
        sync_every: int | None = None,
        fragments: int | Sequence[torch.nn.Module] | None = None,
        delay: int | None = None,
        mixing: float | None = None,
        outer: Outer | Factory | None = None,
        compression: str | None = None,
        group: "dist.ProcessGroup | DeviceMesh | None" = None,
        warmup: int | None = None,
        weight: float = 1.0,
    ) -> None:
        if not 0 < weight < math.inf:
            raise ValueError(f"weight {weight} must be > 0")
        if not (outer is None or isinstance(outer, Outer) or callable(outer)):
            raise ValueError(
                f"outer {outer!r} must be hulk.Outer(rate, momentum), or a function from a list of parameters to a "
                "torch optimizer"
            )
        modules = trained.modules(fragments)
        num_fragments: Any = fragments if modules is None else len(modules)
        self._settings = Settings.chosen(sync_every, num_fragments, delay, mixing, compression, warmup)
        self._optimizer = trained.one_optimizer(inner_optimizer)
        self._model, self._given, self._weight = model, group, float(weight)
        default = Job.here().outer or outer_for(self._settings.delay)
        self._outer = default if outer is None else outer
        parameters = trained.parameters(model, self._optimizer)
        if fragments is None:  # a plan goes by the layers that a job says its model has
            fewer = min(self._settings.num_fragments, num_units(parameters))
            self._settings = replace(self._settings, num_fragments=fewer)
        parts = trained.parts(parameters, modules, self._settings.num_fragments)
        self._fragments = [Fragment({name: parameters[name] for name in names}, self._outer) for names in parts]
        self._num_trained = trained.count(self._optimizer)
        self._step = 0
        self._is_warmup_of_job = warmup is None
        self._share = 1.0
        self._group: dist.ProcessGroup | None = None
        self._sums: Sums | None = None
        self._apart: list[Apart] = []
        self._hooks: list[Any] = []

    @property
    def step(self) -> int:
        """Inner steps so far; with a job's warm-up also those of it that an earlier process made."""
        return self._step

    def replica(self) -> int:
        """This replica's number; all ranks ask together. Raises ValueError where there is none for checkpoints."""
        if not isinstance(self._outer, Outer):
            raise ValueError("an outer optimizer of its own has states of its own names: only hulk.Outer's are saved")
        group = replicas.of_model(self._model, self._given)
        return 0 if group is None else dist.get_rank(group)

    def __enter__(self) -> "DiLoCo":
        if self._optimizer in _entered:
            raise ValueError("the optimizer is in a DiLoCo context already")
        self._group = replicas.of_model(self._model, self._given)
        self._apart = ddp_apart.of_model(self._model, self._group)
        if self._is_warmup_of_job and not self._step:
            self._step = int(min(self._settings.warmup, trained.num_steps(self._optimizer)))
        with torch.no_grad():
            self._follow()
            self._meet()
            self._tell_warmup()
            self._sums = sums_of(self._group, self._settings.compression)
            self._hooks = [self._optimizer.register_step_post_hook(self._stepped)]
            _entered.add(self._optimizer)
            self._begin_warmup_or_rounds()
            try:
                self._send_again()
            except BaseException:
                self._leave(is_whole=False)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_whole = False
        try:
            if kind is None:
                self._come_together()
                replicas.wait_for_all(self._group)
                is_whole = True
        finally:
            self._leave(is_whole)

    def _leave(self, is_whole: bool) -> None:
        """What is under way is waited for by nobody; who enters again begins it again."""
        for hook in self._hooks:
            hook.remove()
        _entered.discard(self._optimizer)
        self._keep_apart(False)
        assert self._sums is not None
        self._sums.close(is_whole)
        self._sums = None
        for fragment in self._fragments:
            if fragment.under_way is not None:
                fragment.under_way = replace(fragment.under_way, sum=None)

    def _keep_apart(self, on: bool) -> None:
        for wrapped in self._apart:
            wrapped.switch(on)

    def _tell_warmup(self) -> None:
        """By rank 0, where there is a warm-up."""
        whole = self._settings.warmup
        if whole and not (dist.is_initialized() and dist.get_rank()):
            left = max(0, whole - self._step)
            print(f"hulk: DiLoCo warms up for {left} of {whole} steps\n", end="", flush=True)

    def _begin_warmup_or_rounds(self) -> None:
        if self._step >= self._settings.warmup:
            self._keep_apart(True)
        elif not self._apart:
            every = [one for fragment in self._fragments for one in fragment.parameters.values()]
            gradients = Gradients(every, sums_of(self._group, "none"), self._share)
            self._hooks.append(self._optimizer.register_step_pre_hook(gradients.before_step))

    def _follow(self) -> None:
        """As long as all replicas are the same, all begin where they are."""
        if self._step <= self._settings.warmup:
            for fragment in self._fragments:
                fragment.begin_here()
                fragment.begun = self._step

    def _send_again(self) -> None:
        for fragment in self._in_order():
            if fragment.under_way is not None:
                self._send(fragment, fragment.under_way)
        self._merge_those_due()

    def _in_order(self) -> list[Fragment]:
        """Of their sums, which is the same on all replicas."""
        return sorted(self._fragments, key=lambda fragment: fragment.begun)

    def _meet(self) -> None:
        """Those that are behind take what the farthest replica has; the others go on as they are."""
        held = [value for one in self._fragments for value in (one.anchor_N, one.outer.state(), one.begun)]
        held += [one.under_way is not None for one in self._fragments]
        layout = tuple((len(one.anchor_N), str(one.anchor_N.dtype)) for one in self._fragments)
        outer = self._outer if isinstance(self._outer, Outer) else "outer optimizer of its own"
        mine = Introduction(
            (self._settings, f"fragments {layout}", outer), self._weight, self._step, replicas.digest(held)
        )
        found = replicas.meet(self._group, mine)
        self._share = self._weight / sum(one.weight for one in found)
        source = replicas.leader(found)
        if all((one.step, one.held) == (found[source].step, found[source].held) for one in found):
            return
        for fragment in self._fragments:
            shared = replicas.share(self._group, source, partial(state.shared, fragment))
            if (mine.step, mine.held) != (found[source].step, found[source].held):
                state.adopt(fragment, shared)
        self._step = found[source].step

    def _stepped(self, *_: object) -> None:
        """After each step of the inner optimizer."""
        self._step += 1
        with torch.no_grad():
            if self._step == self._settings.warmup:
                self._follow()
                self._keep_apart(True)
                while len(self._hooks) > 1:
                    self._hooks.pop().remove()
            for number, fragment in enumerate(self._fragments):
                if self._settings.begins(number, self._step):
                    self._begin(fragment)
            self._merge_those_due()

    def _begin(self, fragment: Fragment) -> None:
        if (found := trained.count(self._optimizer)) != self._num_trained:
            raise ValueError(
                f"the optimizer now has {found} parameters that require gradients, it had {self._num_trained}: "
                "leave the context, and make another DiLoCo"
            )
        fragment.begun = self._step
        self._send(fragment, UnderWay(self._step, fragment.outer_gradient(), None))

    def _send(self, fragment: Fragment, under_way: UnderWay) -> None:
        assert self._sums is not None
        fragment.under_way = under_way  # also where it cannot begin
        weighted_N = under_way.gradient_N * self._share
        begun = self._sums.begin(weighted_N, fragment.feedback, self._fragments.index(fragment))
        fragment.under_way = replace(under_way, sum=begun)

    def _merge_those_due(self) -> None:
        for fragment in self._in_order():
            if fragment.under_way is not None and self._step - fragment.under_way.begun >= self._settings.delay:
                self._merge(fragment, self._settings.mixing)

    def _merge(self, fragment: Fragment, mixing: float) -> None:
        assert fragment.under_way is not None
        assert fragment.under_way.sum is not None
        mean_N, fragment.feedback = fragment.under_way.sum.wait()
        fragment.under_way = None
        fragment.take(mean_N, mixing)

    def _come_together(self) -> None:
        """All that is under way is merged, and what was trained since then summed: replicas are the same."""
        with torch.no_grad():
            self._follow()
            for fragment in self._in_order():
                if fragment.under_way is not None:
                    self._merge(fragment, 0.0 if fragment.begun == self._step else self._settings.mixing)
            late = [fragment for fragment in self._fragments if fragment.begun < self._step]
            for fragment in late:
                self._begin(fragment)
            for fragment in late:
                self._merge(fragment, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """What this replica needs to go on, beside the model and the inner optimizer; tensors are not copied."""
        if self._sums is not None:
            with torch.no_grad():
                self._follow()
        return {"step": self._step, "fragments": [state.of_fragment(fragment) for fragment in self._fragments]}

    def shared_state_dict(self) -> dict[str, Any]:
        """What any replica can go on from where only one's checkpoint is kept; sums under way are waited for."""
        return {**self.state_dict(), "fragments": [state.of_all(fragment) for fragment in self._fragments]}

    def load_state_dict(self, found: dict[str, Any], *, keep_model: bool = False) -> None:
        """Go on from there, outside a context. The model goes back to the last outer step of each fragment.

        `keep_model`: the model and the inner optimizer are loaded as they were after the same step.
        """
        if self._sums is not None:
            raise ValueError(f"a state is loaded before the context is entered, not after step {self._step} in it")
        if len(found["fragments"]) != len(self._fragments):
            raise ValueError(f"state of {len(found['fragments'])} fragments for {len(self._fragments)}")
        with torch.no_grad():
            for fragment, saved in zip(self._fragments, found["fragments"], strict=True):
                state.load(fragment, saved)
                if not keep_model:
                    fragment.merge(0.0)
        self._step = found["step"]
