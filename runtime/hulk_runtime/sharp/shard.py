"""A shard: consecutive layers of one trial, at home on the host, that visit a device for a forward or a backward pass.

While it visits, the parameters' data are copies on the device. Between forward and backward pass what autograd has
saved goes home too, each storage once; a saved parameter is not copied but named, and read again from wherever the
shard visits next. On a device that cannot take over another's graph only the input is kept, and the backward pass
begins with a second forward pass, with the random numbers of the first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge, saved_tensors_hooks

from hulk_runtime.errors import ConfigurationError
from hulk_runtime.sharp.activations import Entry, Moving, Pass, view_of, whole_storage, without_rest
from hulk_runtime.sharp.device import Device
from hulk_runtime.sharp.rng_stream import Stream

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Shard:
    """The layers from number `first` on. `loss` is there where the last layer is among them."""

    def __init__(
        self,
        first: int,
        layers: Sequence[nn.Module],
        make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
        loss: Loss | None,
    ) -> None:
        self.first, self.layers, self.loss = first, layers, loss
        self._parameters = list(dict.fromkeys(p for layer in layers for p in layer.parameters()))
        self._buffers = list(dict.fromkeys(b for layer in layers for b in layer.buffers()))
        self._places = [
            (module, name, buffer)
            for layer in layers
            for module in layer.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]
        self._homes = [tensor.data for tensor in self._tensors]
        trained = [p for p in self._parameters if p.requires_grad]
        self.optimizer = make_optimizer(trained) if trained else None
        self._states: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        self._visited: Device | None = None
        self._changed = False
        self._pass = Pass()

    @property
    def _tensors(self) -> list[torch.Tensor]:
        return [*self._parameters, *self._buffers]

    def pin(self, device: Device) -> None:
        """Make its home memory from which the device copies fast."""
        self._homes = [device.home(tensor.data) for tensor in self._tensors]
        self._go_home()

    def load(self, device: Device, *, backward: bool) -> None:
        """Everything that a pass needs on the device, but for its input."""
        if self._visited is None:
            self._visited = device
            for tensor, home in zip(self._tensors, self._homes, strict=True):
                tensor.data = device.load(home)
        if not backward:
            return
        if not self._states:
            for values, key in self._optimizer_states():
                home = values[key]
                values[key] = device.load(home)
                self._states.append((values, key, home))
        for kept in self._pass.kept:
            kept.load(device)

    def unload(self) -> None:
        """Home, with what has changed."""
        device = self._visited
        if device is None:
            return
        for tensor, home in zip(self._tensors, self._homes, strict=True):
            if self._changed or not isinstance(tensor, nn.Parameter):
                device.unload(tensor.data, home)
        if self._changed:
            self._unload_states(device)
        for kept in self._pass.kept:
            kept.unload()
        self._go_home()

    def discard(self) -> None:
        """Home, without what has changed, with no pass begun and no gradient left of one that broke off."""
        for parameter in self._parameters:
            parameter.grad = None
        self._pass = Pass()
        self._go_home()

    def forward(self, x: torch.Tensor, targets: torch.Tensor | None, stream: Stream) -> torch.Tensor:
        """The output, or the loss where there is one; call it inside `device.computing(stream)`."""
        device = self._visited
        assert device is not None, "a shard computes where it was loaded"
        if device.recomputes:
            before = [buffer.clone() for buffer in self._buffers]
            self._pass = Pass([Moving(t, device) for t in (x, targets) if t is not None], again=stream.copy())
            mine = x.clone()  # a layer may change its input in place
            output = without_rest(self._run(mine, targets, Pass()).detach())
            self._pass.before = {
                number: Moving(value, device)
                for number, value in enumerate(before)
                if not torch.equal(value, self._buffers[number])
            }
            self._pass.kept += self._pass.before.values()
            return output
        self._pass = Pass()
        by_storage: dict[tuple[int, torch.dtype], Moving] = {}
        own = {tensor.untyped_storage()._cdata: number for number, tensor in enumerate(self._tensors)}

        def pack(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
            seen = view_of(tensor)
            number = own.get(tensor.untyped_storage()._cdata)
            if number is not None:
                mine = self._tensors[number]
                return lambda: seen(mine.data)
            key = (tensor.untyped_storage()._cdata, tensor.dtype)
            if key not in by_storage:
                by_storage[key] = Moving(whole_storage(tensor, tensor.dtype), device)
            kept = by_storage[key]
            return lambda: seen(kept.tensor)

        with saved_tensors_hooks(pack, lambda read: read()):
            output = self._run(x, targets, self._pass)
        self._pass.kept = list(by_storage.values())
        return without_rest(output.detach())

    def random_numbers(self, stream: Stream) -> Stream:
        """Those with which the backward pass is to be called: only a forward pass that is done again draws any."""
        return self._pass.again or stream.sealed()

    def backward(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """Train by the output's gradient, None for the loss; the input's gradient, None where it has none."""
        passed = self._pass
        self._pass = Pass()  # whatever is kept goes as soon as autograd has used it
        if passed.again is not None:
            self._forward_again(passed)
            passed.again.is_sealed = True
        passed.kept = []
        if passed.edge is not None and (gradient is not None or self.loss is not None):
            at = torch.ones(()) if gradient is None else gradient
            torch.autograd.backward(passed.edge, at.to(self._at))
        if self.optimizer:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self._changed = True
        return without_rest(passed.to_input[0]) if passed.to_input else None

    def named_homes(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by layer and name, at home."""
        return {
            f"{self.first + number}.{name}": tensor.detach()
            for number, layer in enumerate(self.layers)
            for name, tensor in layer.state_dict().items()
        }

    def named_states(self) -> dict[str, dict[str, Any]]:
        """The optimizer's state of each parameter that has one, by the parameter's name, at home."""
        states = self.optimizer.state if self.optimizer else {}
        return {name: states[p] for name, p in self._named_parameters() if p in states}

    def restore(self, homes: Mapping[str, torch.Tensor], states: Mapping[str, dict[str, Any]]) -> None:
        """Go on from what `named_homes` and `named_states` gave, of any cut. KeyError, RuntimeError: another model."""
        for name, home in self.named_homes().items():
            home.copy_(homes[name])
        for name, parameter in self._named_parameters():
            if self.optimizer and name in states:
                self.optimizer.state[parameter] = dict(states[name])

    def _named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [
            (f"{self.first + number}.{name}", parameter)
            for number, layer in enumerate(self.layers)
            for name, parameter in layer.named_parameters()
        ]

    @property
    def state_bytes(self) -> int:
        """Of parameters and buffers."""
        return sum(home.numel() * home.element_size() for home in self._homes)

    @property
    def backward_bytes(self) -> int:
        """What is loaded for a backward pass, but for the gradient."""
        states: int = sum(values[key].numel() * values[key].element_size() for values, key in self._optimizer_states())
        return self.state_bytes + states + sum(kept.num_bytes for kept in self._pass.kept)

    @property
    def _at(self) -> torch.device:
        return self._tensors[0].device if self._tensors else torch.device("cpu")

    def _run(self, x: torch.Tensor, targets: torch.Tensor | None, into: Pass) -> torch.Tensor:
        y = x
        if self.first and (x.is_floating_point() or x.is_complex()):
            y = Entry.apply(x, torch.ones((), device=x.device, requires_grad=True), into.to_input)
        for layer in self.layers:
            y = layer(y)
        if self.loss is not None:
            assert targets is not None
            y = self.loss(y, targets)
        into.edge = get_gradient_edge(y) if y.requires_grad else None
        self._require_own_buffers()
        return y

    def _require_own_buffers(self) -> None:
        """Raises ConfigurationError where a forward pass has put another tensor in a buffer's place: it would stay."""
        for module, name, buffer in self._places:
            if getattr(module, name) is not buffer:
                setattr(module, name, buffer)
                raise ConfigurationError(
                    f"{type(module).__name__} puts a new tensor into its buffer {name} in the forward pass; what is "
                    f"spilled must stay the same tensor: change it in place, as {name}.copy_(...) does"
                )

    def _forward_again(self, passed: Pass) -> None:
        after = [buffer.clone() for buffer in self._buffers]
        for number, kept in passed.before.items():
            self._buffers[number].data.copy_(kept.tensor)
        x, *others = (kept.tensor for kept in passed.kept)
        self._run(x, others[0] if self.loss is not None else None, passed)
        for buffer, value in zip(self._buffers, after, strict=True):
            buffer.data.copy_(value)  # a mean over batches has seen this one

    def _optimizer_states(self) -> list[tuple[dict[str, Any], str]]:
        """Numbers of steps stay on the host."""
        states = self.optimizer.state.values() if self.optimizer else ()
        return [
            (values, key) for values in states for key, v in values.items() if isinstance(v, torch.Tensor) and v.dim()
        ]

    def _unload_states(self, device: Device) -> None:
        """Numbers of steps too: the optimizer has made them where it ran."""
        homes = {(id(values), key): home for values, key, home in self._states}
        for values in self.optimizer.state.values() if self.optimizer else ():
            for key, value in values.items():
                if isinstance(value, torch.Tensor):
                    values[key] = device.unload(value, homes.get((id(values), key)))
        self._states = []

    def _go_home(self) -> None:
        for values, key, home in self._states:
            values[key] = home
        for tensor, home in zip(self._tensors, self._homes, strict=True):
            tensor.data = home
        self._visited, self._changed, self._states = None, False, []
