"""The backend `hulk` of torch.distributed: plain torch scripts, results as over gloo, sums over planned flows."""

from pathlib import Path
from typing import Any

import pytest
from test_wan_training import TWO, wan

SCRIPT = str(Path(__file__).with_name("backend_script.py"))
FOUR = [{"node": f"node-{i}", "region": f"region-{i // 2}", "accelerators": 1} for i in range(4)]


def two_regions(make_plan: Any) -> dict[str, Any]:
    """Two ranks in each of two regions."""
    document: dict[str, Any] = make_plan((1, 1, 1, 1), workers=FOUR, **wan(2, classes=TWO))
    return document


def said(ranks: list[Any], kind: str) -> list[str]:
    return [next(line for line in rank.output.splitlines() if line.startswith(f"{kind} ")) for rank in ranks]


@pytest.mark.parametrize("kind", ["ddp", "hsdp"])
def test_a_model_becomes_what_it_becomes_over_gloo(job, make_plan, kind: str) -> None:
    """To the bit the same on all ranks, and to rounding the same as by torch's sums."""
    found = {}
    for backend in ("hulk", "gloo"):
        ranks = job.run_ranks(two_regions(make_plan), SCRIPT, backend, kind)
        lines = said(ranks, kind)
        assert lines == [lines[0]] * 4
        found[backend] = [float(value) for value in lines[0].split()[1:3]]
        assert (said(ranks, "planned")[0] != "planned 0") == (backend == "hulk")
        assert "a model's shards are in" not in ranks[0].output
    assert found["hulk"] == pytest.approx(found["gloo"], rel=1e-5)


def test_every_collective_is_right_whoever_does_it(job, make_plan) -> None:
    kinds = ("collectives", "rest", "small", "groups", "modes", "only_read", "nested", "without_cpu", "forked", "again")
    ranks = job.run_ranks(two_regions(make_plan), SCRIPT, "hulk", *kinds)
    for kind in kinds:
        assert said(ranks, kind) == [f"{kind} all right"] * 4
    assert "by torch, not as planned: some are float64" in ranks[0].output


def test_groups_that_the_plan_does_not_know_exchange_equal_shares_and_say_so_once(job, make_plan) -> None:
    ranks = job.run_ranks(make_plan((1, 1, 1), **wan()), SCRIPT, "hulk", "unplanned")
    assert said(ranks, "unplanned") == ["unplanned all right"] * 3
    assert said(ranks, "planned") == ["planned 2", "planned 3", "planned 1"]
    told = [line for rank in ranks for line in rank.output.splitlines() if "by equal exchange" in line]
    assert told == [
        f"2 ranks sum by equal exchange: nothing is planned between region-{first}, region-{first + 1} alone"
        for first in range(2)
    ]


def test_shards_in_several_regions_are_told_of(job, make_plan) -> None:
    """Torch gathers and scatters them; a mesh with replicas across regions is what is planned."""
    ranks = job.run_ranks(two_regions(make_plan), SCRIPT, "hulk", "fsdp")
    why = "a model's shards are in region-0, region-1 (hulk.device_mesh() has them in one region)"
    assert all(rank.output.count(f"by torch, not as planned: {why}") == 1 for rank in ranks)
    lines = said(ranks, "fsdp")
    assert lines == [lines[0]] * 4


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"HULK_WORKER": "0"}, "ranks are not on the workers that the plan has them on"),
        ({"WORLD_SIZE": "3"}, "the world has 3 ranks, the plan 4"),
    ],
)
def test_other_ranks_than_the_plans_sum_by_torch(job, make_plan, changed: dict[str, str], why: str) -> None:
    """A launcher may order them by itself, or start fewer."""
    job.write_plan(two_regions(make_plan))
    job.environment.update(changed)
    size = int(job.environment["WORLD_SIZE"])
    ranks = [
        job.fork(SCRIPT, "hulk", "ddp", **{"HULK_WORKER": str(rank), "RANK": str(rank), "LOCAL_RANK": "0", **changed})
        for rank in range(size)
    ]
    assert [rank.wait() for rank in ranks] == [0] * size, "\n".join(rank.output for rank in ranks)
    assert said(ranks, "planned") == ["planned 0"] * size
    assert all(f"by torch, not as planned: {why}" in rank.output for rank in ranks)
