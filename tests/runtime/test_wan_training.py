"""Training over the planned all-reduce between regions: the same losses as over gloo, by Hulk's runtime and by DDP."""

import re
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
DDP_FEATURES = DDP.with_name("ddp_features.py")
DDP_KINDS = DDP.with_name("ddp_kinds.py")
INSIDE = str(Path(__file__).with_name("inside_script.py"))
BEHIND = str(Path(__file__).with_name("behind_script.py"))
TWO = [
    {
        "maxBytes": 1 << 20,
        "chunkBytes": 4096,
        "predictedSeconds": 0.1,
        "boundSeconds": 0.1,
        "flows": [{"share": 1.0, "exchange": [0, 1], "reduce": [], "broadcast": []}],
    }
]
"""The classes of two regions."""
UNEVEN = [{"node": f"node-{i}", "region": f"region-{r}", "accelerators": 1} for i, r in enumerate((0, 0, 1, 1, 2))]


def wan(num_regions: int = 3, **changes: Any) -> dict[str, Any]:
    """The plan's keys for an all-reduce between `region-0` to `region-2`, one class for all sizes."""
    size = {"maxBytes": 1 << 20, "chunkBytes": 4096, "predictedSeconds": 0.1, "boundSeconds": 0.1, "flows": FLOWS}
    links = [[a, b, 10_000_000, 0.001] for a in range(num_regions) for b in range(num_regions) if a != b]
    regions = [f"region-{number}" for number in range(num_regions)]
    return {"algorithm": "wan", "collective": {"regions": regions, "links": links, "classes": [size], **changes}}


def test_the_log_compares_what_was_planned_and_what_was_seen(job, make_plan, make_training) -> None:
    """Two buckets of half a megabyte in each of 16 steps: five rounds, in which links are measured."""
    model = {"layers": 1, "hidden": 128, "heads": 2, "sequenceLength": 32, "vocabulary": 256, "feedForward": 512}
    first, *others = job.run_ranks(make_plan((1, 1, 1), model=model, training=make_training(3, steps=16), **wan()))
    assert " backend=gloo all_reduce=wan " in first.output
    lines = first.output.splitlines()
    [size] = [line for line in lines if line.startswith("all-reduce ")]
    found = re.fullmatch(
        r"all-reduce max_mb=1.049 n=15 observed=(\S+)s predicted=0.1000s bound=0.1000s error=(\S+)%", size
    )
    assert found is not None, size
    assert float(found[2]) == pytest.approx(100 * abs(float(found[1]) - 0.1) / float(found[1]), rel=0.05)
    links = [line.split()[1:3] for line in lines if line.startswith("link ")]
    pairs = [f"region-{a}->region-{b}" for a in range(3) for b in range(3) if a != b]
    assert links == [[pair, "planned=10MB/s"] for pair in pairs]
    assert re.search(
        r"^link region-0->region-1 planned=10MB/s observed=[\d.]+MB/s error=[\d.]+% believed=[\d.]+MB/s "
        r"carried=[\d.]+MB last_byte=[\d.]+s$",
        first.output,
        re.MULTILINE,
    )
    assert not any("all-reduce " in other.output for other in others)


def test_with_the_ring_the_log_says_so(job, make_plan) -> None:
    first, *_ = job.run_ranks(make_plan((1, 1)))
    assert " backend=gloo all_reduce=ring " in first.output
    assert "all-reduce " not in first.output


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


WITHOUT = [
    {
        "region": lost,
        "classes": [
            {
                "maxBytes": 1 << 20,
                "chunkBytes": 4096,
                "predictedSeconds": 0.1,
                "boundSeconds": 0.1,
                "flows": [{"share": 1.0, "exchange": sorted({0, 1, 2} - {lost}), "reduce": [], "broadcast": []}],
            }
        ],
    }
    for lost in (0, 2)
]


@pytest.mark.parametrize("lost", [0, 2])
def test_the_others_go_on_without_a_region(job, make_plan, make_training, tmp_path: Path, lost: int) -> None:
    """Rank 0's region too: then rank 1 speaks for the job and commits, and whatever rank 0 wrote is fenced off.

    The loss after each step is that of an uninterrupted run: the same sequences, shared out anew.
    """
    changes = {"training": make_training(3, steps=24), **wan(without=WITHOUT, onRegionLoss="continue")}
    whole = job.run_ranks(make_plan((1, 1, 1), **changes))[0].losses()
    url = f"file://{tmp_path}/checkpoints"
    store = {"HULK_CHECKPOINT_URL": url, "HULK_CHECKPOINT_EVERY_STEPS": "4", "HULK_JOB_UID": "u-1"}
    ranks = job.start_ranks(make_plan((1, 1, 1), **changes), **store)
    ranks[0].wait_for("checkpoint step=4 ")
    ranks[lost].popen.send_signal(signal.SIGKILL)
    left = [rank for number, rank in enumerate(ranks) if number != lost]
    assert [rank.wait() for rank in left] == [0, 0], "\n".join(rank.output for rank in left)
    assert re.search(
        rf"^epoch=1 without=region-{lost} ranks=2 go on after step \d+ loss=", left[0].output, re.MULTILINE
    )
    losses = {step: float(loss) for rank in ranks for step, loss in rank.losses().items()}
    assert losses == pytest.approx({step: float(loss) for step, loss in whole.items()}, abs=2e-3)
    committed = {path.name for path in (tmp_path / "checkpoints" / "u-1").iterdir()}
    assert {"begun-00000001", "begun-00000001.0001", "latest-00000001.0001"} <= committed
    assert "state-00000001.0001-0000000024" in committed


@pytest.mark.parametrize("sync", [{}, {"sync": {"mode": "local", "innerSteps": 2}}])
def test_a_step_whose_sum_never_reached_the_one_who_writes_is_told_all_the_same(
    job, make_plan, make_training, sync
) -> None:
    """Rank 0 takes over the state of those that are ahead, and the loss with it: here that of the first sum."""
    inner_steps = 2 if sync else 1
    changes = {"training": make_training(3, steps=4), **sync, **wan(without=WITHOUT, onRegionLoss="continue")}
    whole = job.run_ranks(make_plan((1, 1, 1), **changes))[0].losses()
    ranks = job.start_ranks(make_plan((1, 1, 1), **changes), BEHIND, HELD="1", BEHIND="0", LOST="2")
    for rank in ranks:
        rank.wait_for("sum 1 is here")
    ranks[2].popen.send_signal(signal.SIGKILL)
    assert [rank.wait() for rank in ranks[:2]] == [0, 0], "\n".join(rank.output for rank in ranks[:2])
    first = ranks[0].output
    assert f"\nstep={inner_steps} " not in first
    assert f"\nepoch=1 without=region-2 ranks=2 go on after step {inner_steps} loss=" in first
    losses = {step: float(loss) for step, loss in ranks[0].losses().items()}
    assert list(losses) == list(range(1, 5))
    assert losses[inner_steps] == pytest.approx(float(whole[inner_steps]), abs=2e-3)


def test_torch_may_sum_inside_regions(job, make_plan, make_training) -> None:
    changes = {"training": make_training(5, steps=8), "workers": UNEVEN}
    whole = job.run_ranks(make_plan((1,) * 5, **changes))[0].losses()
    split = job.run_ranks(make_plan((1,) * 5, **changes, **wan()), INSIDE)[0].losses()
    assert [float(loss) for loss in split.values()] == pytest.approx([float(loss) for loss in whole.values()], abs=2e-4)


def test_a_killed_rank_is_named_by_all_where_torch_sums_inside_regions(job, make_plan, make_training) -> None:
    plan = make_plan((1,) * 5, training=make_training(5, steps=100_000), workers=UNEVEN, **wan())
    ranks = job.start_ranks(plan, INSIDE)
    ranks[0].wait_for("step=3 ")
    ranks[3].popen.send_signal(signal.SIGKILL)
    others = [rank for number, rank in enumerate(ranks) if number != 3]
    assert [rank.wait() for rank in others] == [69] * 4
    errors = {rank.output.strip().splitlines()[-1] for rank in others}
    assert len(errors) == 1
    assert errors.pop().startswith("RankLostError: rank 3 was lost: ")


def test_the_others_go_on_where_torch_sums_inside_regions(job, make_plan, make_training) -> None:
    """The groups that the next epoch needs were made at the start."""
    changes = {"training": make_training(5, steps=24), "workers": UNEVEN}
    whole = job.run_ranks(make_plan((1,) * 5, **changes))[0].losses()
    ranks = job.start_ranks(make_plan((1,) * 5, **changes, **wan(onRegionLoss="continue")), INSIDE)
    ranks[0].wait_for("step=4 ")
    ranks[4].popen.send_signal(signal.SIGKILL)
    assert [rank.wait() for rank in ranks[:4]] == [0] * 4, "\n".join(rank.output for rank in ranks[:4])
    assert "epoch=1 without=region-2 ranks=4 go on after step " in ranks[0].output
    losses = {step: float(loss) for step, loss in ranks[0].losses().items()}
    assert losses == pytest.approx({step: float(loss) for step, loss in whole.items()}, abs=2e-3)


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ("", "the plan sums between regions, but HULK_PEER_SECRET names no secret"),
        ("/dev/null", "the peers' secret has 0 bytes: at least 16 are needed"),
    ],
)
def test_without_a_secret_nobody_joins(job, make_plan, secret: str, why: str) -> None:
    first, *others = job.start_ranks(make_plan((1, 1, 1), **wan()), HULK_PEER_SECRET=secret)
    assert [process.wait() for process in (first, *others)] == [65, 65, 65]
    assert f"ConfigurationError: {why}" in first.output


def test_a_ddp_script_changes_one_line(job, make_plan) -> None:
    """The script imports another class; its gradients are the mean over all ranks, bit for bit the same on each."""
    ranks = job.run_ranks(make_plan((1, 1, 1), **wan()), str(DDP))
    lines = [next(line for line in rank.output.splitlines() if line.startswith("norm ")) for rank in ranks]
    assert lines == [lines[0]] * 3
    assert [float(value) for value in lines[0].split()[1:3]] == pytest.approx(averaged_by_hand(), rel=1e-5)
    assert "hook all_reduce_hook" in ranks[0].output


def test_a_ddp_script_names_a_rank_whose_script_hangs(job, make_plan) -> None:
    ranks = job.start_ranks(make_plan((1, 1, 1), **wan()), str(DDP), HULK_SILENCE_SECONDS="3", HANGS="2")
    assert [rank.wait() for rank in ranks[:2]] == [69, 69]
    for rank in ranks[:2]:  # for ten predicted steps
        assert "\nRankLostError: rank 2 was lost: it did not begin all-reduce 2 within 5 s" in rank.output


def test_gradients_of_any_ddp_are_the_mean_of_its_ranks(job, make_plan) -> None:
    """Whatever torch's class can do; a model of some of the ranks keeps torch's own all-reduce."""
    ranks = job.run_ranks(make_plan((1, 1, 1), **wan()), str(DDP_KINDS))
    said = [
        f"{kind}: 3 steps as by hand, hook {'none' if kind == 'group' else 'all_reduce_hook'}"
        for kind in ("plain", "unused", "accumulated", "static", "checkpointed", "bfloat16", "double", "group")
    ]
    for rank in ranks:
        assert [line for line in rank.output.splitlines() if " as by hand" in line] == said
    assert "not as planned: a model's process group has ranks [0, 1] of 3" in ranks[0].output


LIKE_TORCH = [
    "sparse",
    "bucket_view",
    "options_of_buckets",
    "ignored",
    "complex_values",
    "half",
    "mixed_types",
    "no_outputs",
    "buffers",
    "uneven_inputs",
    "uneven_inputs_that_raise",
    "uneven_inputs_and_sharded_optimizer",
    "delayed",
    "own_hook",
    "optimizer_in_backward",
    "unused",
    "graphs",
    "nested_outputs",
    "finalized_by_hand",
    "other_group",
    "copied",
    "python_reducer",
    "state_and_logging",
    "refused",
]
BY_TORCH = [
    "some are sparse",
    "some are float64",
    "delay_all_reduce_named_params names all parameters",
    "the script has registered fp16_compress_hook",
    "the script has registered post_localSGD_hook",
    "a model's process group has ranks [0] of 2",
    "compiled autograd calls no hook with buckets",
]


def test_hulks_class_does_what_torchs_does(job, make_plan) -> None:
    """Feature by feature; what torch does in place of the plan is said once, however many models do it."""
    first, second = job.run_ranks(make_plan((1, 1), **wan(2, classes=TWO)), str(DDP_FEATURES), ",".join(LIKE_TORCH))
    for rank in (first, second):
        assert [line for line in rank.output.splitlines() if line.endswith(": as torch's")] == [
            f"{name}: as torch's" for name in LIKE_TORCH
        ]
    for why in BY_TORCH:
        assert first.output.count(f"gradients are summed by torch, not as planned: {why}\n") == 1, why


@pytest.mark.whole
def test_hulks_class_compiles(job, make_plan) -> None:
    first, _ = job.run_ranks(make_plan((1, 1), **wan(2, classes=TWO)), str(DDP_FEATURES), "compiled")
    assert "compiled: as torch's" in first.output


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


@pytest.mark.parametrize("compression", ["none", "int8"])
def test_rounds_of_local_sgd_end_over_the_wan(job, make_plan, make_training, tmp_path: Path, compression) -> None:
    """Votes and steps are exact beside compressed values; ranks differ in nothing when all have saved."""
    plan = make_plan(
        (1, 1, 1),
        sync={"mode": "local", "innerSteps": 3},
        training=make_training(3, steps=10),
        **wan(compression=compression),
    )
    first, *_ = job.run_ranks(plan, HULK_CHECKPOINT_URL=f"file://{tmp_path}/checkpoints")
    losses = [float(loss) for loss in first.losses().values()]
    assert len(losses) == 10
    assert losses[-1] < losses[0] - 0.4
    assert "checkpoint step=10 " in first.output


def test_a_run_goes_on_over_the_wan_where_it_was_saved(job, make_plan, make_training, tmp_path: Path) -> None:
    """Rank 0 alone reads the checkpoint, and brings it to the others over the group's own connections."""

    def losses(store: str, attempt: int, steps: int) -> dict[int, str]:
        changes = {"attempt": attempt, "training": make_training(3, steps=steps), **wan(fixedShares=True)}
        return job.run_ranks(
            make_plan((1, 1, 1), **changes), HULK_CHECKPOINT_URL=f"file://{tmp_path}/{store}", HULK_JOB_UID="u-1"
        )[0].losses()

    whole = losses("whole", 1, 7)
    assert losses("cut", 1, 4) == {step: whole[step] for step in range(1, 5)}
    assert losses("cut", 2, 7) == {step: whole[step] for step in range(5, 8)}
