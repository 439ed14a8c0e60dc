"""The planned mesh: the ranks of each dimension, in whichever order a script has them; and what is no such mesh."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hulk
import numpy as np
import pytest
import torch.distributed as dist
from hulk_runtime.errors import ConfigurationError, PlanError
from hulk_runtime.plan import mesh, wire
from test_wan_training import TWO, wan
from torch.testing._internal.distributed.fake_pg import FakeStore

SCRIPT = str(Path(__file__).with_name("mesh_script.py"))
DEGREES = {"dp_replicate": 2, "pp": 2, "dp_shard": 3, "tp": 2}


def rank(replica: int, stage: int, shard: int, tensor: int) -> int:
    return ((replica * 2 + stage) * 3 + shard) * 2 + tensor


def test_every_rank_has_its_place_in_any_order() -> None:
    found = mesh.mesh(DEGREES, ("tp", "pp", "dp_shard", "dp_replicate"))
    assert found.shape == (2, 2, 3, 2)
    expected = [rank(r, p, s, t) for t in range(2) for p in range(2) for s in range(3) for r in range(2)]
    assert list(found.ranks) == expected
    assert sorted(found.ranks) == list(range(24))
    assert mesh.mesh(DEGREES, mesh.NAMES).ranks == tuple(range(24))


@pytest.mark.parametrize(
    ("names", "sizes", "words"),
    [
        (("dp_replicate", "cp"), {}, "a mesh of cp: the plan has dp_replicate 2, pp 2, dp_shard 3, tp 2, and no other"),
        (("dp_replicate", "dp_shard", "tp"), {}, "leaves ranks out: the plan also has pp 2"),
        (mesh.NAMES, {"dp_shard": 4}, "a mesh with dp_shard 4: the plan has dp_replicate 2, pp 2, dp_shard 3, tp 2"),
        ((*mesh.NAMES, "tp"), {}, "each dimension is there once"),
    ],
)
def test_a_mesh_that_the_plan_does_not_have_is_refused(
    names: tuple[str, ...], sizes: dict[str, int], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        mesh.mesh(DEGREES, names, sizes)


@pytest.mark.parametrize(
    ("names", "sizes", "expected"),
    [
        ((), {}, {"dp_replicate": 4}),
        ((), {"dp_shard": 4}, {"dp_shard": 4}),
        (("dp_replicate",), {"dp_shard": 2}, {"dp_replicate": 2, "dp_shard": 2}),
        (("tp",), {"dp_shard": 2, "dp_replicate": np.int64(2)}, {"tp": 1, "dp_shard": 2, "dp_replicate": 2}),
    ],
)
def test_a_run_by_hand_has_the_sizes_given_and_the_rest_is_replicas(
    four_by_hand: None, names: tuple[str, ...], sizes: dict[str, int], expected: dict[str, int]
) -> None:
    found = hulk.device_mesh(*names, **sizes)
    assert dict(zip(found.mesh_dim_names or (), found.shape, strict=True)) == expected


@pytest.mark.parametrize(
    ("names", "sizes", "words"),
    [
        ((), {"dp_shard": 2}, "a mesh of dp_shard 2 in a world of 4 ranks leaves dp_replicate 2: give sizes for all"),
        (
            ("tp",),
            {},
            "leaves dp_replicate 4: give sizes for all ranks, or name it too, as in hulk.device_mesh(",
        ),
        ((), {"dp_replicate": 3}, "a mesh of dp_replicate 3: its 3 ranks must make up a world of 4"),
        ((), {"dp_shard": 3}, "a mesh of dp_shard 3: its 3 ranks must divide a world of 4"),
        ((), {"dp_shard": -2, "tp": -2}, "a mesh of dp_shard -2, tp -2: sizes must be >= 1"),
        (("dp", "tp"), {}, "a mesh of dp: the dimensions are dp_replicate, pp, dp_shard, tp"),
        ((), {"dp_shard": "2"}, "a mesh's dp_shard '2' must be a whole number"),
        (((2, 2),), {}, "a mesh of (2, 2): dimensions have names, as in hulk.device_mesh("),
    ],
)
def test_a_mesh_that_a_run_by_hand_cannot_have_is_refused_without_a_word_of_a_plan(
    four_by_hand: None, names: tuple[Any, ...], sizes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)) as refused:
        hulk.device_mesh(*names, **sizes)
    assert "plan" not in str(refused.value)


@pytest.fixture
def four_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The first of four ranks, the others of which torch makes up, without a plan."""
    monkeypatch.setenv("HULK_PLAN", str(tmp_path / "none"))
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


def document(make_plan: Any, **layout: int) -> dict[str, Any]:
    """Of eight workers with an accelerator each."""
    degrees = {"data": 2, "pipeline": 1, "tensor": 1, "shard": 1, **layout}
    order = (("dp_replicate", "data"), ("pp", "pipeline"), ("dp_shard", "shard"), ("tp", "tensor"))
    basis = {"microBatch": None, "precision": "fp32", "optimizer": "adamw", "steps": 6}
    found: dict[str, Any] = make_plan(
        (1,) * 8,
        training={**basis, "globalBatch": 4 * degrees["data"]},
        version=3,
        layout=degrees,
        mesh=[[name, degrees[key]] for name, key in order],
        shares=[4] * degrees["data"],
    )
    return found


def test_the_plan_carries_its_mesh(make_plan, encode_plan) -> None:
    plan = wire.decode(encode_plan(document(make_plan, shard=2, tensor=2)))
    assert plan.num_ranks == 8
    assert dict(plan.layout.mesh) == {"dp_replicate": 2, "pp": 1, "dp_shard": 2, "tp": 2}
    other = document(make_plan, shard=2, tensor=2) | {"mesh": [["tp", 2], ["pp", 1], ["dp_shard", 2], ["x", 2]]}
    del other["digest"]
    with pytest.raises(PlanError, match="is not that of the layout"):
        wire.decode(encode_plan(other | {"digest": wire.digest_of(other)}))


def test_a_plan_without_shards_has_a_mesh_too(make_plan, encode_plan) -> None:
    plan = wire.decode(encode_plan(make_plan()))
    assert mesh.usual_names(dict(plan.layout.mesh)) == ("dp_replicate",)


def said(ranks: list[Any], kind: str) -> list[str]:
    return [next(line for line in rank.output.splitlines() if line.startswith(f"{kind} ")) for rank in ranks]


def test_a_script_trains_over_the_planned_mesh(job, make_plan) -> None:
    """Two replicas of two shards of two tensor ranks, each group's ranks as planned; FSDP2 over the first two."""
    ranks = job.run_ranks(document(make_plan, shard=2, tensor=2), SCRIPT, "train")
    assert said(ranks, "mesh") == ["mesh ('dp_replicate', 'dp_shard', 'tp') [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]"] * 8
    assert [line.split()[1:] for line in said(ranks, "groups")] == [
        [str(replica), str(shard), str(tensor)] for replica in range(2) for shard in range(2) for tensor in range(2)
    ]
    assert len(set(said(ranks, "norm"))) == 1


def test_shards_are_summed_between_regions_over_the_planned_flows(job, make_plan) -> None:
    """Two regions with a replica of two shards each: what gloo says, by a group of flows for each shard."""
    regions = [{"node": f"node-{n}", "region": f"region-{n // 2}", "accelerators": 1} for n in range(4)]
    degrees = {"data": 2, "pipeline": 1, "tensor": 1, "shard": 2}
    plan = make_plan(
        (1,) * 4,
        version=3,
        workers=regions,
        layout=degrees,
        shares=[4, 4],
        **wan(2, classes=TWO),
    )
    found = {}
    for name in ("hulk", "gloo"):
        ranks = job.run_ranks(plan, SCRIPT, "hsdp", name)
        found[name] = float(said(ranks, "gradient")[0].split()[1])
        assert len(set(said(ranks, "gradient"))) == 1
        assert said(ranks, "flows") == [f"flows {int(name == 'hulk')}"] * 4
    assert found["hulk"] == pytest.approx(found["gloo"], rel=1e-4)


def test_a_script_that_asks_for_another_mesh_leaves_with_the_plans(job, make_plan) -> None:
    ranks = job.start_ranks(document(make_plan, shard=4), SCRIPT, "another")
    assert [rank.wait() for rank in ranks] == [65] * 8
    assert "a mesh with dp_shard 8: the plan has dp_replicate 2, pp 1, dp_shard 4, tp 1" in ranks[0].output


def test_a_wrapper_of_whole_models_is_told_where_the_plan_has_room_for_shards(job, make_plan) -> None:
    ranks = job.run_ranks(document(make_plan, shard=4), SCRIPT, "ddp")
    words = (
        "the plan divides each of 2 models among 4 shards, and DistributedDataParallel holds a whole one on each rank"
    )
    assert all(words in rank.output and "or set parallelism.shard: 1" in rank.output for rank in ranks)
