"""The example files of a cluster over NCCL: they are read, predicted, and every mistake in such files is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hulk_placement.cost.foresee import foresee
from hulk_placement.files import text
from hulk_placement.files.plan_reading import read_plan
from hulk_placement.files.topology import TopologyFile
from hulk_placement.files.topology_reading import read_topology, to_topology
from hulk_placement.files.workload import WorkloadFile
from hulk_placement.files.workload_reading import read_workload
from hulk_placement.nccl import Nccl

EXAMPLES = Path(__file__).parents[2] / "examples" / "planner"
TWO = "apiVersion: hulk.dev/files/v1\nkind: Topology\nmachines: [{name: a, region: eu}, {name: b, region: us}]\n"


def test_the_examples_are_a_step_over_nccl() -> None:
    topology = read_topology(EXAMPLES / "nccl-topology.yaml").topology
    workload = read_workload(EXAMPLES / "nccl-workload.yaml", topology).workload
    plan = read_plan(EXAMPLES / "nccl-plan.yaml", workload, topology).plan
    assert topology.machine("west-0").nic_bytes_per_s == 3.125e9
    assert topology.link("west-0", "east-0").own_wire
    assert topology.link("west-1", "east-1").bandwidth_bytes_per_s == 1.125e9  # the largest by size
    assert (workload.stage_transport, workload.nccl) == ("nccl", Nccl(num_sockets=4))
    found = foresee(plan, workload, topology)
    assert found.overhead_s > workload.step_overhead_s + (workload.optimizer_s or 0.0)
    assert found.step_s > found.compute_s + found.overhead_s


@pytest.mark.parametrize(
    ("entry", "mistake"),
    [
        ("source: eu, target: us, rttSeconds: 1, bandwidthBytesPerSecond: 1, ownWire: true", "eu -> us are regions"),
        ("source: a, target: b, unknown: true, ownWire: true", "no bandwidth is given"),
        (
            "source: a, target: b, rttSeconds: 1, bandwidthBySize: [{messageBytes: 9, bandwidthBytesPerSecond: 1}, "
            "{messageBytes: 2, bandwidthBytesPerSecond: 1}]",
            "sizes 9, 2 must rise",
        ),
        ("source: a, target: b, rttSeconds: 1, bandwidthBySize: [{messageBytes: 9}]", "bandwidth is missing"),
    ],
)
def test_links_that_cannot_be(entry: str, mistake: str) -> None:
    with pytest.raises(ValueError, match=mistake):
        to_topology(text.parse(TopologyFile, text.load(f"{TWO}links: [{{{entry}}}]"), "topology.yaml"))


@pytest.mark.parametrize(
    ("said", "mistake"),
    [
        ({"nccl": {"algorithm": "trees"}}, "'trees' is none of ring, tree; did you mean tree?"),
        ({"nccl": {"protocol": "LL64"}}, "'LL64' is none of Simple, LL, LL128"),
        ({"nccl": {"channels": 0}}, "nccl.channels"),
        ({"training": {"globalBatch": 1, "stageTransport": "mpi"}}, "'mpi' is none of gloo, nccl"),
        ({"training": {"globalBatch": 1, "optimizerSeconds": -1}}, "training.optimizerSeconds"),
    ],
)
def test_settings_that_cannot_be(said: dict[str, Any], mistake: str) -> None:
    whole = {"name": "x", "model": {"preset": "gpt2-xl"}, "training": {"globalBatch": 1}} | said
    with pytest.raises(ValueError, match=re.escape(mistake)):
        text.parse(WorkloadFile, {"apiVersion": "hulk.dev/files/v1", "kind": "Workload", **whole}, "workload.yaml")
