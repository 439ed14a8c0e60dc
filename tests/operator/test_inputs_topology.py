"""What is free on a node, which nodes admit a pod, and what of it the planner sees."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hulk_operator.api import HulkTopologySpec
from hulk_operator.cli.plan_reports import declared_topology
from hulk_operator.inputs.admission import admits
from hulk_operator.inputs.pod_size import requests
from hulk_operator.inputs.quantity import amount
from hulk_operator.inputs.topology import (
    Claim,
    Room,
    allowed_regions,
    candidates,
    products,
    room,
    topology,
    without,
    worker_amounts,
)
from hulk_operator.watched.pods import foreign_pod
from hulk_placement.topology import Link, LinkKind

GPU = "nvidia.com/gpu"


def node(name: str = "n", **fields: Any) -> dict[str, Any]:
    """A ready node with 4 cpus, 8 GiB, 10 pods and 2 accelerators."""
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", GPU: "2", **fields.pop("allocatable", {})}
    ready = {"type": "Ready", "status": fields.pop("ready", "True")}
    return {
        "metadata": {"name": name, "labels": fields.pop("labels", {"topology.kubernetes.io/region": "eu"})},
        "spec": fields,
        "status": {"allocatable": allocatable, "conditions": [ready]},
    }


def pod(cpu: str = "1", phase: str = "Running", where: str = "n", **limits: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}, "limits": {key.replace("gpu", GPU): value for key, value in limits.items()}}
    spec = {"nodeName": where, "containers": [{"resources": resources}]}
    return {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}}


def free(nodes: Iterable[dict[str, Any]], pods: Iterable[dict[str, Any]] = ()) -> Room:
    """What pods that are no workers leave."""
    found = (foreign_pod(one, "hulk-system") for one in pods)
    return room({node["metadata"]["name"]: node for node in nodes}, [Claim(one.node, one.amounts) for one in found])


SPEC: dict[str, Any] = {"containers": [{"name": "w", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}


@pytest.mark.parametrize(
    ("name", "pods", "workers", "accelerators"),
    [
        ("empty", [], 4, 2),
        ("foreign pods hold cpu and accelerators", [pod("2", gpu="1")], 2, 1),
        ("ended pods hold nothing", [pod("4", "Succeeded", gpu="2"), pod("4", "Failed")], 4, 2),
        ("a pending pod that is bound holds its part", [pod("1", "Pending", gpu="2")], 3, 0),
        ("pods elsewhere do not count", [pod("4", where="m")], 4, 2),
        ("overcommitted", [pod("5")], 0, 2),
        ("no pod slots left", [pod("0")] * 9, 1, 2),
    ],
)
def test_what_is_free(name: str, pods: list[dict[str, Any]], workers: int, accelerators: int) -> None:
    left = free([node()], pods)
    assert candidates(left, SPEC, GPU) == {"n": workers}, name
    assert topology(left, GPU, {}).machines[0].num_accelerators == accelerators, name


def test_claims_hold_what_their_pods_will_take() -> None:
    left = room({"n": node()}, [Claim("n", {"cpu": 3000, "pods": 1, GPU: 2})])
    assert candidates(left, SPEC, GPU) == {"n": 1}
    assert topology(left, GPU, {}).machines[0].num_accelerators == 0


def test_plans_of_one_pass_must_fit_together() -> None:
    left = free([node()])
    first = without(left, [Claim("n", {"cpu": 3000, GPU: 1})])
    assert first is not None
    assert without(first, [Claim("n", {"cpu": 2000, GPU: 1})]) is None
    assert without(first, [Claim("gone", {"cpu": 1})]) is None
    assert without(first, [Claim("n", {"cpu": 1000, GPU: 1})]) is not None


def test_a_request_for_nothing_fits_on_an_overcommitted_node() -> None:
    """Whoever is a candidate must fit: else its plan is made again for ever."""
    left = free([node()], [pod("5")])
    spec = {"containers": [{"resources": {"requests": {"cpu": "0"}}}]}
    assert candidates(left, spec, GPU) == {"n": 9}
    assert without(left, [Claim("n", worker_amounts(spec, GPU, 1))]) is not None


@pytest.mark.parametrize(
    ("name", "first", "second", "per_worker", "expected", "slots"),
    [
        ("alone", {}, {}, 2, 2, 10),
        ("the worker's own figure is the plan's", {"limits": {GPU: "7"}, "requests": {GPU: "7"}}, {}, 1, 1, 10),
        ("a sidecar holds one as well", {}, {"limits": {GPU: "1"}}, 1, 2, 1),
    ],
)
def test_what_a_worker_takes_of_the_accelerators(
    name: str, first: dict[str, Any], second: dict[str, Any], per_worker: int, expected: int, slots: int
) -> None:
    spec = {"containers": [{"resources": first}, {"resources": second}]}
    assert worker_amounts(spec, GPU, per_worker)[GPU] == expected, name
    assert candidates(free([node()]), spec, GPU, num_accelerators=per_worker) == {"n": slots}, name


@pytest.mark.parametrize("quantity", ["-1", "1.2.3", "1e999999999", "much"])
def test_what_is_no_quantity_is_said(quantity: str) -> None:
    with pytest.raises(ValueError, match=quantity):
        amount("cpu", quantity)


def test_no_quantity_is_more_than_kubernetes_counts() -> None:
    assert amount("memory", "1e99999") == (1 << 63) - 1


TAINT = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
SOFT = [{"key": "gpu", "effect": "PreferNoSchedule"}]


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


REGION = "topology.kubernetes.io/region"


@pytest.mark.parametrize(
    ("name", "one", "spec", "expected"),
    [
        ("plain", node(), {}, True),
        ("cordoned", node(unschedulable=True), {}, False),
        ("not ready", node(ready="False"), {}, False),
        ("tainted", node(taints=TAINT), {}, False),
        ("soft taint", node(taints=SOFT), {}, True),
        ("tolerated by key", node(taints=TAINT), {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, True),
        ("tolerated by value", node(taints=TAINT), {"tolerations": [{"key": "gpu", "value": "yes"}]}, True),
        ("other value", node(taints=TAINT), {"tolerations": [{"key": "gpu", "value": "no"}]}, False),
        (
            "other effect",
            node(taints=TAINT),
            {"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]},
            False,
        ),
        ("everything tolerated", node(taints=TAINT), {"tolerations": [{"operator": "Exists"}]}, True),
        ("selector", node(), {"nodeSelector": {REGION: "eu"}}, True),
        ("other selector", node(), {"nodeSelector": {REGION: "us"}}, False),
        ("one of the terms", node(), affinity(expression(REGION, "In", "us"), expression(REGION, "In", "eu")), True),
        ("no term", node(), affinity(expression(REGION, "NotIn", "eu"), expression("x", "Exists")), False),
        ("empty term", node(), affinity({}), False),
        (
            "by name",
            node(),
            affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}),
            True,
        ),
        ("greater", node(labels={"cores": "8"}), affinity(expression("cores", "Gt", "4")), True),
        ("not less", node(labels={"cores": "8"}), affinity(expression("cores", "Lt", "4")), False),
        ("absent", node(), affinity(expression("x", "DoesNotExist")), True),
    ],
)
def test_which_nodes_admit_a_pod(name: str, one: dict[str, Any], spec: dict[str, Any], expected: bool) -> None:
    assert admits(one, spec) is expected, name


def test_avoided_nodes_and_nodes_without_the_resource_are_no_candidates() -> None:
    bare = node("bare")
    del bare["status"]["allocatable"][GPU]
    left = free([node("a"), node("b"), bare])
    assert set(candidates(left, SPEC, GPU, avoided=["b"])) == {"a"}
    assert [machine.name for machine in topology(left, GPU, {}).machines] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "spec", "expected"),
    [
        ("limits stand in for requests", {"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2000),
        (
            "the largest init container",
            {
                "initContainers": [{"resources": {"requests": {"cpu": "3"}}}],
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
            },
            3000,
        ),
        (
            "sidecars run beside both",
            {
                "initContainers": [
                    {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                    {"resources": {"requests": {"cpu": "3"}}},
                ],
                "containers": [{"resources": {"requests": {"cpu": "2"}}}],
            },
            4000,
        ),
        ("overhead", {"containers": [{"resources": {"requests": {"cpu": "1"}}}], "overhead": {"cpu": "500m"}}, 1500),
        ("pod level", {"containers": [{}], "resources": {"requests": {"cpu": "6"}}}, 6000),
    ],
)
def test_a_pods_size(name: str, spec: dict[str, Any], expected: int) -> None:
    assert requests(spec)["cpu"] == expected, name
    assert requests(spec)["pods"] == 1


def test_declared_links_stand_in_where_nothing_was_measured() -> None:
    nodes = [node("a"), node("b", labels={REGION: "us"}), node("c", labels={})]
    measured = {("a", "b"): Link(0.1, 1e6)}
    figures = {"rttMicroseconds": 200_000, "bandwidthBytesPerSecond": 5}
    pairs = [("a", "b"), ("eu", "us"), ("us", "eu"), ("b", "c")]
    declared = HulkTopologySpec.model_validate(
        {
            "links": [{"source": source, "target": target, **figures} for source, target in pairs],
            "uplinks": [{"region": "eu", "bytesPerSecond": 100}],
            "residency": [{"namespace": "lab", "regions": ["eu"]}],
        }
    )
    found = topology(free(nodes), GPU, measured, declared)
    assert found.link("a", "b").rtt_s == 0.1
    assert found.link("b", "a").rtt_s == 0.2
    assert found.node_links["b", "c"].kind is LinkKind.DECLARED
    assert found.link("a", "c").kind is LinkKind.UNKNOWN
    assert found.machine("c").region == "unknown"
    assert found.uplinks == {"eu": 100.0}
    assert allowed_regions(declared, "lab") == ("eu",)
    assert allowed_regions(declared, "other") is None


def test_what_a_job_saw_of_its_links_is_worth_least() -> None:
    nodes = [node("a"), node("b", labels={REGION: "us"}), node("c", labels={REGION: "ap"}), node("d")]
    loaded = Link(0.9, 1e3, kind=LinkKind.UNDER_LOAD)
    measured = {("a", "b"): loaded, ("d", "b"): Link(0.1, 1e6), ("b", "a"): loaded, ("a", "c"): loaded}
    said = {"source": "us", "target": "eu", "rttMicroseconds": 200_000, "bandwidthBytesPerSecond": 5}
    found = topology(free(nodes), GPU, measured, HulkTopologySpec.model_validate({"links": [said]}))
    assert (found.link("a", "b").rtt_s, found.link("b", "a").rtt_s) == (0.1, 0.2)
    assert found.link("a", "c") == replace(loaded, shared=("eu", "ap"))
    assert found.link("d", "c").kind is LinkKind.INFERRED


def test_a_declared_name_that_is_a_region_and_a_node_is_the_region() -> None:
    nodes = [node("eu"), node("us", labels={REGION: "us"})]
    link = {"source": "eu", "target": "us", "rttMicroseconds": 200_000, "bandwidthBytesPerSecond": 5}
    found = topology(free(nodes), GPU, {}, HulkTopologySpec.model_validate({"links": [link]}))
    assert set(found.region_links) == {("eu", "us")}


def test_nodes_whose_agents_say_so_keep_their_windows() -> None:
    found = topology(free([node("a"), node("b")]), GPU, {}, keeping={"b", "gone"})
    assert [machine.keeps_windows for machine in found.machines] == [False, True]


def test_labels_become_product_and_memory() -> None:
    labels = {"nvidia.com/gpu.product": "H200", "nvidia.com/gpu.memory": "1024"}
    left = free([node(labels=labels)])
    machine = topology(left, GPU, {}).machines[0]
    assert (machine.product, machine.memory_bytes) == ("H200", 1 << 30)
    assert products(left, GPU) == {"n": "H200"}


NVIDIA = {f"{GPU}.product": "NVIDIA-L4", f"{GPU}.memory": "23034"}  # of other accelerators, on the same node


@pytest.mark.parametrize(
    ("name", "labels", "resource", "product", "memory_bytes"),
    [
        ("as the label says", {f"{GPU}.product": "NVIDIA-L4", f"{GPU}.memory": "23034"}, GPU, "NVIDIA-L4", 23034 << 20),
        ("as the data sheet says", {f"{GPU}.product": "NVIDIA-L4"}, GPU, "NVIDIA-L4", 24 * 10**9),
        ("no figure", {f"{GPU}.product": "NVIDIA-L4", f"{GPU}.memory": "much"}, GPU, "NVIDIA-L4", 24 * 10**9),
        ("a product that nobody knows", {f"{GPU}.product": "lab-cpu"}, GPU, "lab-cpu", 0),
        ("nothing", {}, GPU, "unknown", 0),
        (
            "every instance of a divided accelerator",
            {f"{GPU}.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
            GPU,
            "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
            5 * 10**9,
        ),
        (
            "instances beside whole accelerators",
            {
                f"{GPU}.product": "NVIDIA-A100-SXM4-40GB",
                f"{GPU}.memory": "40960",
                "nvidia.com/mig-2g.10gb.product": "NVIDIA-A100-SXM4-40GB-MIG-2g.10gb",
                "nvidia.com/mig-2g.10gb.memory": "9856",
            },
            "nvidia.com/mig-2g.10gb",
            "NVIDIA-A100-SXM4-40GB-MIG-2g.10gb",
            9856 << 20,
        ),
        (
            "shared under a name of its own",
            {f"{GPU}.product": "NVIDIA-L4"},
            "nvidia.com/gpu.shared",
            "NVIDIA-L4-SHARED",
            0,
        ),
        (
            "shared by four under a name of its own",
            {f"{GPU}.product": "NVIDIA-L4", f"{GPU}.memory": "23034", f"{GPU}.replicas": "4"},
            "nvidia.com/gpu.shared",
            "NVIDIA-L4-SHARED",
            (23034 << 20) // 4,
        ),
        (
            "shared by two under its old name",
            {f"{GPU}.product": "NVIDIA-L4-SHARED", f"{GPU}.memory": "23034", f"{GPU}.replicas": "2"},
            GPU,
            "NVIDIA-L4-SHARED",
            (23034 << 20) // 2,
        ),
        (
            "instances without labels of their own",
            {f"{GPU}.product": "NVIDIA-H100-80GB-HBM3", f"{GPU}.memory": "81559"},
            "nvidia.com/mig-3g.40gb",
            "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb",
            40 * 10**9,
        ),
        (
            "AMD's labeller",
            {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G", **NVIDIA},
            "amd.com/gpu",
            "AMD_Instinct_MI300X_OAM",
            192 << 30,
        ),
        (
            "AMD's older labels",
            {"beta.amd.com/gpu.vram.16G": "1", "beta.amd.com/gpu.device-id.6860": "1"},
            "amd.com/gpu",
            "unknown",
            16 << 30,
        ),
        (
            "two kinds of AMD's on a node",
            {"beta.amd.com/gpu.vram.16G": "1", "beta.amd.com/gpu.vram.32G": "1"},
            "amd.com/gpu",
            "unknown",
            0,
        ),
        (
            "AMD's product alone",
            {"beta.amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"},
            "amd.com/gpu",
            "AMD_Instinct_MI300X_OAM",
            192 * 10**9,
        ),
        (
            "AMD's partitions",
            {
                "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
                "amd.com/gpu.vram": "24G",
                "amd.com/compute-memory-partition": "cpx_nps4",
            },
            "amd.com/cpx_nps4",
            "AMD_Instinct_MI300X_OAM-cpx_nps4",
            24 << 30,
        ),
        (
            "one kind of AMD's partitions of several",
            {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G"},
            "amd.com/dpx_nps1",
            "AMD_Instinct_MI300X_OAM-dpx_nps1",
            0,
        ),
        (
            "Intel's plugins",
            {
                "gpu.intel.com/product": "Max_1100",
                "gpu.intel.com/memory.max": str(2 * 48 << 30),
                "gpu.intel.com/millicores": "2000",
                **NVIDIA,
            },
            "gpu.intel.com/i915",
            "Max_1100",
            48 << 30,
        ),
        ("Intel's product alone", {"gpu.intel.com/product": "Max_1550"}, "gpu.intel.com/xe", "Max_1550", 128 * 10**9),
        (
            "Intel's, offered twice each",
            {"gpu.intel.com/product": "Flex_170", "gpu.intel.com/device.count": "1"},
            "gpu.intel.com/i915",
            "Flex_170-SHARED",
            8 * 10**9,
        ),
        ("a vendor that labels nothing", NVIDIA, "habana.ai/gaudi", "unknown", 0),
        (
            "a vendor with labels of its own",
            {"example.com/npu.product": "N1", "example.com/npu.memory": "1024", **NVIDIA},
            "example.com/npu",
            "N1",
            1 << 30,
        ),
    ],
)
def test_what_a_resource_of_a_node_is(
    name: str, labels: dict[str, str], resource: str, product: str, memory_bytes: int
) -> None:
    left = free([node(labels=labels, allocatable={resource: "2"})])
    machine = topology(left, resource, {}).machines[0]
    assert (machine.product, machine.memory_bytes) == (product, memory_bytes), name
    assert products(left, resource) == {"n": product}, name


def test_prices_are_declared_by_product_and_by_pair_of_regions() -> None:
    nodes = [node("a", labels={REGION: "eu", f"{GPU}.product": "NVIDIA-L4"}), node("b")]
    declared = HulkTopologySpec.model_validate(
        {
            "prices": [{"product": "NVIDIA-L4", "perHour": "0.71"}, {"product": "NVIDIA-H200", "perHour": "3"}],
            "egress": [{"source": "eu", "target": "us", "perGb": "0.02"}],
        }
    )
    found = topology(free(nodes), GPU, {}, declared)
    assert [machine.price_per_hour for machine in found.machines] == [0.71, 0.0]
    assert found.egress_price_per_gb == {("eu", "us"): 0.02}


def test_a_declared_topology_has_prices_and_the_memory_of_data_sheets() -> None:
    declared = HulkTopologySpec.model_validate(
        {
            "nodes": [
                {"name": "a", "region": "eu", "product": "NVIDIA-L4"},
                {"name": "b", "region": "eu", "product": "NVIDIA-L4", "memoryBytes": 5},
                {"name": "c", "region": "us"},
            ],
            "prices": [{"product": "NVIDIA-L4", "perHour": "0.71"}],
            "egress": [{"source": "eu", "target": "us", "perGb": "0.02"}],
        }
    )
    found = declared_topology(declared)
    assert [machine.memory_bytes for machine in found.machines] == [24 * 10**9, 5, 0]
    assert [machine.price_per_hour for machine in found.machines] == [0.71, 0.71, 0.0]
    assert found.egress_price_per_gb == {("eu", "us"): 0.02}
