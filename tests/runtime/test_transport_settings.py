"""What the plan says of the transport is what a rank uses: interface, number and size of buckets."""

from typing import Any

import pytest
from hulk_placement import wire as planner
from hulk_placement.model import Model, Transformer
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hulk_runtime.collective import process_group
from hulk_runtime.examples.gpt_model import initialized
from hulk_runtime.plan import wire
from hulk_runtime.training.data_parallel import FlatModel

GPT = Transformer(layers=2, hidden=48, heads=4, sequence_length=32, vocabulary=256)


def transport(interface: str | None, bucket_bytes: int = 1) -> dict[str, Any]:
    """The plan's `transport`."""
    return {"interface": interface, "bucketBytes": bucket_bytes, "bucketsAtATime": 1, "gradientBytes": bucket_bytes}


@pytest.mark.parametrize("mode", ["ring", "wan"])
def test_a_plan_of_the_planner_is_cut_into_the_buckets_that_it_says(mode: str) -> None:
    """From `solve` over the wire into the flat model of the bundled GPT."""
    machines = tuple(Machine(name, name, flops_per_s=1e12) for name in ("eu", "us"))
    links = {(a, b): Link(0.1, 2e6) for a in ("eu", "us") for b in ("eu", "us")}
    topology = Topology(machines, region_links=links)
    job = Workload("team/job", Model.of(GPT), 8, {"eu": 1, "us": 1}, min_workers=2, max_workers=2, sync=Sync(mode))
    planned = solve([job], [], topology).plans[job.key]
    meta = planner.Meta.of(job, operator_version="0.1.0", steps=5, interface="eth7")
    plan = wire.decode(planner.encode(planned, meta))
    assert plan.transport is not None
    assert plan.model is not None
    flat = FlatModel(initialized(plan.model), process_group.all_reduce, plan.num_buckets, tail_length=4)
    assert (flat.num_buckets, flat.bucket_bytes) == (planned.num_buckets, plan.transport.bucket_bytes)
    assert plan.transport.buckets_at_a_time == (planned.num_buckets if mode == "ring" else 1)
    assert (plan.transport.interface, plan.algorithm) == ("eth7", mode)


PRINTS = """
import os, sys
from hulk_runtime import entry
for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
    os.environ.pop(name, None)
if len(sys.argv) > 1:
    os.environ["GLOO_SOCKET_IFNAME"] = sys.argv[1]

def make_task(plan, device):
    from hulk_runtime.examples import text
    from hulk_runtime.examples.byte_gpt import ByteTask
    print("uses", os.environ.get("GLOO_SOCKET_IFNAME"), os.environ.get("NCCL_SOCKET_IFNAME"), flush=True)
    return ByteTask(plan, device, 0.01, text.standard_library_source())

entry.leave(entry.run(make_task))
"""


@pytest.mark.parametrize(
    ("planned", "own", "uses"),
    [("lo", (), "uses lo lo\n"), (None, (), "uses lo lo\n"), ("none0", ("lo",), "uses lo lo\n")],
    ids=["as planned", "nothing planned", "the template's own"],
)
def test_ranks_talk_over_the_planned_interface(
    job, make_plan, make_training, planned: str | None, own: tuple[str, ...], uses: str
) -> None:
    plan = make_plan((1, 1), training=make_training(steps=1), transport=transport(planned))
    for rank in job.run_ranks(plan, "-c", PRINTS, *own):
        assert uses in rank.output


def test_an_interface_that_is_not_there_is_not_passed_over(job, make_plan) -> None:
    ranks = job.start_ranks(make_plan((1, 1), transport=transport("none0")), "-c", PRINTS, HULK_RENDEZVOUS_SECONDS="5")
    assert all(rank.wait() != 0 for rank in ranks)
    assert any("none0" in rank.output.split("uses", 1)[-1].partition("\n")[2] for rank in ranks)


def test_another_model_than_the_plans_is_said(job, make_plan, make_training) -> None:
    first, _ = job.run_ranks(
        make_plan((1, 1), training=make_training(steps=1), transport=transport("lo", bucket_bytes=12))
    )
    assert "bytes, planned 12: this is not the model of the plan\n" in first.output
