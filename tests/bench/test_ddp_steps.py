"""The bench of DDP's steps: buckets as asked, gradients that are looked at, gloo's best and Hulk's planned number."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hulk_placement.plan import Layout
from hulk_runtime.collective.ddp import bucket_mib

from bench.allreduce import case as cases
from bench.allreduce import ddp, job, ours, rounds, steps
from bench.allreduce.case import Case
from bench.allreduce.place import Place
from bench.allreduce.rounds import MIB, Run, Timed
from bench.raw import Raw

CASE = Case("B", (1, 1, 1))


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A gloo group of this process only."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def made(num_layers: int, cap_mb: float | None, num_ranks: int = 1) -> steps.Steps:
    place = Place(0, ("127.0.0.1",) * num_ranks, (tuple(range(num_ranks)),))
    return steps.Steps(place, {"kind": "gloo", "num_layers": num_layers, "cap_mb": cap_mb, "order": [0]})


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("num_buckets", ddp.SWEPT)
def test_ddp_makes_as_many_buckets_as_asked(num_buckets: int) -> None:
    found = made(8, bucket_mib(8 * MIB, num_buckets))
    sizes: list[int] = []

    def hook(_, bucket):  # type: ignore[no-untyped-def]  # torch compares annotations with classes, not with text
        sizes.append(bucket.buffer().numel() * 4)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    found._model.register_comm_hook(None, hook)
    found.step()
    assert len(sizes) == num_buckets
    assert sum(sizes) == 8 * MIB
    found.close()


@pytest.mark.usefixtures("alone")
def test_gradients_that_are_not_the_mean_of_all_ranks_are_wrong() -> None:
    of_one, of_two = made(2, None), made(2, None, num_ranks=2)
    assert of_one.is_right
    assert not of_two.is_right  # nobody added the other rank's
    of_one.close()
    of_two.close()


def test_wrong_gradients_end_the_benchmark() -> None:
    with pytest.raises(rounds.WrongSumError, match=r"wrong sum on ranks \[1\]"):
        rounds.verify("wan", [{"right": True, "crc": 1}, {"right": False, "crc": 1}])
    wanted = [torch.ones(4)]
    assert steps.are_right([torch.ones(4) * (1 + 1e-6)], wanted)
    assert not steps.are_right([torch.ones(4) * (1 + 1e-4)], wanted)
    assert not steps.are_right([torch.full((4,), torch.nan)], wanted)


def test_hulks_number_of_buckets_and_flows_are_those_of_a_jobs_plan() -> None:
    plan = job.planned(CASE, 8 * MIB, compute_s=0.02)
    assert plan.algorithm == "wan"
    assert plan.num_buckets in (1, 2, 4)
    assert plan.prediction.compute_s == pytest.approx(0.02)
    assert plan.prediction.step_s > plan.prediction.compute_s
    assert plan.collective is not None
    method = ours.as_method(plan.collective)
    assert method["region_of_rank"] == [slot.region for slot in plan.workers] == list(CASE.region_names)
    long = job.planned(CASE, 8 * MIB, compute_s=3.0)
    assert long.num_buckets > plan.num_buckets  # a long backward pass hides what more buckets cost


@pytest.mark.parametrize("layout", [Layout(3, shard=2), Layout(3, tensor=2)])
def test_a_divided_script_s_job_has_its_ranks_in_the_labs_order_and_waits_for_each_layer(layout: Layout) -> None:
    case, is_tensor = Case("B", (2, 2, 2)), layout.tensor > 1
    plan, long = (job.divided(case, 4, 4 * MIB, compute_s, is_tensor=is_tensor) for compute_s in (0.3, 3.0))
    assert plan.layout == layout
    assert plan.rank_machines == tuple(f"node-{rank}" for rank in range(6))
    assert plan.collective is not None
    assert plan.collective.network.regions == case.region_names
    assert plan.prediction.compute_s == pytest.approx(0.3, rel=0.01)
    one_s = plan.collective.of(MIB).predicted_s
    assert plan.prediction.communication_s == pytest.approx(4 * one_s, rel=0.01)
    assert long.prediction.communication_s == pytest.approx(4 * one_s, rel=0.01)  # no pass hides anything


def run(seconds: float, valid: bool = True) -> Run:
    return Run(seconds, 0.1, 0.0, 0.0, valid)


class Played:
    """Stands for a band: a step takes what its number of buckets says."""

    def __init__(self, seconds: Mapping[float | None, float]) -> None:
        self.seconds, self.specs = seconds, dict[str, Any]()
        self.num_open = 0

    def compute_s(self, _: int) -> float:
        return 0.02

    def make_steps(self, key: str, spec: Any) -> None:
        self.specs[key] = spec
        self.num_open += 1

    def close_steps(self, _: str) -> None:
        self.num_open -= 1

    def step(self, key: str, _: int) -> Run:
        spec = self.specs[key]
        return run(0.5 if spec["kind"] == "wan" else self.seconds[spec["cap_mb"]])


def test_gloos_best_is_swept_and_timed_again_beside_hulks_planned_number() -> None:
    caps = {count: bucket_mib(8 * MIB, count) for count in ddp.SWEPT}
    band = Played({None: 2.0, caps[1]: 1.5, caps[2]: 1.2, caps[3]: 1.0, caps[4]: 1.1, caps[8]: 1.7})
    found = ddp.time_steps(CASE, band, 8, 2)  # type: ignore[arg-type]
    assert [timed.median_s for timed in found.sweep] == [1.5, 1.2, 1.0, 1.1, 1.7]
    assert found.num_best == 3
    assert {timed.method: timed.median_s for timed in found.timed} == {ddp.TORCHS: 2.0, ddp.BEST: 1.0, ddp.OURS: 0.5}
    wan = next(spec for spec in band.specs.values() if spec["kind"] == "wan")
    assert wan["cap_mb"] == caps[found.num_planned]
    assert band.num_open == 0
    assert ddp.verdicts([found]) == [
        f"DDP step, {ddp.TORCHS} / {ddp.OURS}, least: 4, aim at least 1: met",
        f"DDP step, {ddp.BEST} / {ddp.OURS}, least: 2, aim at least 1: met",
    ]
    assert "gloo by buckets 1: 1.500, 2: 1.200, 3: 1.000" in str(found)


def test_without_runs_that_count_the_sweep_still_chooses_and_nothing_is_concluded() -> None:
    timed = Timed(ddp.OURS, MIB, (run(1.0, valid=False),))
    assert ddp._seconds(timed) == 1.0
    others = (Timed(ddp.TORCHS, MIB, (run(2.0),)), Timed(ddp.BEST, MIB, (run(2.0),)))
    found = ddp.Found(CASE, MIB, (), 1, 1, 1.0, (*others, timed))
    assert ddp.verdicts([found])[0].endswith("no verdict, aim at least 1")


def test_gloos_best_is_not_known_when_a_number_of_buckets_has_no_run_that_counts() -> None:
    timed = tuple(Timed(way, MIB, (run(1.0),)) for way in (ddp.TORCHS, ddp.BEST, ddp.OURS))
    sweep = [Timed(str(count), MIB, (run(1.0, valid=count != 3),)) for count in ddp.SWEPT]
    found = ddp.Found(CASE, MIB, tuple(sweep), 1, 1, 1.0, timed)
    assert (found.gain(ddp.TORCHS), found.gain(ddp.BEST)) == (1.0, None)
    assert "3: 1.000!" in str(found)


def test_all_that_was_timed_is_printed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    caps = [None, *(bucket_mib(8 * MIB, count) for count in ddp.SWEPT)]
    monkeypatch.setattr(cases, "band", lambda _: contextlib.nullcontext(Played(dict.fromkeys(caps, 1.0))))
    kept = Raw("allreduce-ddp", tmp_path)
    monkeypatch.setattr(ddp, "Raw", lambda _: kept)
    ddp.run([CASE], [8], 1)
    out = " ".join(capsys.readouterr().out.split())
    assert f"DDP step, {ddp.BEST} / {ddp.OURS}, least: 2, aim at least 1: met" in out
    assert all(way in out for way in ("B n=3: seconds of a DDP step", ddp.TORCHS, ddp.BEST, ddp.OURS, "in turn"))
    rows = [json.loads(line) for line in kept.path.read_text().splitlines()]
    assert [row["num_buckets"] for row in rows if row["question"] == "sweep"] == list(ddp.SWEPT)
    assert len(rows) == len(ddp.SWEPT) + 3


def test_orders_of_ranks_go_with_the_largest_bucket() -> None:
    case = Case("A", (2, 2, 2))
    spec = ddp._gloo(case, 8, None)
    assert spec["cap_mb"] is None
    assert sorted(spec["order"]) == list(range(case.num_nodes))
    assert cases.key_of(spec) != cases.key_of(ddp._gloo(case, 8, 1))
