"""What torch's DistributedDataParallel can do, done by torch's class and by Hulk's: both must come to the same.

Each feature trains a model that `wrap` makes of a module, and returns what is to be compared. The list follows torch's
own tests (torch/testing/_internal/distributed/distributed_test.py, test/distributed/test_c10d_*.py).
"""

import contextlib
import copy
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from hulk_runtime.collective.ddp import DistributedDataParallel
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as TorchDDP
from torch.utils.checkpoint import checkpoint

Wrap = Callable[..., Any]
Seen = list[torch.Tensor]
FEATURES: dict[str, Callable[[Wrap], Seen]] = {}
SIZE = 12


def feature(function: Callable[[Wrap], Seen]) -> Callable[[Wrap], Seen]:
    """One that the test names."""
    FEATURES[function.__name__] = function
    return function


def net(dtype: torch.dtype = torch.float32) -> nn.Module:
    return nn.Sequential(nn.Linear(SIZE, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3)).to(dtype)


def inputs(count: int, dtype: torch.dtype = torch.float32) -> Iterator[torch.Tensor]:
    """Others on each rank."""
    draw = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(count):
        yield torch.randn(8, SIZE, generator=draw).to(dtype)


def loss_of(out: Any) -> torch.Tensor:
    return out.abs().square().mean()


def trained(ddp: Any, values: Any = None, loss: Callable[[Any], torch.Tensor] = loss_of) -> Seen:
    """Some steps of plain SGD; the parameters."""
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for value in inputs(4) if values is None else values:
        optimizer.zero_grad()
        loss(ddp(value)).backward()
        optimizer.step()
    return [parameter.detach() for parameter in ddp.parameters()]


@feature
def sparse(wrap: Wrap) -> Seen:
    ddp = wrap(nn.Sequential(nn.Embedding(100, 8, sparse=True), nn.Linear(8, 1)))
    draw = torch.Generator().manual_seed(dist.get_rank())
    seen = trained(ddp, [torch.randint(0, 100, (16,), generator=draw) for _ in range(4)])
    assert ddp.module[0].weight.grad.is_sparse
    return seen


@feature
def bucket_view(wrap: Wrap) -> Seen:
    return trained(wrap(net(), gradient_as_bucket_view=True))


@feature
def options_of_buckets(wrap: Wrap) -> Seen:
    taken = inspect.signature(TorchDDP).parameters
    known = [name for name in ("batched_grad_copy", "lazy_bucket_allocation") if name in taken]
    seen = [tensor for name in known for tensor in trained(wrap(net(), **{name: True}))]
    if "bucket_cap_mb_list" in taken:
        seen += trained(wrap(net(), bucket_cap_mb_list=[1, 2]))
    return [*seen, *trained(wrap(net(), None, None, 0, True, True, None, 1))]


@feature
def ignored(wrap: Wrap) -> Seen:
    """Each rank's first layer is its own."""
    module = net()
    TorchDDP._set_params_and_buffers_to_ignore_for_model(module, ["0.weight", "0.bias"])
    ddp = wrap(module)
    return trained(ddp)


@feature
def complex_values(wrap: Wrap) -> Seen:
    return trained(wrap(net(torch.complex64)), inputs(4, torch.complex64))


@feature
def half(wrap: Wrap) -> Seen:
    return trained(wrap(net(torch.bfloat16)), inputs(4, torch.bfloat16))


@feature
def mixed_types(wrap: Wrap) -> Seen:
    """Buckets of two types, one of which the plan does not sum."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(SIZE, 4), nn.Linear(SIZE, 4).double()

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.one(value).double() + self.other(value.double())

    return trained(wrap(Two()))


@feature
def no_outputs(wrap: Wrap) -> Seen:
    class Empty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.empty = nn.Linear(SIZE, 4), nn.Linear(SIZE, 0)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.layer(value).mean() + self.empty(value).sum()

    return trained(wrap(Empty()))


@feature
def buffers(wrap: Wrap) -> Seen:
    """Rank 0's running means everywhere, or each its own; integers among them."""
    seen: Seen = []
    for options in ({}, {"broadcast_buffers": False}):
        ddp = wrap(nn.Sequential(nn.Linear(SIZE, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)), **options)
        seen += [*trained(ddp), *ddp.buffers()]
    return seen


@feature
def uneven_inputs(wrap: Wrap) -> Seen:
    """Rank 1 has more; divided by all ranks, or by those that still have some. Twice: it is whole again."""
    seen: Seen = []
    for options in ({}, {"divide_by_initial_world_size": False}):
        ddp = wrap(net(), find_unused_parameters=True)
        for _ in range(2):
            with ddp.join(**options):
                seen += [value.clone() for value in trained(ddp, inputs(3 + 2 * dist.get_rank()))]
    with wrap(net()).join(enable=False):
        return seen


@feature
def uneven_inputs_that_raise(wrap: Wrap) -> Seen:
    ddp, raised = wrap(net()), False
    try:
        with ddp.join(throw_on_early_termination=True):
            trained(ddp, inputs(3 + 2 * dist.get_rank()))
    except RuntimeError:
        raised = True
    return [torch.tensor(raised)]


@feature
def uneven_inputs_and_sharded_optimizer(wrap: Wrap) -> Seen:
    ddp = wrap(net())
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1)
    with Join([ddp, optimizer]):
        for value in inputs(3 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            ddp(value).square().mean().backward()
            optimizer.step()
    return list(ddp.parameters())


@feature
def delayed(wrap: Wrap) -> Seen:
    """Some parameters' sums wait for another's gradient; where all do (torch's own has no forward then) it is made."""
    module = net()
    named = dict(module.named_parameters())
    some = wrap(
        module,
        delay_all_reduce_named_params=[("4.bias", named["4.bias"])],
        param_to_hook_all_reduce=named["0.weight"],
    )
    seen = [some(value).square().mean() for value in inputs(1)]
    seen[0].backward()
    module = nn.Sequential(net(), nn.Linear(3, 3).requires_grad_(False))
    trainable = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    wrap(module, delay_all_reduce_named_params=trainable, param_to_hook_all_reduce=module[0][0].weight)
    return [*seen, *(parameter.grad for name, parameter in named.items() if name != "4.bias")]


@feature
def own_hook(wrap: Wrap) -> Seen:
    """Of the script, of torch, and with a state; a second one is refused."""
    ddp = wrap(net())
    ddp.register_comm_hook(None, fp16_compress_hook)
    second = ""
    try:
        ddp.register_comm_hook(None, fp16_compress_hook)
    except RuntimeError as error:
        second = str(error)
    assert "can only be called once" in second
    seen = trained(ddp)
    ddp = wrap(net())
    ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    seen += trained(ddp)
    ddp = wrap(net())
    state = PostLocalSGDState(None, dist.group.WORLD, start_localSGD_iter=2)
    ddp.register_comm_hook(state, post_localSGD_hook)
    assert len(ddp._comm_hooks) == 1
    return [*seen, *trained(ddp)]


@feature
def optimizer_in_backward(wrap: Wrap) -> Seen:
    """Each parameter is updated when its sum is there."""
    fused = wrap(net())
    fused._register_fused_optim(torch.optim.SGD, lr=0.1)
    for value in inputs(3):
        fused(value).square().mean().backward()
    return list(fused.parameters())


@feature
def unused(wrap: Wrap) -> Seen:
    """Another part of the model on each rank; and one that no rank uses, not summed at all."""

    class Branch(nn.Module):
        def __init__(self, own: bool) -> None:
            super().__init__()
            self.own, self.parts = own, nn.ModuleList(nn.Linear(SIZE, 4) for _ in range(3))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.parts[dist.get_rank() if self.own else 0](value)

    seen = trained(wrap(Branch(True), find_unused_parameters=True))
    return [*seen, *trained(wrap(Branch(False), find_unused_parameters=True, skip_all_reduce_unused_params=True))]


@feature
def graphs(wrap: Wrap) -> Seen:
    """Static ones, with a layer checkpointed twice; two forwards before a backward; accumulation."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            hidden = checkpoint(self.first, value.requires_grad_(), use_reentrant=True)
            return self.second(checkpoint(self.first, hidden, use_reentrant=True))

    seen = trained(wrap(Twice(), static_graph=True))
    ddp = wrap(net())
    for value in inputs(2):
        with ddp.no_sync():
            ddp(value).square().mean().backward()
        (ddp(value).square().mean() + ddp(2 * value).square().mean()).backward()
    return [*seen, *(parameter.grad for parameter in ddp.parameters())]


@feature
def nested_outputs(wrap: Wrap) -> Seen:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(SIZE, 4)

        def forward(self, value: torch.Tensor) -> dict[str, Any]:
            return {"a": [self.layer(value)], "b": ("c", value)}

    return trained(wrap(Nested(), find_unused_parameters=True), loss=lambda out: out["a"][0].square().mean())


@feature
def finalized_by_hand(wrap: Wrap) -> Seen:
    ddp = wrap(net())
    if not hasattr(TorchDDP, "finalize_backward"):
        return []
    ddp.require_manual_backward_finalization = True
    for value in inputs(3):
        ddp(value).square().mean().backward()
        ddp.finalize_backward()
    return [parameter.grad for parameter in ddp.parameters()]


@feature
def other_group(wrap: Wrap) -> Seen:
    """A group of one's own from the second step on; then all again. A mesh of all ranks from the beginning."""
    ddp, alone = wrap(net()), ALONE[dist.get_rank()]
    seen = trained(ddp)
    for group in (alone, dist.group.WORLD):
        ddp._update_process_group(group)
        seen += [value.clone() for value in trained(ddp)]
    return [*seen, *trained(wrap(net(), device_mesh=init_device_mesh("cpu", (dist.get_world_size(),))))]


@feature
def copied(wrap: Wrap) -> Seen:
    """Saved whole and read again, or copied: what is made of it trains too."""
    ddp, file = wrap(net()), io.BytesIO()
    trained(ddp)
    torch.save(ddp, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert type(again) is type(ddp)
    assert len(again._comm_hooks) == len(ddp._comm_hooks)
    return [*trained(again), *trained(copy.deepcopy(ddp)), *trained(pickle.loads(pickle.dumps(ddp)))]


@feature
def python_reducer(wrap: Wrap) -> Seen:
    """Torch's for compiled autograd."""
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        return trained(wrap(net()))


@feature
def compiled(wrap: Wrap) -> Seen:
    return trained(torch.compile(wrap(net()), backend="eager"))


@feature
def state_and_logging(wrap: Wrap) -> Seen:
    ddp = wrap(net())
    trained(ddp)
    plain = net()
    plain.load_state_dict({name.removeprefix("module."): value for name, value in ddp.state_dict().items()})
    assert ddp._get_ddp_logging_data()["world_size"] == dist.get_world_size()
    with torch.no_grad():
        return [ddp(value) for value in inputs(1)]


@feature
def refused(wrap: Wrap) -> Seen:
    """What torch refuses, in the same words."""
    said = []
    for module, options in (
        (net(), {"device_ids": [0]}),
        (net().requires_grad_(False), {}),
        (nn.Sequential(nn.Linear(3, 3), nn.SyncBatchNorm(3)), {}),
        (nn.LazyLinear(3), {}),
    ):
        try:
            wrap(module, **options)
        except (ValueError, RuntimeError) as error:
            said.append(str(error))
    assert len(said) == 4, said
    return [torch.tensor([hash_of(text) for text in said])]


def hash_of(text: str) -> int:
    return sum(map(ord, text))


def run(name: str) -> None:
    seen = []
    for kind in (TorchDDP, DistributedDataParallel):
        torch.manual_seed(1)
        seen.append(FEATURES[name](kind))
    assert len(seen[0]) == len(seen[1])
    for theirs, ours in zip(*seen, strict=True):
        limit = 1e-2 if theirs.dtype is torch.bfloat16 else 1e-4
        torch.testing.assert_close(ours, theirs, rtol=limit, atol=limit, msg=lambda text: f"{name}: {text}")
    print(f"{name}: as torch's", flush=True)


dist.init_process_group("gloo")
ALONE = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
for chosen in sys.argv[1].split(","):
    run(chosen)
dist.barrier()
with contextlib.suppress(RuntimeError):
    dist.destroy_process_group()
