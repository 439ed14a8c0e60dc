"""What the lab's two watchers make of pods: CPU quotas and Prometheus' targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hulk_lab import discovery, governor
from hulk_lab.cgroups import Quota
from hulk_lab.spec import LabSpec
from hulk_lab.wan.addresses import LabNetwork, NodeNetwork


@pytest.fixture
def node() -> NodeNetwork:
    spec = LabSpec.model_validate({"regions": [{"name": "eu", "nodes": [{"speed": 0.2, "accelerators": 2}]}]})
    return LabNetwork(spec, 0).nodes[0]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(0, None, id="no accelerator: not a job pod"),
        pytest.param(1, Quota(1_000, 10_000), id="half of the node"),
        pytest.param(2, Quota(2_000, 10_000), id="all of the node"),
    ],
)
def test_a_job_pod_gets_its_share_of_the_nodes_speed(node: NodeNetwork, count: int, expected: Quota | None) -> None:
    assert governor.quota_of(count, node) == expected


def test_accelerators_of_all_containers_count() -> None:
    one = {"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "4"}}}

    assert governor.num_accelerators({"containers": [one, {}, one]}) == 2


def pod(name: str, annotations: dict[str, str], phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "a", "annotations": annotations},
        "spec": {"nodeName": "n"},
        "status": {"phase": phase, "podIP": "10.0.0.1"},
    }


def test_only_running_pods_that_ask_for_it_are_scraped() -> None:
    asking = {"prometheus.io/scrape": "true", "prometheus.io/port": "9401"}
    pods = [pod("yes", asking), pod("no", {}), pod("done", asking, phase="Succeeded")]

    assert discovery.targets(pods) == [
        {
            "targets": ["10.0.0.1:9401"],
            "labels": {"__metrics_path__": "/metrics", "namespace": "a", "pod": "yes", "node": "n"},
        }
    ]


def test_an_unchanged_target_file_is_not_written_again(tmp_path: Path) -> None:
    file = tmp_path / "targets.json"
    discovery.write(file, [{"targets": ["x"]}])
    before = file.stat().st_ino

    discovery.write(file, [{"targets": ["x"]}])
    assert file.stat().st_ino == before
    discovery.write(file, [])
    assert file.read_text() == "[]"
