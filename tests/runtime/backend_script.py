"""Plain torch over the backend `hulk`: what each rank's collectives are, beside what they must be; a line for each."""

import functools
import math
import operator
import os
import sys
import time
import zlib
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from hulk_runtime.collective import backend
from hulk_runtime.collective.carried import Carried
from hulk_runtime.collective.connecting import Connecting
from torch.distributed import _functional_collectives as functional_collectives
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.nn.parallel import DistributedDataParallel


def model(kind: torch.dtype = torch.float32) -> torch.nn.Module:
    """The same on every rank."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8)).to(kind)


def trained(net: torch.nn.Module) -> None:
    """Four steps, each rank on numbers of its own."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()


def norm(parameters: list[torch.Tensor]) -> str:
    """Of all parameters, and their bits."""
    vector = torch.cat([values.detach().flatten() for values in parameters])
    return f"{vector.norm():.9g} {vector.abs().sum():.9g} {zlib.crc32(bytes(vector.view(torch.uint8).tolist()))}"


def ddp() -> str:
    """Torch's own class."""
    net = DistributedDataParallel(model())
    trained(net)
    return norm(list(net.parameters()))


def hsdp() -> str:
    """Two replicas of two shards each."""
    net = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    fully_shard(net, mesh=mesh)
    trained(net)
    return norm([values.full_tensor() for values in net.parameters()])


def fsdp() -> str:
    """One replica, whose shards are everywhere."""
    net = model()
    fully_shard(net)
    trained(net)
    return norm([values.full_tensor() for values in net.parameters()])


def collectives() -> str:
    """Whatever torch does: planned or not, the result is the same."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total, ones = sum(range(size)), torch.ones(3, 5000)
    for kind in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.complex64):
        values = (ones * rank).to(kind)
        dist.all_reduce(values)
        assert torch.equal(values, (ones * total).to(kind)), kind
    for operation, expected in ((dist.ReduceOp.MAX, size - 1.0), (dist.ReduceOp.MIN, 0.0)):
        values = ones * rank
        dist.all_reduce(values, operation)
        assert torch.equal(values, ones * expected), operation
    values = (ones * rank).clone()
    dist.all_reduce(values, dist.ReduceOp.AVG)
    torch.testing.assert_close(values, ones * total / size)
    turned = torch.arange(15.0).view(5, 3).t() * rank
    dist.all_reduce(turned)
    assert torch.equal(turned, torch.arange(15.0).view(5, 3).t() * total), "not contiguous"
    empty = torch.ones(0)
    dist.all_reduce(empty)
    several = [torch.full((4,), float(rank)), torch.full((2, 2), 10.0 * rank)]
    dist.all_reduce_coalesced(several)
    assert torch.equal(several[1], torch.full((2, 2), 10.0 * total))
    first, second = torch.ones(1000), torch.ones(7)
    works = [dist.all_reduce(part, async_op=True) for part in (first, second)]
    for work in reversed(works):
        work.wait()
    assert works[0].is_completed()
    assert torch.equal(first, torch.full((1000,), float(size)))
    assert torch.equal(second, torch.full((7,), float(size)))
    dropped = torch.ones(500, 2).t()
    dist.all_reduce(dropped, async_op=True)
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    assert torch.equal(future.wait()[0], torch.full((3,), float(size)))
    deadline = time.monotonic() + 60
    while not torch.equal(dropped, torch.full((2, 500), float(size))):
        assert time.monotonic() < deadline, "nobody waits for it"
        time.sleep(0.01)
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": other} for other in range(size)]
    pair = dist.new_group([0, 1])
    if rank < 2:
        values = torch.full((3,), float(rank))
        dist.all_reduce(values, group=pair)
        assert values.tolist() == [1.0, 1.0, 1.0]
    gathered = torch.empty(size)
    dist.all_gather_into_tensor(gathered, torch.tensor([float(rank)]))
    assert gathered.tolist() == list(range(size))
    part = torch.empty(1)
    dist.reduce_scatter_tensor(part, torch.arange(float(size)))
    assert part.item() == rank * size
    received = torch.full((2,), float(rank))
    dist.broadcast(received, src=size - 1)
    assert received.tolist() == [size - 1.0] * 2
    return "all right"


def rest() -> str:
    """What no plan takes: other operations, sparse tensors; torch itself refuses several types at once."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = [rank + 2, 12 | 1 << rank, 7]
    for operation, of_two in (
        (dist.ReduceOp.PRODUCT, operator.mul),
        (dist.ReduceOp.BAND, operator.and_),
        (dist.ReduceOp.BOR, operator.or_),
        (dist.ReduceOp.BXOR, operator.xor),
    ):
        values = torch.tensor([mine] * 5000)
        dist.all_reduce(values, operation)
        everyone = zip(*[[other + 2, 12 | 1 << other, 7] for other in range(size)], strict=True)
        assert values.unique(dim=0).tolist() == [[functools.reduce(of_two, column) for column in everyone]], operation
    factors = torch.full((50, 2), 1.5 + rank).t()
    dist.all_reduce(factors, dist.ReduceOp.PRODUCT)
    assert factors.unique().tolist() == [math.prod(1.5 + other for other in range(size))]
    sparse = torch.sparse_coo_tensor([[0, rank + 1]], [1.0 + rank, 10.0], (size + 2,))
    dist.all_reduce(sparse)
    assert sparse.is_sparse
    assert sparse.to_dense().tolist() == [size * (size + 1) / 2, *[10.0] * size, 0.0]
    kinds = (torch.float32, torch.bfloat16, torch.int64)
    several = [torch.full((3000,), rank, dtype=kind) for kind in kinds]
    with pytest.raises(ValueError, match="different dtypes"):
        dist.all_reduce_coalesced(several)
    with pytest.raises(RuntimeError, match="same type"):
        dist.group.WORLD.allreduce_coalesced(several)
    for each in several:
        dist.all_reduce(each)
    assert [(each.dtype, each.unique().tolist()) for each in several] == [(kind, [sum(range(size))]) for kind in kinds]
    return "all right"


def bits(values: torch.Tensor) -> bytes:
    """Also of what is not a number."""
    return bytes(values.contiguous().view(-1).view(torch.uint8).tolist())


def small() -> str:
    """Integers, gathers and broadcasts of few bytes are planned, once there are sums; to the bit as they must be."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(torch.ones(1))
    began = len(PLANNED)
    for kind in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        bounds = torch.iinfo(kind)
        values = torch.tensor([[rank, bounds.max], [bounds.min, -rank if bounds.min else 7]], dtype=kind).t()
        expected = torch.tensor([[sum(range(size)), 0], [0, -sum(range(size)) if bounds.min else 7 * size]]).t()
        for _ in range(size):
            expected += torch.tensor([[0, bounds.max], [bounds.min, 0]]).t()
        dist.all_reduce(values)
        assert torch.equal(values, expected.to(kind)), (kind, values, expected)
    with dist._coalescing_manager():
        several = [torch.full((5,), rank), torch.full((2, 3), rank - 7)]
        for each in several:
            dist.all_reduce(each)
    assert [each.unique().tolist() for each in several] == [[sum(range(size))], [sum(range(size)) - 7 * size]]
    for make in (
        lambda rank: torch.tensor(rank),
        lambda rank: torch.tensor([rank % 2 == 0, True]),
        lambda rank: torch.tensor([[rank + 0.5j, -0.0], [float("nan"), float("inf")]]).t(),
        lambda rank: torch.full((3,), rank, dtype=torch.bfloat16),
        lambda rank: torch.full((2,), 1e300 * rank, dtype=torch.float64),
    ):
        expected, mine = [make(other) for other in range(size)], make(rank)
        found = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(found, mine)
        whole = torch.empty((size, *mine.shape), dtype=mine.dtype)
        dist.all_gather_into_tensor(whole, mine.contiguous())
        assert list(map(bits, found)) == list(map(bits, whole)) == list(map(bits, expected))
        for root in (0, size - 1):
            received = mine.clone()
            dist.broadcast(received, src=root)
            assert bits(received) == bits(expected[root])
    parts = torch.full((size, 2), -1.0)
    parts[rank] = rank
    dist.all_gather_into_tensor(parts, parts[rank])
    assert parts.tolist() == [[float(other)] * 2 for other in range(size)]
    names: list[str | None] = [None] * size
    dist.all_gather_object(names, "x" * rank)
    assert names == ["x" * other for other in range(size)]
    assert len(PLANNED) - began == 5 + 1 + 4 * 5 + 1 + 2
    big, most = torch.ones(1 << 14, dtype=torch.int64), torch.tensor([rank])
    dist.all_reduce(big)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    dist.broadcast(big, src=1)
    assert (big[0].item(), most.item()) == (size, size - 1)
    assert len(PLANNED) - began == 29, "these are torch's"
    return "all right"


def groups() -> str:
    """Several at once: pairs over both regions, their order turned, parts that torch split off, coalesced ones."""
    rank, size = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([shard, shard + size // 2]) for shard in range(size // 2)]
    mine = pairs[rank % (size // 2)]
    values, whole = torch.full((100,), float(rank)), torch.full((100,), float(rank))
    works = [dist.all_reduce(values, group=mine, async_op=True), dist.all_reduce(whole, async_op=True)]
    for work in works:
        work.wait()
    other = (rank + size // 2) % size
    assert torch.equal(values, torch.full((100,), float(rank + other)))
    assert torch.equal(whole, torch.full((100,), float(sum(range(size)))))
    turned = dist.new_group(list(range(size))[::-1], sort_ranks=False)
    values = torch.full((3,), float(rank))
    dist.all_reduce(values, group=turned)
    assert values.tolist() == [float(sum(range(size)))] * 3
    with dist._coalescing_manager(group=mine, async_ops=True) as coalesced:
        several = [torch.full((5,), float(rank)), torch.full((6,), 2.0 * rank)]
        for each in several:
            dist.all_reduce(each, group=mine)
    coalesced.wait()
    assert [each[0].item() for each in several] == [rank + other, 2.0 * (rank + other)]
    mean = functional_collectives.all_reduce(torch.full((2, 2), float(rank)), "avg", mine)
    assert torch.equal(mean + 0, torch.full((2, 2), (rank + other) / 2))
    part = dist.split_group(split_ranks=[[shard, shard + size // 2] for shard in range(size // 2)])
    values = torch.full((8,), float(rank))
    dist.all_reduce(values, group=part)
    assert isinstance(part, backend.PlannedGroup)
    assert values.tolist() == [float(rank + other)] * 8
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    partial = DTensor.from_local(torch.full((4,), float(rank)), mesh["dp_replicate"], [Partial()])
    assert partial.redistribute(placements=[Replicate()]).to_local().tolist() == [rank + other] * 4
    return "all right"


def unplanned() -> str:
    """Groups in some of three regions: two are alike, one is not."""
    for ranks in ([0, 1], [0, 1], [1, 2]):
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            values = torch.full((100,), float(dist.get_rank()))
            dist.all_reduce(values, group=group)
            assert values.tolist() == [float(sum(ranks))] * 100
    return "all right"


def modes() -> str:
    """A script's own modes are not Hulk's: inference, other default types; what gloo lets pass passes."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total = float(sum(range(size)))
    with torch.inference_mode():
        for values in (torch.full((100,), float(rank)), torch.full((50, 2), float(rank)).t()):
            work = dist.all_reduce(values, async_op=True)
            work.wait()
            assert values.is_inference()
            assert torch.equal(values, torch.full_like(values, total))
            assert work.result()[0] is values
    torch.set_default_dtype(torch.float64)
    values = torch.full((100,), float(rank), dtype=torch.float32)
    dist.all_reduce(values, group=dist.new_group(list(range(size))))
    found, received = [torch.empty(2) for _ in range(size)], torch.full((2,), float(rank))
    dist.all_gather(found, received)
    dist.broadcast(received, src=0)
    torch.set_default_dtype(torch.float32)
    assert values.tolist() == [total] * 100
    assert [each.tolist() for each in found] == [[float(other)] * 2 for other in range(size)]
    assert received.tolist() == [0.0, 0.0]
    expanded = torch.ones(1).expand(3)
    dist.all_reduce(expanded)
    assert expanded.shape == (3,)
    return "all right"


def only_read() -> str:
    """What a script keeps of its own is not written: neither the root's tensor nor what autograd has saved."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(torch.ones(1))
    received = torch.full((2,), float(rank))
    work = dist.broadcast(received, src=0, async_op=True)
    if rank == 0:
        received += 5
    work.wait()
    assert received.tolist() == [5.0 if rank == 0 else 0.0] * 2
    weights, count, factors = torch.ones(2, requires_grad=True), torch.tensor(rank + 1), torch.full((2,), 2.0 + rank)
    loss = (weights * factors).sum() / count
    dist.all_reduce(count)
    dist.broadcast(factors, src=0)
    loss.backward()
    assert weights.grad is not None
    assert torch.allclose(weights.grad, torch.full((2,), 2 / (size * (size + 1) / 2)))
    mine = torch.tensor([float(rank)]).expand(2) if rank % 2 else torch.full((2,), float(rank))
    found = [torch.empty(2) for _ in range(size)]
    dist.all_gather(found, mine)
    assert [each.tolist() for each in found] == [[float(other)] * 2 for other in range(size)]
    sent = mine if rank == 1 else torch.empty(2)
    dist.broadcast(sent, src=1)
    assert sent.tolist() == [1.0] * 2
    part, others = torch.empty(1), dist.group.WORLD.split_group(list(range(size)))
    others._reduce_scatter_base(part, torch.arange(float(size)), dist.ReduceScatterOptions()).wait()
    assert part.item() == rank * size
    return "all right"


def nested() -> str:
    """Collectives in a callback of one's future, as torch's own hooks for compression have them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(torch.ones(1))

    def gather(_: object = None) -> torch.futures.Future[list[torch.Tensor]]:
        found = [torch.empty(1) for _ in range(size)]
        return dist.all_gather(found, torch.full((1,), float(rank)), async_op=True).get_future()

    def add(_: object) -> torch.Tensor:
        assert [one.item() for one in gather().wait()] == list(range(size))
        return dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()[0]

    assert gather().then(add).wait().item() == size
    return "all right"


def again() -> str:
    """A world that is made anew, by each rank alone, is not the one that the plan is of."""
    values = torch.ones(10)
    dist.all_reduce(values)
    assert values.tolist() == [float(dist.get_world_size())] * 10
    dist.destroy_process_group()
    dist.init_process_group("hulk", store=dist.HashStore(), rank=0, world_size=1)
    values = torch.ones(10)
    dist.all_reduce(values)
    assert values.tolist() == [1.0] * 10
    return "all right"


def without_cpu() -> str:
    """A group that knows no CPUs, as NCCL's, has barriers."""
    group = backend.PlannedGroup(dist.HashStore(), 0, 1)
    alone = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=60))
    group._register_backend(torch.device("cuda"), dist.ProcessGroup.BackendType.GLOO, alone)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    group.barrier().wait()
    group.barrier(dist.BarrierOptions()).wait()
    return "all right"


def forked() -> str:
    """After sums: a child that uses nothing of torch's groups ends, and its parent goes on."""
    values = torch.ones(1000)
    dist.all_reduce(values)
    child = os.fork()
    if not child:
        os._exit(0 if torch.ones(3).sum() == 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    dist.all_reduce(values)
    assert torch.equal(values, torch.full((1000,), float(dist.get_world_size() ** 2)))
    return "all right"


KINDS: dict[str, Callable[[], str]] = {
    "ddp": ddp,
    "hsdp": hsdp,
    "fsdp": fsdp,
    "collectives": collectives,
    "rest": rest,
    "small": small,
    "groups": groups,
    "unplanned": unplanned,
    "modes": modes,
    "only_read": only_read,
    "nested": nested,
    "without_cpu": without_cpu,
    "forked": forked,
    "again": again,
}

PLANNED: list[Carried] = []
"""What was summed over planned flows."""


class Counted(backend.PlannedWork):
    """Is told of."""

    def __init__(self, between: Connecting, carried: Carried) -> None:
        PLANNED.append(carried)
        super().__init__(between, carried)


if __name__ == "__main__":
    backend.PlannedWork = Counted  # type: ignore[misc]
    dist.init_process_group(sys.argv[1])
    for kind in sys.argv[2:]:
        print(f"{kind} {KINDS[kind]()}", flush=True)
    dist.barrier()
    print(f"planned {len(PLANNED)}", flush=True)
    dist.destroy_process_group()
