"""Jobs with pipeline stages through the planning pass: plans, pods, speeds stage by stage, and moves."""

import gzip
import json
from base64 import b64decode
from itertools import pairwise
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.cluster import CONFIG_MAPS, HULK_JOBS
from hulk_operator.inputs.workloads import to_model
from hulk_operator.observation import Preflight
from hulk_operator.planning.process import Search
from hulk_operator.pods import plan_config_map, pods
from hulk_operator.reconcile.steps.planning import committed
from hulk_operator.reconcile.types import FullPlan, Planned, Unplanned, View
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget
from test_planning import World, job, node, planning_over
from test_planning_replan_review import CHECKPOINTED, LONG, NEAR_US, NEXT_US, Site, placed, profiles, running
from views import NOW

SHAPE = {"transformer": {"layers": 6, "hidden": 64, "heads": 4, "sequenceLength": 32, "vocabulary": 64}}
LARGE = {"transformer": {"layers": 6, "hidden": 256, "heads": 4, "sequenceLength": 32, "vocabulary": 256}}
STAGED: dict[str, Any] = {"parallelism": {"pipeline": 2}, "model": SHAPE}
COMMAND = ["hulk-launch", "-m", "hulk_runtime.examples.gpt"]
GPT = {"spec": {"containers": [{"name": "w", "image": "i", "command": COMMAND}]}}
NODES = ("a", "b", "c", "d")


async def answered(*objects: Any, **spec: Any) -> tuple[World, Planned | Unplanned]:
    async with planning_over(*objects, job("one", 4, **{**STAGED, **spec})) as world:
        world.planner.request("lab/one")
        return world, await world.answer("one")


async def decided(**spec: Any) -> tuple[World, Planned]:
    """A job of four workers on four nodes."""
    world, answer = await answered(*map(node, NODES), **spec)
    assert isinstance(answer, Planned), answer
    return world, answer


async def test_a_job_of_stages_is_planned_and_summed_up_stage_by_stage() -> None:
    world, answer = await decided()
    plan, summary = answer.full.plan, answer.summary
    assert (plan.layout.data, plan.layout.pipeline, plan.algorithm) == (2, 2, "ring")
    assert (plan.num_buckets, plan.recompute) == (1, False)
    assert summary.schedule == plan.schedule
    assert (summary.layout.data, summary.layout.pipeline, summary.num_workers) == (2, 2, 4)
    bounds = (*plan.stages, 8)
    assert [(one.stage, one.layers, one.num_accelerators, one.num_nodes, one.regions) for one in summary.stages] == [
        (stage, f"{first}-{end - 1}", 2, 2, ("eu",)) for stage, (first, end) in enumerate(pairwise(bounds))
    ]
    assert [place.layers for place in summary.layers] == ["0-7"]
    [planned] = [one for one in committed(world.view("one"), answer).conditions if one.type == "Planned"]
    assert planned.message == f"attempt 1: 4 workers, 4 in eu; 2 replicas of 2 stages by {plan.schedule}"


async def test_a_job_without_stages_says_nothing_of_them() -> None:
    _, answer = await decided(parallelism={})
    assert (answer.summary.layout.pipeline, answer.summary.stages, answer.summary.schedule) == (1, (), "")


async def test_layers_pinned_to_different_nodes_are_stages_there() -> None:
    pins = [{"parameters": "token*", "nodes": ["b", "c"]}, {"layers": "7", "nodes": ["a", "d"]}]
    _, answer = await decided(placement={"pins": pins, "allowUnknownLinks": True})
    plan = answer.full.plan
    assert {plan.machine(replica, 0) for replica in range(2)} == {"b", "c"}
    assert {plan.machine(replica, 1) for replica in range(2)} == {"a", "d"}


async def test_pins_that_need_more_stages_than_asked_for_are_refused() -> None:
    pins = [{"layers": str(layer), "nodes": [name]} for layer, name in enumerate("abc")]
    _, answer = await answered(*map(node, NODES), placement={"pins": pins, "allowUnknownLinks": True})
    assert isinstance(answer, Unplanned)
    assert (answer.reason, "they need 3 stages, and 2 is asked for" in answer.message) == (
        "ContradictoryPlacement",
        True,
    )


@pytest.mark.parametrize(
    ("memory_mib", "template", "expected"),
    [
        (200, GPT, (1, 1)),
        (60, GPT, (4, 1)),
        (200, {}, (1, 1)),
        (60, {}, (1, 2)),
        (20, GPT, "NoMemory"),
        (20, {}, "NoMemory"),
    ],
)
async def test_a_model_that_fits_no_node_gets_stages_where_the_program_trains_by_them_else_shards(
    memory_mib: int, template: dict[str, Any], expected: tuple[int, int] | str
) -> None:
    """A rank needs 98 MiB for the whole model, 40 MiB for the largest of four stages, 60 do with two shards."""
    nodes = [node(name) for name in NODES]
    for _, body in nodes:
        body["metadata"]["labels"][names.NODE_ACCELERATOR_MEMORY] = str(memory_mib)
    _, answer = await answered(*nodes, parallelism={}, model=LARGE, **({"template": template} if template else {}))
    if isinstance(answer, Unplanned):
        assert answer.reason == expected
        return
    layout = answer.full.plan.layout
    assert (layout.pipeline, layout.shard) == expected
    assert (answer.summary.layout.pipeline, answer.summary.layout.shard) == expected


async def test_pods_of_stages_get_their_ranks_and_the_plan_with_its_pipeline() -> None:
    world, answer = await decided()
    one, full = world.job("one"), answer.full
    for worker, pod in enumerate(pods(one, full.plan, range(4))):
        env = {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}
        assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == (str(worker), "4", "1")
        assert pod["metadata"]["labels"][names.LABEL_WORKER] == str(worker)
        replica, stage = divmod(worker, 2)
        (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term["matchFields"][0]["values"] == [full.plan.machine(replica, stage)]
    written = plan_config_map(one, 1, full.blob, full.digest)["binaryData"][names.PLAN_KEY]
    document = json.loads(gzip.decompress(b64decode(written)))
    assert document["pipeline"]["stages"] == list(full.plan.stages)
    assert document["pipeline"]["name"] == full.plan.schedule
    assert document["layout"] == {"data": 2, "pipeline": 2, "tensor": 1}


def stage_flops(world: World, plan: Plan, stage: int) -> float:
    """Of a sequence."""
    layers = to_model(world.job("one").spec).layers
    first, end = (*plan.stages, len(layers))[stage : stage + 2]
    return float(sum(layer.forward_flops + layer.backward_flops for layer in layers[first:end]))


async def test_speeds_follow_from_what_each_stage_computes() -> None:
    """Every rank reaches 1 MFLOP/s on its own stage's layers, but one that reaches half of it."""
    world, _ = await decided()
    full = world.commit("one").full
    plan, one = full.plan, world.view("one")
    cells = [divmod(rank, 2) for rank in range(4)]
    own_s = [plan.shares[replica] * stage_flops(world, plan, stage) / 1e6 for replica, stage in cells]
    own_s[3] *= 2
    view = View(job=one.job, status=one.status, now=NOW, full=full)
    made = await world.planner.calibrate(view, Preflight(1, tuple(own_s)))
    assert made is not None
    speeds = [made.flops_per_s[machine] for machine in plan.rank_machines]
    assert speeds == pytest.approx([1e6, 1e6, 1e6, 0.5e6])
    found = made.prediction
    assert (found.source, found.calibrated) == ("preflight", True)
    assert found.compute_microseconds == pytest.approx(max(own_s) * 1e6, rel=1e-6)
    assert found.bubble_microseconds
    assert found.transfer_microseconds is not None
    parts = found.compute_microseconds + found.bubble_microseconds + found.communication_microseconds
    assert found.step_microseconds == pytest.approx(parts, abs=2)
    varying = await world.planner.calibrate(view, Preflight(1, tuple(own_s), slowest_s=1.5 * max(own_s)))
    assert varying is not None
    assert varying.prediction.compute_microseconds == pytest.approx(1.5 * max(own_s) * 1e6, rel=1e-6)
    assert await world.planner.calibrate(view, Preflight(1, tuple(own_s[:2]))) is None


@pytest.mark.parametrize(
    ("parallelism", "num_workers"),
    [
        ({"pipeline": 2, "tensor": 2}, 2),
        ({"pipeline": 2, "shard": 2}, 2),
        ({"data": 2, "tensor": 2}, 2),
        ({"data": 1, "shard": 2, "tensor": 2}, 1),
    ],
)
async def test_the_ranks_of_a_stage_compute_a_part_of_it_each(parallelism: dict[str, int], num_workers: int) -> None:
    """As if every rank reached 1 GFLOP/s, two or four to a node: without their waiting for each other it is more."""
    each = 4 // num_workers
    nodes = [node(name, each) for name in NODES[:num_workers]]
    workers = {"min": num_workers, "max": num_workers, "acceleratorsPerWorker": each}
    async with planning_over(*nodes, job("one", 4, parallelism=parallelism, model=SHAPE, workers=workers)) as world:
        world.planner.request("lab/one")
        answer = await world.answer("one")
        assert isinstance(answer, Planned), answer
        full = world.commit("one").full
        plan, one = full.plan, world.view("one")
        cells = [divmod(rank // plan.layout.width, plan.layout.pipeline) for rank in range(4)]
        own_s = [
            plan.shares[replica] * stage_flops(world, plan, stage) / plan.layout.width / 1e9 for replica, stage in cells
        ]
        view = View(job=one.job, status=one.status, now=NOW, full=full)
        made = await world.planner.calibrate(view, Preflight(1, tuple(own_s)))
    assert made is not None
    assert all(1.01e9 < speed < 1.2e9 for speed in made.flops_per_s.values()), made.flops_per_s
    assert made.prediction.compute_microseconds == pytest.approx(max(own_s) * 1e6, rel=1e-4)


async def test_a_known_products_curve_says_what_part_of_the_model_a_stage_is() -> None:
    """What was measured is what is predicted, also where seconds do not follow FLOPs."""
    nodes = [node(name) for name in NODES]
    for _, body in nodes:
        body["metadata"]["labels"][names.NODE_PRODUCT] = "NVIDIA-A100-SXM4-80GB"
    world, answer = await answered(*nodes)
    assert isinstance(answer, Planned)
    full, one = world.commit("one").full, world.view("one")
    view = View(job=one.job, status=one.status, now=NOW, full=full)
    made = await world.planner.calibrate(view, Preflight(1, (0.5, 0.3, 0.5, 0.3)))
    assert made is not None
    assert made.prediction.compute_microseconds == pytest.approx(500_000, rel=1e-6)


async def test_a_stage_without_flops_tells_nothing_of_its_machine() -> None:
    """The first layer of the profile computes nothing; its two machines are taken to be as fast as the others."""
    layer = {"parameters": 1000, "outputBytes": 100, "activationBytes": 100}
    layers = [layer | {"name": name, "forwardFlops": flops} for name, flops in (("embed", 0), ("head", 1000))]
    text = json.dumps({"layers": layers})
    profile = {"profile": {"configMap": "m", "key": "p"}}
    config_map = CONFIG_MAPS, {"metadata": {"name": "m", "namespace": "lab"}, "data": {"p": text}}
    world, answer = await answered(*map(node, NODES), config_map, model=profile)
    assert isinstance(answer, Planned)
    full, one = world.commit("one").full, world.view("one")
    view = View(job=one.job, status=one.status, now=NOW, full=full)
    made = await world.planner.calibrate(view, Preflight(1, (0.001, 0.5, 0.001, 0.5)))
    assert made is not None
    assert made.flops_per_s.keys() == {full.plan.machine(replica, 1) for replica in range(2)}
    assert not made.prediction.calibrated


async def site(search: Search, memory_mib: int, **changes: Any) -> Site:
    """One pipeline of two stages on the two nodes of eu, planned on links that are nearest there."""
    spec = {**STAGED, "training": {"globalBatch": 8, "steps": LONG}, "placement": {}, **CHECKPOINTED, **changes}
    nodes = [placed(name) for name in NODES]
    for _, body in nodes:
        body["metadata"]["labels"][names.NODE_ACCELERATOR_MEMORY] = str(memory_mib)
    cluster = [*nodes, *profiles(NEAR_US, NEXT_US)]
    async with planning_over(*cluster, job("one", 2, **spec)) as world:
        world.planner.request("lab/one")
        assert isinstance(await world.answer("one"), Planned)
        full: FullPlan = world.commit("one").full
    assert {slot.machine for slot in full.plan.workers} == {"a", "b"}
    assert full.plan.layout.pipeline == 2
    return Site(World(*cluster, (HULK_JOBS, running(world.job("one"), NOW).wire())), search, full)


@pytest.mark.parametrize(
    ("memory_mib", "changes"),
    [(200, {}), (80, {"parallelism": {}, "template": GPT, "model": LARGE})],
    ids=["asked for", "for want of memory"],
)
async def test_a_job_of_stages_moves_to_stages_elsewhere_when_its_link_has_drifted(
    memory_mib: int, changes: dict[str, Any]
) -> None:
    search = Search(Budget(), lambda: pytest.fail("the search failed"))
    try:
        one = await site(search, memory_mib, **changes)
        assert await one.look() is None
        one.become(*profiles(6 * NEAR_US, NEXT_US))
        found = await one.look()
    finally:
        search.close()
    assert found is not None
    assert found.verdict == "move"
    assert found.step_us is not None
    assert found.new_step_us is not None
    assert found.new_step_us < found.step_us
