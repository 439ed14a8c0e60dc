"""The plan as the operator writes it; another version is refused with both sides named."""

import gzip
import json
import re
from pathlib import Path

import pytest
from hulk_runtime.errors import PlanError
from hulk_runtime.plan import wire

GOLDEN = Path(__file__).resolve().parents[1] / "placement" / "golden" / "plan-v1.json"


BAD_PLANS = json.loads(GOLDEN.with_name("bad-plans.json").read_text())


def changed(encode_plan, **changes):
    """The golden plan with other top-level values, its digest right."""
    body = {**json.loads(GOLDEN.read_text()), **changes}
    del body["digest"]
    return encode_plan({**body, "digest": wire.digest_of(body)})


@pytest.mark.parametrize("name", BAD_PLANS)
def test_what_the_planner_never_writes_is_refused(encode_plan, name):
    """The planner's tests read the same file."""
    with pytest.raises(PlanError):
        wire.decode(changed(encode_plan, **BAD_PLANS[name]))


def test_the_planners_golden_plan_is_read():
    plan = wire.decode(gzip.compress(GOLDEN.read_bytes()))
    assert plan.version in wire.READABLE
    assert plan.num_ranks == len(plan.shares) == len(plan.nodes_by_rank())
    assert sum(plan.shares) == plan.training.global_batch


def test_the_planners_golden_pipeline_is_read():
    plan = wire.decode(gzip.compress(GOLDEN.with_name("plan-pipeline-v1.json").read_bytes()))
    assert (plan.num_ranks, len(plan.shares), len(plan.pipeline.stages)) == (6, 2, 3)
    assert plan.pipeline.schedule.num_micro_batches * plan.training.micro_batch == max(plan.shares)


def test_ranks_and_nodes_follow_the_workers(make_plan, encode_plan):
    plan = wire.decode(encode_plan(make_plan((2, 1, 3))))
    assert [list(plan.ranks_of(worker)) for worker in range(3)] == [[0, 1], [2], [3, 4, 5]]
    assert plan.nodes_by_rank() == ("node-0", "node-0", "node-1", "node-2", "node-2", "node-2")


def test_a_thousand_workers_are_read(make_plan, encode_plan, make_training):
    blob = encode_plan(make_plan((1,) * 1000, training=make_training(1000)))
    assert len(blob) < 900 * 1024
    assert wire.decode(blob).num_ranks == 1000


def test_unknown_keys_of_a_known_version_are_ignored(make_plan, encode_plan):
    layout = {"data": 2, "pipeline": 1, "tensor": 1, "expert": 1}
    assert wire.decode(encode_plan(make_plan(later="more", layout=layout))).num_ranks == 2


@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("another version", {"version": 4}, "operator 0.1.0 wrote the plan in wire version 4, runtime"),
        ("no version", {"version": None}, "wire version None"),
        ("pipeline", {"layout": {"data": 1, "pipeline": 2, "tensor": 1}}, "2 shares (smallest 2) for 1 replicas"),
        ("layout", {"layout": {"data": 3, "pipeline": 1, "tensor": 1}}, "layout 3x1x1x1 is not 2 ranks"),
        ("too few shares", {"shares": [4]}, "1 shares (smallest 4) for 2 replicas"),
        ("negative share", {"shares": [5, -1]}, "2 shares (smallest -1) for 2 replicas"),
        ("wrong sum", {"shares": [2, 3]}, "shares sum to 5, global batch 4"),
        ("another algorithm", {"algorithm": "tree"}, "algorithm: must be 'ring' or 'wan', not 'tree'"),
        ("no workers", {"workers": []}, "workers: must hold one or more, not []"),
        ("another way to come together", {"sync": {"mode": "gossip"}}, "sync.mode: must be 'ring' or 'wan' or 'local'"),
        ("no step in a round", {"sync": {"mode": "local", "innerSteps": 0}}, "sync.innerSteps: must be > 0, not 0"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(make_plan, encode_plan, name, changes, complaint):
    with pytest.raises(PlanError, match=re.escape(complaint)):
        wire.decode(encode_plan(make_plan(**changes)))


def test_an_altered_plan_is_refused(make_plan, encode_plan):
    document = {**make_plan(), "numBuckets": 7}
    with pytest.raises(PlanError, match="it was altered"):
        wire.decode(encode_plan(document))


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"no gzip",
        gzip.compress(b"{}")[:-6],
        gzip.compress(b"{"),
        gzip.compress(b"[1]"),
        gzip.compress(b"[" * 100_000),
        gzip.compress(b" " * wire.MAX_BYTES + b"{}"),
    ],
    ids=["nothing", "no gzip", "cut off", "no JSON", "no object", "nested", "a bomb"],
)
def test_what_is_no_plan_is_refused(blob):
    with pytest.raises(PlanError):
        wire.decode(blob)


def test_a_rank_with_a_plan_of_another_version_exits_64_and_names_both(job, make_plan):
    job.write_plan(make_plan(version=4, operatorVersion="9.9.9"))
    rank = job.start("-m", "hulk_runtime.examples.gpt", RANK="0")
    assert rank.wait() == 64
    assert "operator 9.9.9 wrote the plan in wire version 4" in rank.output
    assert f"runtime {wire.runtime_version()} reads version 1, 2, 3:" in rank.output


def test_a_missing_plan_exits_64(job, tmp_path: Path):
    rank = job.start("-m", "hulk_runtime.examples.gpt", HULK_PLAN=str(tmp_path / "none"))
    assert rank.wait() == 64
