"""Nobody waits without bound, what fails on the way to the engine is heard of, feedback stays with its bucket."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from collective_ranks import group, together
from hulk_runtime.collective.gradient_sums import _summed_as_planned
from hulk_runtime.collective.group import Settings
from hulk_runtime.collective.reduction.handle import Work
from hulk_runtime.collective.staging import AllReduce, Stage, StagedWork
from hulk_runtime.errors import PeerLostError, RankLostError
from hulk_runtime.plan.flows import CollectivePlan

PAIR = CollectivePlan.direct([[0], [1]])
THREE = CollectivePlan.direct([[0], [1], [2]])
CPU = torch.device("cpu")
SOON_S = 20.0


def raised_by(action: Callable[[], object]) -> BaseException | None:
    """What an action raises; the test fails where it does not end soon."""
    found: list[BaseException | None] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001  # asserted upon
            found.append(error)
        else:
            found.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SOON_S)
    assert found, f"it still waits after {SOON_S:g} s"
    return found[0]


@dataclass
class Bucket:
    """What the hook reads of torch's GradBucket."""

    gradients: torch.Tensor
    parameter: torch.Tensor
    number: int = 0

    def buffer(self) -> torch.Tensor:
        return self.gradients

    def index(self) -> int:
        return self.number

    def parameters(self) -> list[torch.Tensor]:
        return [self.parameter]


def all_reduce_hook(between: AllReduce, bucket: Bucket) -> "torch.futures.Future[torch.Tensor]":
    """Of a model whose gradients are all summed as planned."""
    return _summed_as_planned(between, bucket.buffer().div_(3), bucket)  # type: ignore[arg-type]


def outcome(future: "torch.futures.Future[torch.Tensor]") -> BaseException | None:
    """Of a future that ends soon."""
    until_s = time.monotonic() + SOON_S
    while not future.done():
        assert time.monotonic() < until_s, f"it still waits after {SOON_S:g} s"
        time.sleep(0.02)
    return raised_by(future.wait)


@pytest.mark.parametrize("staged", [False, True], ids=["in host memory", "on a device"])
def test_a_hook_names_a_rank_that_takes_no_part(staged: bool) -> None:
    """Rank 2 lives, its script hangs: the others' backward passes end, all with the same words."""
    with group(THREE) as ranks:
        betweens = [AllReduce(rank, CPU, patience_s=1.0) for rank in ranks[:2]]
        if staged:
            for between in betweens:
                between._stage = Stage(between.collective, CPU)
        buckets = [Bucket(torch.ones(5000), torch.ones(1)) for _ in betweens]
        futures = [all_reduce_hook(*pair) for pair in zip(betweens, buckets, strict=True)]  # type: ignore[arg-type]
        said = [str(outcome(future)) for future in futures]
    assert len(set(said)) == 1
    assert "rank 2 was lost: it did not begin all-reduce 0 within 1 s" in said[0]


def test_a_hook_has_patience_by_default() -> None:
    with group(PAIR) as ranks:
        assert 0 < AllReduce(ranks[0], CPU).patience_s < float("inf")


def test_a_hook_hears_of_every_bucket_in_its_order() -> None:
    with group(THREE) as ranks:
        betweens = [AllReduce(rank, CPU, patience_s=SOON_S) for rank in ranks]
        futures = [
            [all_reduce_hook(between, Bucket(torch.full((4000 * (9 - number),), 3.0), torch.ones(1), number))  # type: ignore[arg-type]
             for number in range(8)]
            for between in betweens
        ]  # fmt: skip
        assert [outcome(future) for mine in futures for future in mine] == [None] * 24
        assert all(torch.equal(future.value(), torch.full_like(future.value(), 3.0)) for future in futures[0])


def test_warming_names_a_rank_that_takes_no_part() -> None:
    with group(THREE, Settings(bound_s=5.0, connect_s=2.0)) as ranks:
        found: list[BaseException | None] = together([lambda rank=rank: raised_by(rank.warm) for rank in ranks[:2]])  # type: ignore[misc]
    assert all(isinstance(error, RankLostError) for error in found)
    assert {str(error) for error in found} == {"rank 2 was lost: it did not begin all-reduce 0 within 2 s"}


def test_a_device_tensor_that_cannot_be_summed_ends_in_its_error() -> None:
    """And the next one is summed."""
    with group(PAIR) as ranks:
        stages = [Stage(rank, CPU) for rank in ranks]
        for stage in stages:
            error = raised_by(lambda stage=stage: stage.all_reduce(torch.ones(100, dtype=torch.float64), 0).wait(1.0))  # type: ignore[misc]
            assert isinstance(error, ValueError)
            assert "all_reduce of torch.float64" in str(error)
        after = [torch.ones(100) for _ in stages]
        works = [stage.all_reduce(own, 0) for stage, own in zip(stages, after, strict=True)]
        assert [raised_by(lambda work=work: work.wait(SOON_S)) for work in works] == [None, None]  # type: ignore[misc]
        assert all(torch.equal(own, torch.full((100,), 2.0)) for own in after)


def test_a_copy_back_that_fails_ends_in_its_error() -> None:
    """The engine, from whose thread it is begun, goes on."""
    staged, work = StagedWork(CPU), Work(lambda _: None, 0.0)

    def copy_back() -> None:
        raise RuntimeError("CUDA error: out of memory")

    staged.begun(work, copy_back)
    work.end()
    assert str(raised_by(lambda: staged.wait(1.0))) == "CUDA error: out of memory"


def test_a_device_that_never_gets_there_is_waited_for_so_long() -> None:
    error = raised_by(lambda: StagedWork(CPU).wait(0.2))
    assert isinstance(error, PeerLostError)
    assert "was not copied to the host within 0.2 s" in str(error)


class Copied:
    """An event on a device, as far as waiting for it goes."""

    def __init__(self) -> None:
        self.waited: list[object] = []

    def wait(self, stream: object) -> None:
        self.waited.append(stream)


def test_a_listener_waits_on_the_tensors_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's current device is 0: its stream must not be the one that waits for device 3's copy."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: f"stream of {device or 'cuda:0'}")
    with group(PAIR) as ranks:
        between, copied, heard = AllReduce(ranks[0], CPU, patience_s=1.0), Copied(), threading.Event()
        staged, work = StagedWork(torch.device("cuda", 3)), Work(lambda _: None, 0.0)
        staged.begun(work, lambda: copied)  # type: ignore[arg-type,return-value]
        work.end()
        waiting: Any = type("Waiting", (), {"wait": lambda self: staged.wait(1.0)})()
        between.tell(waiting, lambda _: heard.set())
        assert heard.wait(SOON_S)
    assert copied.waited == ["stream of cuda:3"]


# Error feedback.

COARSE = torch.tensor([127.0, 1.4] * 2000)
EXACT = torch.tensor([127.0, 1.0] * 2000)


def means(betweens: list[AllReduce], num_steps: int = 20) -> torch.Tensor:
    """Of what comes of COARSE's sums, with EXACT as another bucket of the same length; always in new memory."""
    total, before = torch.zeros_like(COARSE, dtype=torch.float64), []
    for _ in range(num_steps):
        steps = [[vector.clone() for vector in (COARSE, EXACT)] for _ in betweens]
        before.append(steps)  # no address is used again
        works = [
            between.all_reduce(vector, name=number)
            for between, mine in zip(betweens, steps, strict=True)
            for number, vector in enumerate(mine)
        ]
        for work in works:
            work.wait()
        total += steps[0][0].double()
    return total / num_steps


@pytest.mark.parametrize("staged", [False, True], ids=["in host memory", "on a device"])
def test_feedback_stays_with_its_bucket(staged: bool) -> None:
    """Of two equal buckets each gets back what compression took from itself, wherever in memory it is."""
    with group(replace(PAIR, compression="int8")) as ranks:
        betweens = [AllReduce(rank, CPU, patience_s=SOON_S) for rank in ranks]
        if staged:
            for between in betweens:
                between._stage = Stage(between.collective, CPU)
        error = (means(betweens) - 2 * COARSE.double()).abs().max()
    assert error < 0.45  # 0.8 without feedback: results are rounded once more, and that is not fed back


def test_vectors_without_a_name_leave_nothing_behind() -> None:
    with group(replace(PAIR, compression="int8")) as ranks:
        kept = []
        for _ in range(5):
            kept.append([COARSE.clone() for _ in ranks])
            for work in [rank.all_reduce(own) for rank, own in zip(ranks, kept[-1], strict=True)]:
                work.wait(SOON_S)
        assert [len(rank._feedback._kept) for rank in ranks] == [0, 0]


def test_a_name_has_one_residual_though_its_length_changes() -> None:
    """Torch makes other buckets after the first step."""
    with group(replace(PAIR, compression="int8")) as ranks:
        for length in (4000, 3000, 2000):
            for work in [rank.all_reduce(COARSE[:length].clone(), name="bucket") for rank in ranks]:
                work.wait(SOON_S)
        assert [len(rank._feedback._kept) for rank in ranks] == [1, 1]
