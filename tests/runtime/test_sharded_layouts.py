"""Sharded checkpoints of many ranks: resumed on other layouts, from the nearest stores, with ranks and stores lost."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from depth import WHOLE
from hulk_runtime.checkpoints.sharded import folder_name
from sharded_script import alone
from test_wan_training import TWO, wan

SCRIPT = str(Path(__file__).with_name("sharded_script.py"))
INSTRUMENTED = ("-m", "hulk_runtime.instrumentation")
LOSS = re.compile(r"^step=(\d+) loss=(\S+)", re.MULTILINE)
Layout = tuple[int, int, int]
"""Replicas, shards, tensor ranks."""


def run(job: Any, layout: Layout, steps: int, *events: str, regions: Sequence[str] = (), attempt: int = 1) -> list[Any]:
    """The ranks of a run with a checkpoint every 3 steps, in the folder of the test or in stores of regions."""
    arguments = (SCRIPT, *map(str, layout), str(steps), *events)
    return forked(job, plan(job, layout, regions, attempt), arguments, 3, ("eu", "us") if regions else ())


def forked(
    job: Any, document: dict[str, Any], arguments: tuple[str, ...], every: int, stores: Iterable[str], **more: str
) -> list[Any]:
    job.write_plan(document)
    variables = {
        "HULK_CHECKPOINT_URL": f"file://{job.folder}/all",
        "HULK_CHECKPOINT_EVERY_STEPS": str(every),
        "HULK_CHECKPOINT_KEEP": "2",
        "HULK_CHECKPOINT_STORES": json.dumps({region: f"file://{job.folder}/{region}" for region in stores}),
        "HULK_JOB_UID": "u",
        **more,
    }
    return [
        job.fork(*arguments, RANK=str(rank), HULK_WORKER=str(rank), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", **variables)
        for rank in range(len(document["workers"]))
    ]


def plan(job: Any, layout: Layout, regions: Sequence[str], attempt: int, **more: Any) -> dict[str, Any]:
    """`uk` has no store of its own, and is near eu."""
    replicas, shards, tensor = layout
    where = list(regions) or ["eu"] * (replicas * shards * tensor)
    basis = {"microBatch": None, "precision": "fp32", "optimizer": "adamw", "steps": 6, "globalBatch": 2 * replicas}
    found: dict[str, Any] = job.make_plan(
        (1,) * len(where),
        version=3,
        attempt=attempt,
        workers=[{"node": f"n{n}", "region": region, "accelerators": 1} for n, region in enumerate(where)],
        layout={"data": replicas, "pipeline": 1, "tensor": tensor, "shard": shards},
        shares=[2] * replicas,
        training=basis,
        nearestStores=[["uk", "eu"]],
        **more,
    )
    return found


@pytest.fixture
def ranks(job: Any, make_plan: Any) -> Any:
    job.make_plan = make_plan
    return job


def ended(processes: Sequence[Any]) -> str:
    """What rank 0 printed, of ranks that have all ended with 0."""
    codes = [process.wait() for process in processes]
    assert codes == [0] * len(processes), "\n".join(process.output for process in processes)
    return str(processes[0].output)


def losses(*outputs: str) -> dict[int, float]:
    return {int(step): float(loss) for output in outputs for step, loss in LOSS.findall(output)}


def begins_with(output: str) -> list[str]:
    """Step, digests of model and optimizer, and the scheduler's step."""
    return next(line.split()[1:] for line in output.splitlines() if line.startswith("first "))


def ends_with(output: str) -> list[str]:
    return next(line.split()[1:] for line in output.splitlines() if line.startswith("last "))


ALL: list[Sequence[Layout]] = [
    [(1, 2, 2), (2, 1, 1)],
    [(2, 2, 2), (1, 8, 1), (4, 1, 2), (1, 1, 1), (1, 4, 1), (2, 1, 2), (1, 3, 1)],
]


@pytest.mark.parametrize("layouts", ALL if WHOLE else ALL[:1], ids=lambda layouts: f"{len(layouts)} layouts")
def test_a_run_goes_on_with_another_layout_bit_for_bit(ranks: Any, layouts: Sequence[Layout]) -> None:
    """Each attempt makes two steps more with other ranks; losses are those of one process that was never stopped."""
    reference = alone(4 + 2 * len(layouts))
    outputs: list[str] = []
    for number, layout in enumerate(layouts):
        outputs.append(ended(run(ranks, layout, 4 + 2 * number, attempt=number + 1)))
        if number:
            step, *digests, scheduled = begins_with(outputs[-1])
            assert (step, scheduled) == (str(2 + 2 * number), str(2 + 2 * number))
            assert digests == ends_with(outputs[-2])
    found = losses(*outputs)
    assert len(found) == 2 + 2 * len(layouts)
    assert found == pytest.approx({step: reference[step] for step in found}, rel=1e-12)


def complete(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "u").glob("sharded-*.json"))


def test_each_region_writes_a_copy_to_its_nearest_store_and_reads_it_there(ranks: Any) -> None:
    """HSDP over eu and us; where us has lost its newest state it reads eu's, and where it is alone, its own."""
    regions = ["eu", "uk", "us", "us"]
    first = ended(run(ranks, (2, 2, 1), 4, regions=regions))
    last = ends_with(first)
    eu, us = ranks.folder / "eu", ranks.folder / "us"
    assert complete(eu) == [f"{folder_name(1, step, 0)}.json" for step in (3, 4)]
    assert complete(us) == [f"{folder_name(1, step, 1)}.json" for step in (3, 4)]
    assert complete(ranks.folder / "all") == []

    shutil.rmtree(us / "u" / folder_name(1, 4, 1))
    (us / "u" / f"{folder_name(1, 4, 1)}.json").unlink()
    output = ended(run(ranks, (2, 2, 1), 4, regions=regions, attempt=2))
    assert begins_with(output)[1:3] == last
    assert "resumed after step 4 of attempt 1 from " in output
    assert "2 of 4 ranks from the nearest" in output

    shutil.rmtree(eu / "u" / folder_name(1, 4, 0))
    (eu / "u").rename(eu / "lost")
    (eu / "u").write_text("no folder")
    output = ended(run(ranks, (1, 2, 1), 4, regions=["us", "us"], attempt=3))
    assert begins_with(output)[0] == "3"
    assert "passed over: cannot " in output
    assert losses(output)[4] == pytest.approx(losses(first)[4], rel=1e-12)


def test_rank_0_reports_a_checkpoint_that_its_region_has_no_part_in(ranks: Any) -> None:
    """The replica of eu is sharded over both regions, so that us alone holds everything."""
    output = ended(run(ranks, (2, 2, 1), 4, regions=["eu", "us", "us", "us"]))
    assert complete(ranks.folder / "eu") == []
    folder = f"file://{ranks.folder}/us/u/{folder_name(1, 4, 0)}"
    assert re.search(rf"^hulk: checkpoint step=4 bytes=\d+ seconds=\S+ where={folder}$", output, re.MULTILINE)
    assert f"saved 4 {folder}\n" in output


def test_a_job_that_moves_to_another_region_reads_the_first_ones_store(ranks: Any) -> None:
    last = ends_with(ended(run(ranks, (1, 2, 1), 3, regions=["eu", "eu"])))
    output = ended(run(ranks, (1, 1, 2), 4, regions=["us", "us"], attempt=2))
    assert begins_with(output)[:3] == ["3", *last]
    assert complete(ranks.folder / "us") == [f"{folder_name(2, 4, 0)}.json"]


def test_where_no_region_holds_everything_all_write_one_copy_over_their_stores(ranks: Any) -> None:
    """A model that is sharded over both regions: each shard is in its own region's store."""
    last = ends_with(ended(run(ranks, (1, 2, 1), 4, regions=["eu", "us"])))
    folders = [ranks.folder / region / "u" / folder_name(1, 4, 0) for region in ("eu", "us")]
    assert [sorted(path.name for path in folder.glob("__*")) for folder in folders] == [
        ["__0_0.distcp"],
        ["__1_0.distcp"],
    ]
    output = ended(run(ranks, (1, 1, 1), 4, regions=["us"], attempt=2))
    assert begins_with(output)[:3] == ["4", *last]


def test_a_rank_that_is_killed_while_it_saves_leaves_the_older_state(ranks: Any) -> None:
    """With sums by Hulk, as in pods: the others end as those that lost a peer, and the other region's copy counts."""
    regions = ["region-0", "region-0", "region-1", "region-1"]
    document = plan(ranks, (2, 2, 1), regions, 1, **wan(2, classes=TWO))
    arguments = (*INSTRUMENTED, SCRIPT, "2", "2", "1", "99", "kill=3:6")
    killed = forked(ranks, document, arguments, 3, regions, HULK_INSTRUMENTATION="auto")
    codes = [process.wait() for process in killed]
    assert codes == [69, 69, 69, -signal.SIGKILL], "\n".join(process.output for process in killed)
    first, second = ranks.folder / "region-0", ranks.folder / "region-1"
    assert complete(first) == [f"{folder_name(1, step, 0)}.json" for step in (3, 6)]
    assert complete(second) == [f"{folder_name(1, 3, 1)}.json"]
    output = ended(forked(ranks, plan(ranks, (1, 1, 1), regions[-1:], 2), (SCRIPT, "1", "1", "1", "6"), 3, regions))
    assert begins_with(output)[0] == "6"
    assert not list((second / "u").glob(f"{folder_name(1, 6, 1)}*"))


@pytest.mark.whole
def test_replicas_that_train_apart_go_on_each_from_its_own_state(ranks: Any) -> None:
    """With a sum under way, and both at one store: every step afterwards is that of a run that was never stopped."""

    def states(kind: str, processes: list[Any]) -> list[list[str]]:
        assert [process.wait() for process in processes] == [0] * 4, "\n".join(one.output for one in processes)
        return [[line for line in one.output.splitlines() if line.startswith(kind)] for one in processes]

    def begun(steps: int, attempt: int) -> list[Any]:
        arguments = (str(Path(SCRIPT).with_name("sharded_diloco_script.py")), "2", str(steps))
        return forked(ranks, plan(ranks, (2, 2, 1), (), attempt), arguments, 5, ())

    found = states("step", begun(9, 1))
    assert found[0] != found[2]
    for path in (ranks.folder / "all" / "u").glob("sharded-*-0000000009-*.json"):
        path.unlink()
    resumed = begun(9, 2)
    assert states("first", resumed) == [[lines[4].replace("step", "first")] for lines in found]
    assert states("step", resumed) == [lines[5:] for lines in found]
