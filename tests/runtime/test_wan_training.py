"""Training over the planned all-reduce between regions: the same losses as over gloo, by Hulk's runtime and by DDP."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

FLOWS = [
    {"share": 0.7, "exchange": [0, 1], "reduce": [[2, 0]], "broadcast": [[2, 1]]},
    {"share": 0.3, "exchange": [0, 1, 2], "reduce": [], "broadcast": []},
]
DDP = Path(__file__).with_name("ddp_script.py")


def wan(num_regions: int = 3, **changes: Any) -> dict[str, Any]:
    """The plan's keys for an all-reduce between `region-0` to `region-2`, one class for all sizes."""
    size = {"maxBytes": 1 << 20, "chunkBytes": 4096, "predictedSeconds": 0.1, "boundSeconds": 0.1, "flows": FLOWS}
    links = [[a, b, 10_000_000, 0.001] for a in range(num_regions) for b in range(num_regions) if a != b]
    regions = [f"region-{number}" for number in range(num_regions)]
    return {"algorithm": "wan", "collective": {"regions": regions, "links": links, "classes": [size], **changes}}


@pytest.mark.parametrize("accelerators", [(1, 1, 1)])
def test_losses_are_those_of_gloo(job, make_plan: Callable[..., dict[str, Any]], make_training, accelerators) -> None:
    trained = [
        job.run_ranks(make_plan(accelerators, training=make_training(3, steps=8), **changes))[0].losses()
        for changes in ({}, wan())
    ]
    assert list(trained[1]) == list(range(1, 9))
    assert [float(loss) for loss in trained[1].values()] == pytest.approx(
        [float(loss) for loss in trained[0].values()], abs=2e-4
    )


def test_a_killed_rank_is_named_by_all_others(job, make_plan, make_training) -> None:
    plan = make_plan((1, 1, 1), training=make_training(3, steps=100_000), **wan())
    first, second, third = job.start_ranks(plan)
    first.wait_for("step=3 ")
    third.popen.send_signal(signal.SIGKILL)
    assert [first.wait(), second.wait()] == [69, 69]
    errors = [process.output.strip().splitlines()[-1] for process in (first, second)]
    assert errors[0] == errors[1]
    assert errors[0].startswith("RankLostError: rank 2 was lost: ")


def test_without_the_secret_nobody_joins(job, make_plan) -> None:
    first, *others = job.start_ranks(make_plan((1, 1, 1), **wan()), HULK_PEER_SECRET="")
    assert [process.wait() for process in (first, *others)] == [65, 65, 65]
    assert "ConfigurationError: the plan sums between regions, but HULK_PEER_SECRET names no secret" in first.output


def test_a_ddp_script_changes_one_line(job, make_plan) -> None:
    """The script imports another class; its gradients are the mean over all ranks, bit for bit the same on each."""
    ranks = job.run_ranks(make_plan((1, 1, 1), **wan()), str(DDP))
    lines = [next(line for line in rank.output.splitlines() if line.startswith("norm ")) for rank in ranks]
    assert lines == [lines[0]] * 3
    assert [float(value) for value in lines[0].split()[1:3]] == pytest.approx(averaged_by_hand(), rel=1e-5)
    assert "hook all_reduce_hook" in ranks[0].output


def averaged_by_hand() -> list[float]:
    """What the script's three ranks train, in one process: norm and sum of magnitudes of the parameters."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8))
    draws = [torch.Generator().manual_seed(rank) for rank in range(3)]
    for _ in range(4):
        model.zero_grad()
        for draw in draws:
            (model(torch.randn(16, 64, generator=draw)).square().mean() / 3).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    vector = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return [float(vector.norm()), float(vector.abs().sum())]
