"""hulk.DiLoCo on each rank of a gloo world beside the same in one process; a line for each kind that is right."""

import copy
import gzip
import json
import os
import sys
import time
from collections.abc import Callable
from ipaddress import IPv6Address
from pathlib import Path
from types import SimpleNamespace

import diloco_reference as reference
import hulk
import pytest
import torch
import torch.distributed as dist
from hulk_runtime.collective import planned_sums
from hulk_runtime.collective.ddp import DistributedDataParallel as PlannedDDP
from hulk_runtime.collective.process_group import Group
from hulk_runtime.collective.reduction.compression import CODECS
from hulk_runtime.diloco.sums import Feedback, Quantised
from hulk_runtime.errors import PeerLostError
from hulk_runtime.plan import document, wire
from hulk_runtime.training.local_sgd import LocalStepper
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map

PARTS = [["0.weight", "0.bias"], ["2.weight", "2.bias"], ["4.weight", "4.bias"]]
NOWHERE = IPv6Address("::")
LOCAL = {"mode": "local", "innerSteps": 3, "outerLearningRate": 1.0, "outerMomentum": 0.5}
TRAINING = {"globalBatch": 6, "precision": "fp32", "optimizer": "adamw", "steps": 7}
STREAMING = {"sync_every": 6, "fragments": 3, "delay": 2}


def same(model: torch.nn.Module, expected: torch.nn.Module, within: float = 1e-12) -> None:
    for (name, own), other in zip(model.named_parameters(), expected.parameters(), strict=True):
        found = own.full_tensor() if isinstance(own, DTensor) else own
        torch.testing.assert_close(found, other, rtol=within, atol=within, msg=lambda text, at=name: f"{at}: {text}")


def equal_everywhere(mine: torch.Tensor) -> None:
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    assert all(torch.equal(one, mine) for one in everyone), "ranks differ"


def vector(model: torch.nn.Module) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def run(model: torch.nn.Module, steps: range, replica: int | None = None, **settings: object) -> hulk.DiLoCo:
    optimizer = reference.adamw(model)
    with hulk.DiLoCo(model, optimizer, **settings) as diloco:
        for step in steps:
            reference.train(model, optimizer, step, dist.get_rank() if replica is None else replica)
    return diloco


def plain() -> None:
    """Rounds of 5 in 13 steps: two whole ones and a short one."""
    model = reference.network()
    assert run(model, range(1, 14), sync_every=5).step == 13
    same(model, reference.trained([1.0] * dist.get_world_size(), 13, 5))


def loop_of_the_runtime() -> None:
    """The same as the runtime's own loop in mode local, in fp32, with shares 2 and 4 of 6 sequences."""
    rank, shares = dist.get_rank(), (2, 4)
    models = [reference.network().float() for _ in range(2)]

    def loss(model: torch.nn.Module, step: int, sequences: range) -> torch.Tensor:
        generator = torch.Generator().manual_seed(step)
        x, y = torch.randn(6, 5, generator=generator), torch.randn(6, 3, generator=generator)
        mine = slice(sequences.start, sequences.stop)
        return torch.nn.functional.mse_loss(model(x[mine]), y[mine])

    body = {**json.loads(gzip.decompress(Path(os.environ["HULK_PLAN"]).read_bytes())), "shares": shares}
    plan = document.read(wire.Plan, {**body, "sync": LOCAL, "training": TRAINING})
    task = SimpleNamespace(module=models[0], learning_rate=0.01, loss=lambda step, mine: loss(models[0], step, mine))
    stepper = LocalStepper(plan, Group(rank, 2, "gloo", torch.device("cpu"), {1 - rank: NOWHERE}), task, 0)
    optimizer = torch.optim.AdamW(models[1].parameters(), lr=0.01)
    mine = range(2) if not rank else range(2, 6)
    with hulk.DiLoCo(models[1], optimizer, sync_every=3, weight=shares[rank]):
        for step in range(1, 8):
            stepper.together(step, stop=False, save=False)
            optimizer.zero_grad()
            loss(models[1], step, mine).backward()
            optimizer.step()
    same(models[1], models[0], 1e-5)


def first_ranks_start() -> None:
    """Others begin where rank 0 does, as with DistributedDataParallel."""
    model = reference.network()
    if dist.get_rank():
        with torch.no_grad():
            for one in model.parameters():
                one.add_(1.0)
    run(model, range(1, 6), sync_every=5)
    same(model, reference.trained([1.0] * dist.get_world_size(), 5, 5))


def streaming() -> None:
    """Three fragments, merged two steps late, half of each replica's own left; replicas of different weight."""
    weights = [1.0 + rank for rank in range(dist.get_world_size())]
    model = reference.network()
    run(model, range(1, 21), weight=weights[dist.get_rank()], **STREAMING)
    same(model, reference.trained(weights, 20, 6, PARTS, 2, 0.5))


def warmup() -> None:
    """Seven steps of all with the mean gradient, then rounds; by DistributedDataParallel too, and gone on within."""
    weights = [1.0 + rank for rank in range(dist.get_world_size())]
    model = reference.network()
    run(model, range(1, 21), weight=weights[dist.get_rank()], warmup=7, **STREAMING)
    same(model, reference.trained(weights, 20, 6, PARTS, 2, 0.5, warmup=7))
    equal = [1.0] * dist.get_world_size()
    expected = reference.trained(equal, 20, 6, PARTS, 2, 0.5, warmup=7)
    model = DistributedDataParallel(reference.network())
    run(model, range(1, 21), warmup=7, **STREAMING)
    same(model, expected)
    model = reference.network()
    optimizer = reference.adamw(model)
    with hulk.DiLoCo(model, optimizer, warmup=7, **STREAMING) as diloco:
        for step in range(1, 5):
            reference.train(model, optimizer, step, dist.get_rank())
        state = copy.deepcopy(diloco.state_dict())
    again = reference.network()
    after = reference.adamw(again)
    after.load_state_dict(optimizer.state_dict())
    diloco = hulk.DiLoCo(again, after, warmup=7, **STREAMING)
    diloco.load_state_dict(state)
    same(again, model, 0.0)
    with diloco:
        for step in range(5, 21):
            reference.train(again, after, step, dist.get_rank())
    same(again, expected)


def warmup_by_a_closure() -> None:
    """A parameter without a gradient on one replica has the other's share; a closure's gradients are summed too."""
    model = torch.nn.ParameterList([torch.zeros(2), torch.zeros(2), torch.zeros(2)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with hulk.DiLoCo(model, optimizer, sync_every=5, warmup=3):
        for _ in range(2):

            def closure() -> float:
                optimizer.zero_grad()
                model[0].grad = torch.full((2,), 1.0 + dist.get_rank())
                if dist.get_rank():
                    model[1].grad = torch.ones(2)
                return 0.0

            optimizer.step(closure)
        assert model[2].grad is None
    assert [one.tolist() for one in model] == [[-3.0, -3.0], [-1.0, -1.0], [0.0, 0.0]]


def given_modules_and_optimizer() -> None:
    """Fragments by hand, and an outer optimizer of torch's."""
    model = reference.network()

    def outer(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.003)

    run(model, range(1, 12), sync_every=4, fragments=[model[:2], model[2:]], mixing=0.25, outer=outer)
    parts = [["0.weight", "0.bias"], ["2.weight", "2.bias", "4.weight", "4.bias"]]
    same(model, reference.trained([1.0] * dist.get_world_size(), 11, 4, parts, mixing=0.25, outer=outer))


def sharded() -> None:
    """Two replicas of two shards each come to what two whole replicas do; each rank's group is found."""
    replica = dist.get_rank() // 2
    for settings in ({"sync_every": 5}, STREAMING):
        model = reference.network()
        meshes = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=meshes["shard"])
        run(model, range(1, 14), replica, **settings)
        late = settings is STREAMING
        expected = reference.trained(
            [1.0, 1.0], 13, settings["sync_every"], PARTS if late else None, 2 * late, 0.5 * late
        )
        same(model, expected)
    optimizer = reference.adamw(model)
    with pytest.raises(ValueError, match="are in the mesh of a model: they are no replicas"):
        hulk.DiLoCo(model, optimizer, group=dist.group.WORLD).__enter__()


def sharded_planned() -> None:
    """Each shard over flows of its own, in fp32; groups of two ranks in two regions."""

    def make() -> torch.nn.Module:
        return reference.network().float()

    meshes = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    model = fully_shard(make(), mesh=meshes["shard"])
    run(model, range(1, 14), dist.get_rank() // 2, **STREAMING)
    assert planned_sums.num_connected() == 1
    same(model, reference.trained([1.0, 1.0], 13, 6, PARTS, 2, 0.5, make=make), 2e-5)


def sharded_planned_int8() -> None:
    """As the plan says, each shard over flows of its own."""

    def make() -> torch.nn.Module:
        return reference.network().float()

    shards = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))["shard"]
    model, expected = fully_shard(make(), mesh=shards), reference.trained([1.0, 1.0], 18, 6, PARTS, 2, 0.5, make=make)
    run(model, range(1, 19), dist.get_rank() // 2, **STREAMING)
    assert planned_sums.num_connected() == 1
    found = torch.cat([one.full_tensor().flatten() for one in model.parameters()]).detach()
    equal_everywhere(found)
    assert 1e-6 < (found - vector(expected)).norm() / vector(expected).norm() < 0.05


def sharded_state() -> None:
    """A shard's state is of DTensors, and goes on."""
    replica, meshes = dist.get_rank() // 2, init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    model = fully_shard(reference.network(), mesh=meshes["shard"])
    run(model, range(1, 6), replica, sync_every=5, compression="int8")
    diloco = run(model, range(6, 8), replica, sync_every=5, compression="int8")
    saved = tree_map(lambda one: one.clone() if isinstance(one, torch.Tensor) else one, diloco.state_dict())
    named = saved["fragments"][0]["global"]
    same(model, reference.trained([1.0, 1.0], 1, 1), 1e9)  # of the same shapes
    assert all(isinstance(one, DTensor) for one in named.values())
    assert named["0.weight"].full_tensor().shape == (7, 5)
    again = fully_shard(reference.network(), mesh=meshes["shard"])
    other = hulk.DiLoCo(again, reference.adamw(again), sync_every=5, compression="int8")
    other.load_state_dict(saved)
    same(again, torch.nn.ParameterList([one.full_tensor() for one in named.values()]))


def ddp() -> None:
    """Around a model of one rank, or of all: then the sums of every step stay inside a region until the context ends.

    One with a hook of the script's is refused.
    """
    mine = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    model = DistributedDataParallel(reference.network(), process_group=mine)
    run(model, range(1, 8), sync_every=3)
    same(model, reference.trained([1.0] * dist.get_world_size(), 7, 3))
    model = DistributedDataParallel(reference.network())
    diloco = run(model, range(1, 8), sync_every=3)
    same(model, reference.trained([1.0] * dist.get_world_size(), 7, 3))
    reference.train(model, reference.adamw(model), 8, dist.get_rank())
    equal_everywhere(vector(model))  # by the gradients' mean
    with diloco:
        pass
    model = DistributedDataParallel(reference.network())
    model.register_comm_hook(None, noop_hook)
    with pytest.raises(ValueError, match=r"ranks \[0, 1\] in every step by a hook of the script's own"):
        run(model, range(1, 8), sync_every=3)


def ddp_of_regions() -> None:
    """Two ranks in each of two regions: a region is a replica, with the mean of its ranks' gradients."""

    def step(net: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int, replica: int) -> None:
        optimizer.zero_grad()
        sum(reference.loss(net, number, 2 * replica + rank) / 2 for rank in range(2)).backward()
        optimizer.step()

    model = DistributedDataParallel(reference.network())
    run(model, range(1, 21), **STREAMING)
    same(model, reference.trained([1.0, 1.0], 20, 6, PARTS, 2, 0.5, step=step))


def quantised() -> None:
    """Over many rounds what arrives is what was sent, but for what is kept; all ranks have the same bits."""
    rank, size, num_values, num_rounds = dist.get_rank(), dist.get_world_size(), 1003, 40
    for name, bound in (("bf16", 0.02), ("int8", 0.03), ("int4", 0.4)):
        sums, feedback = Quantised(dist.group.WORLD, CODECS[name]), Feedback()
        sent, arrived = torch.zeros(num_values, dtype=torch.float64), torch.zeros(num_values, dtype=torch.float64)
        generator = torch.Generator().manual_seed(rank)
        scale = 10.0 ** -torch.arange(0, 3, 3 / num_values)[:num_values]
        for number in range(num_rounds):
            values = torch.randn(num_values, generator=generator).mul_(scale).add_(scale)
            exact = values.double()
            dist.all_reduce(exact)
            sent += exact
            total, feedback = sums.begin(values, feedback, number).wait()
            arrived += total
        equal_everywhere(arrived)
        kept, part = feedback.own_N.double(), len(feedback.sums_N)
        whole = torch.nn.functional.pad(kept, (0, size * part - num_values))
        whole[rank * part : (rank + 1) * part] += feedback.sums_N
        dist.all_reduce(whole)
        assert (sent - arrived - whole[:num_values]).abs().max() < 1e-4, name
        assert (sent - arrived).abs().max() < bound * size, (name, (sent - arrived).abs().max())
        sums.close(is_whole=True)


def compressed() -> None:
    """Learns nearly the same by fewer bits, and all replicas the same."""
    exact = reference.trained([1.0] * dist.get_world_size(), 40, 6, PARTS, 2, 0.5)
    start = vector(reference.network())
    moved = vector(exact) - start
    for name, bound in (("bf16", 0.001), ("int8", 0.003), ("int4", 0.04)):
        model = reference.network()
        run(model, range(1, 41), compression=name, **STREAMING)
        off = (vector(model) - start - moved).norm() / moved.norm()
        assert 0 < off < bound, (name, off)
        equal_everywhere(vector(model))


def resumed() -> None:
    """Stopped while a fragment is under way, and gone on from what was saved: the same bits."""
    for compression in ("none", "int4"):
        whole = reference.network()
        run(whole, range(1, 21), compression=compression, **STREAMING)
        model = reference.network()
        optimizer = reference.adamw(model)
        saved = []
        try:
            with hulk.DiLoCo(model, optimizer, compression=compression, **STREAMING) as diloco:
                for step in range(1, 20):
                    if step == 12:
                        saved = copy.deepcopy([diloco.state_dict(), model.state_dict(), optimizer.state_dict()])
                        shared = copy.deepcopy(diloco.shared_state_dict())
                        raise KeyboardInterrupt
                    reference.train(model, optimizer, step, dist.get_rank())
        except KeyboardInterrupt:
            pass
        state, of_model, of_optimizer = saved
        assert sum("under_way" in fragment for fragment in state["fragments"]) == 1
        model = reference.network()
        model.load_state_dict(of_model)
        optimizer = reference.adamw(model)
        optimizer.load_state_dict(copy.deepcopy(of_optimizer))
        diloco = hulk.DiLoCo(model, optimizer, compression=compression, **STREAMING)
        diloco.load_state_dict(state, keep_model=True)
        with diloco:
            for step in range(12, 21):
                reference.train(model, optimizer, step, dist.get_rank())
        same(model, whole, 0.0)
        [mean] = [fragment["under_way"] for fragment in shared["fragments"] if "under_way" in fragment]
        equal_everywhere(torch.cat([one.flatten() for one in mean.values()]))
        if compression == "none":  # no feedback is shared
            model.load_state_dict(of_model)
            optimizer.load_state_dict(of_optimizer)
            diloco = hulk.DiLoCo(model, optimizer, **STREAMING)
            diloco.load_state_dict(shared, keep_model=True)
            with diloco:
                for step in range(12, 21):
                    reference.train(model, optimizer, step, dist.get_rank())
            same(model, whole, 1e-12)


def goes_on_meanwhile() -> None:
    """The first rank trains until a merge is due while the second has not even begun to sum."""
    for compression in ("none", "int8"):
        told = Path(os.environ["HULK_PLAN"]).with_name(f"told-{compression}")
        model = reference.network()
        optimizer = reference.adamw(model)
        with hulk.DiLoCo(model, optimizer, sync_every=4, delay=3, compression=compression):
            for step in range(1, 9):
                if step == 4 and dist.get_rank():
                    deadline = time.monotonic() + 60
                    while not told.exists():
                        assert time.monotonic() < deadline, "the first rank waits for its sum"
                        time.sleep(0.01)
                reference.train(model, optimizer, step, dist.get_rank())
                if step == 6 and not dist.get_rank():
                    told.touch()


def one_restarts() -> None:
    """The last rank comes back with an older state: it takes the last outer step of the others, who keep their own."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    model = reference.network()
    optimizer = reference.adamw(model)
    diloco = hulk.DiLoCo(model, optimizer, sync_every=4)
    old = copy.deepcopy(diloco.state_dict())
    try:
        with diloco:
            for step in range(1, 11):
                reference.train(model, optimizer, step, rank)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    state = copy.deepcopy(diloco.state_dict())
    before = copy.deepcopy(model)
    again = hulk.DiLoCo(model, optimizer, sync_every=4)
    again.load_state_dict(old if rank == last else state, keep_model=True)
    with again:
        assert again.step == 10
        anchors = [one.clone() for one in again.state_dict()["fragments"][0]["global"].values()]
        for one, other in zip(anchors, state["fragments"][0]["global"].values(), strict=True):
            assert torch.equal(one, other)
        expected = torch.nn.ParameterList(anchors) if rank == last else before
        same(model, expected, 0.0)
        for step in range(11, 13):
            reference.train(model, optimizer, step, rank)
        equal_everywhere(vector(model))  # step 12 ends a round


def frozen_and_groups() -> None:
    """Frozen layers stay; several parameter groups are one count; steps without gradients are steps."""

    def make() -> torch.nn.Module:
        net = reference.network()
        net[2].requires_grad_(False)
        return net

    def inner(net: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW([{"params": net[0].parameters()}, {"params": net[4].parameters(), "lr": 0.002}], 0.01)

    def step(net: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int, replica: int) -> None:
        optimizer.zero_grad()
        if number != 3:
            reference.loss(net, number, replica).backward()
        optimizer.step()

    model = make()
    optimizer = inner(model)
    with hulk.DiLoCo(model, optimizer, sync_every=4, fragments=2):
        for number in range(1, 11):
            step(model, optimizer, number, dist.get_rank())
    parts = [PARTS[0], PARTS[2]]
    same(model, reference.trained([1.0] * dist.get_world_size(), 10, 4, parts, step=step, make=make, inner=inner))
    same(model[2], make()[2], 0.0)


def closures() -> None:
    """An optimizer that computes the loss itself, several times a step."""

    def inner(net: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)

    def step(net: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int, replica: int) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            found = reference.loss(net, number, replica)
            found.backward()
            return found

        optimizer.step(closure)

    model = reference.network()
    optimizer = inner(model)
    with hulk.DiLoCo(model, optimizer, sync_every=3) as diloco:
        for number in range(1, 8):
            step(model, optimizer, number, dist.get_rank())
    assert diloco.step == 7
    same(model, reference.trained([1.0] * dist.get_world_size(), 7, 3, step=step, inner=inner), 1e-8)


def exceptions() -> None:
    """Raised on all ranks while sums are under way: the model trains on, alone and in another context."""
    for compression in ("none", "int8"):
        model = reference.network()
        optimizer = reference.adamw(model)
        try:
            with hulk.DiLoCo(model, optimizer, compression=compression, **STREAMING) as diloco:
                for step in range(1, 4):
                    reference.train(model, optimizer, step, dist.get_rank())
                raise KeyError("of the script")
        except KeyError:
            pass
        assert any("under_way" in fragment for fragment in diloco.state_dict()["fragments"])
        reference.train(model, optimizer, 4, dist.get_rank())
        assert diloco.step == 3, "nobody counts outside"
        run(model, range(5, 12), compression=compression, **STREAMING)
        with diloco:
            reference.train(model, optimizer, 12, dist.get_rank())
        equal_everywhere(vector(model))


def one_fails() -> None:
    """The first rank leaves while sums are under way: the others hear of it when they merge, and keep their models."""
    model = reference.network()
    optimizer = reference.adamw(model)
    compression = sys.argv[-1]
    with hulk.DiLoCo(model, optimizer, compression=compression, **STREAMING) as diloco:
        for step in range(1, 30):
            if step == 8 and not dist.get_rank():
                raise KeyError("of the script")
            before = copy.deepcopy(model)
            try:
                reference.train(model, optimizer, step, dist.get_rank())
            except PeerLostError:
                assert any("under_way" in fragment for fragment in diloco.state_dict()["fragments"])
                assert all(bool(one.isfinite().all()) for one in model.parameters())
                assert not all(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))
                print("lost, and goes on alone", flush=True)
                raise


def differing() -> None:
    """Ranks that were told different things say so instead of waiting for each other."""
    model = reference.network()
    with pytest.raises(ValueError, match=r"replica \d has .*sync_every=.*, replica \d has .*sync_every="):
        run(model, range(1, 3), sync_every=4 + dist.get_rank())


def planned() -> None:
    """Over the plan's flows, compressed on their hops as the plan says, or exact where the script says so."""

    def make() -> torch.nn.Module:
        return reference.network().float()

    expected = reference.trained([1.0, 1.0], 18, 6, PARTS, 2, 0.5, make=make)
    off = {}
    for compression in (None, "none", "int4"):
        model = make()
        before = len(planned_sums.between_regions_of(None).collective.reports())
        run(model, range(1, 19), compression=compression, **STREAMING)
        found = len(planned_sums.between_regions_of(None).collective.reports()) - before
        assert found == (0 if compression == "int4" else 11), "three rounds of three, and two at the end"
        equal_everywhere(vector(model))
        off[compression] = float((vector(model) - vector(expected)).norm() / vector(expected).norm())
    assert off["none"] < 1e-6 < off[None] < off["int4"] < 0.05, off


def planned_int4() -> None:
    """Over the plan's flows, of four bits a value."""

    def make() -> torch.nn.Module:
        return reference.network().float()

    expected, model = reference.trained([1.0, 1.0], 18, 6, PARTS, 2, 0.5, make=make), make()
    before = len(planned_sums.between_regions_of(None).collective.reports())
    run(model, range(1, 19), **STREAMING)
    found = len(planned_sums.between_regions_of(None).collective.reports()) - before
    assert found == 11, "three rounds of three, and two at the end"
    equal_everywhere(vector(model))
    assert 1e-6 < (vector(model) - vector(expected)).norm() / vector(expected).norm() < 0.05


def planned_ddp() -> None:
    """The first steps by the planned class as ever, then apart."""
    model = PlannedDDP(reference.network().float())
    run(model, range(1, 21), warmup=7, compression="none", **STREAMING)
    expected = reference.trained([1.0, 1.0], 20, 6, PARTS, 2, 0.5, make=lambda: reference.network().float(), warmup=7)
    same(model, expected, 1e-4)
    assert len(planned_sums.between_regions_of(None).collective.reports()) > 7


def of_the_job() -> None:
    """Without arguments it is as the plan says."""
    model = reference.network()
    optimizer = reference.adamw(model)
    with hulk.DiLoCo(model, optimizer):
        for step in range(1, 14):
            reference.train(model, optimizer, step, dist.get_rank())

    def outer(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.5, momentum=0.25, nesterov=True)

    same(model, reference.trained([1.0] * dist.get_world_size(), 13, 6, PARTS, 2, 0.5, outer=outer))


def resumed_without_a_state() -> None:
    """By a script's own checkpoint, of more steps than the job's warm-up has: replicas train apart at once."""
    model = reference.network()
    optimizer = reference.adamw(model)
    for step in range(1, 10):
        reference.train(model, optimizer, step, 0)
    again = copy.deepcopy(model)
    after = reference.adamw(again)
    after.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with hulk.DiLoCo(again, after) as diloco:
        assert diloco.step == 7
        reference.train(again, after, 10, dist.get_rank())
        reference.train(model, optimizer, 10, dist.get_rank())
        same(again, model)


KINDS: dict[str, Callable[[], None]] = {
    name: found for name, found in list(globals().items()) if callable(found) and found.__module__ == "__main__"
}

if __name__ == "__main__":
    dist.init_process_group("gloo")
    for kind in sys.argv[1].split(","):
        KINDS[kind]()
        print(f"{kind} is right", flush=True)
    dist.barrier()
    dist.destroy_process_group()
