"""Devices of ResourceSlices: which class means which, what a node offers of them, and what claims hold."""

from typing import Any

import pytest
from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.inputs import devices
from hulk_operator.inputs.devices import CLASS_PREFIX, EXTENDED_CLAIM, with_claims
from hulk_operator.planning.inventory import Reader
from hulk_operator.planning.reservations import Held
from hulk_operator.watched import Snapshot, Store
from views import NOW, job, plan

DRIVER, GPU, NIC = "gpu.example.com", "example.com/gpu", f"{CLASS_PREFIX}nic"
NODES = ("node-0", "node-1", "node-2")


def selector(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


def device_class(version: int, *selectors: str, name: str = "gpu", resource: str = GPU) -> dict[str, Any]:
    named = {"extendedResourceName": resource} if resource else {}
    spec = {"selectors": [selector(one) for one in selectors], **named}
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "spec": spec}


def device(name: str, memory: str = "80Gi", model: str = "a100", **fields: Any) -> dict[str, Any]:
    attributes = {"model": {"string": model}, "uuid": {"string": f"gpu-{name}"}, "firmware": {"version": "1.10.0"}}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}, **fields}


def resource_slice(
    version: int, *devices: dict[str, Any], node: str = "node-0", generation: int = 1, driver: str = DRIVER
) -> dict[str, Any]:
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    metadata = {"name": f"{node}-{driver}-{generation}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}}


def claim(version: int, *devices: str, **annotations: str) -> dict[str, Any]:
    results = [{"request": "r", "driver": DRIVER, "pool": "node-0", "device": name} for name in devices]
    metadata = {"name": f"claim-{version}", "namespace": "lab", "resourceVersion": str(version)}
    return {
        "metadata": {**metadata, "annotations": annotations},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def node(name: str, **allocatable: str) -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": "1", "labels": {names.NODE_REGION: "eu"}}
    ready = [{"type": "Ready", "status": "True"}]
    return {"metadata": metadata, "status": {"allocatable": {"pods": "10", **allocatable}, "conditions": ready}}


def store(*devices: dict[str, Any], kinds: tuple[dict[str, Any], ...] = ()) -> Store:
    found = Store()
    for name in NODES:
        found.nodes.put(node(name))
    for kind in kinds or (device_class(1),):
        found.devices.classes.put(kind)
    found.devices.slices.put(resource_slice(1, *devices))
    return found


async def inventory(of: Store, *held: Held) -> Any:
    async def seen() -> Snapshot:
        return of.snapshot()

    return await Reader(FakeCluster(), seen).inventory(held, NOW)


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ("true", 3),
        (f"device.driver == '{DRIVER}'", 3),
        ("device.driver == 'another.example.com'", 0),
        (f"device.attributes['{DRIVER}'].model == 'a100'", 2),
        (f"device.attributes['{DRIVER}'].model.startsWith('h')", 1),
        (f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0", 2),
        (f"device.capacity['{DRIVER}'].memory.isLessThan(quantity('40Gi'))", 1),
        (f"device.attributes['{DRIVER}'].firmware.isGreaterThan(semver('1.9.3'))", 3),
        ("has(device.attributes['another.example.com'].model)", 0),
        ("!has(device.attributes['another.example.com'].model)", 3),
        ("device.attributes['another.example.com'].model == 'a100'", 0),  # as for kube-scheduler: it cannot be judged
        ("what is this", 0),
    ],
)
async def test_a_class_means_the_devices_that_meet_its_selectors(expression: str, count: int) -> None:
    found = store(device("0"), device("1", "20Gi"), device("2", model="h100"), kinds=(device_class(1, expression),))
    assert (await inventory(found)).unheld(GPU) == ({"node-0": count} if count else {})


async def test_a_node_offers_what_stands_for_itself_in_the_newest_generation() -> None:
    shared = {"consumesCounters": [{"counterSet": "all"}]}
    tainted = {"taints": [{"key": "broken", "effect": "NoExecute"}]}
    found = store(device("0"), device("1"), device("2", **shared), device("3", **tainted))
    (seen,) = [(await inventory(found)).topology(GPU).machines]
    assert [(one.name, one.num_accelerators, one.product, one.memory_bytes) for one in seen] == [
        ("node-0", 2, "a100", 80 << 30)
    ]
    found.devices.slices.put(resource_slice(2, device("0"), generation=2))
    assert (await inventory(found)).unheld(GPU) == {"node-0": 1}
    found.devices.slices.delete(resource_slice(3, generation=2))
    found.devices.slices.delete(resource_slice(4))
    assert (await inventory(found)).unheld(GPU) == {}


async def test_a_device_plugin_stands_before_a_driver() -> None:
    found = store(device("0"), device("1"))
    found.nodes.put({**node("node-0", **{GPU: "5"}), "metadata": {"name": "node-0", "resourceVersion": "2"}})
    assert (await inventory(found)).unheld(GPU) == {"node-0": 5}


async def test_devices_that_claims_hold_are_not_free() -> None:
    found = store(device("0"), device("1"), device("2"))
    found.devices.claims.put(claim(1, "1"))
    assert (await inventory(found)).unheld(GPU) == {"node-0": 2}
    extended = claim(2, "2", **{EXTENDED_CLAIM: "true"})
    found.devices.claims.put(extended)  # of a pod that requests it by name, and is counted by that
    assert (await inventory(found)).unheld(GPU) == {"node-0": 2}
    found.devices.claims.delete(claim(3, "1") | {"metadata": {**claim(1)["metadata"], "resourceVersion": "3"}})
    assert (await inventory(found)).unheld(GPU) == {"node-0": 3}


async def test_a_device_is_judged_when_it_or_a_class_changes_and_not_for_every_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """8,000 devices take 0.1 s of the event loop."""
    judged: list[str] = []

    def noted(_: devices.DeviceClass, one: devices.Device) -> bool:
        judged.append(one.name)
        return True

    monkeypatch.setattr(devices, "is_of", noted)
    found = store(device("0"), device("1"))
    found.devices.slices.put(resource_slice(2, device("2"), node="node-1"))
    assert found.snapshot().taken == {}
    judged.clear()
    found.devices.claims.put(claim(1, "1"))
    assert found.snapshot().taken == {"node-0": {GPU: 1}}
    found.devices.claims.put(claim(2, "0"))
    assert found.snapshot().taken == {"node-0": {GPU: 2}}
    assert judged == []
    found.devices.slices.put(resource_slice(3, device("2"), device("3"), node="node-1"))
    assert (await inventory(found)).unheld(GPU) == {"node-0": 0, "node-1": 2}
    assert judged == ["2", "3"]
    found.devices.classes.put(device_class(4, resource="example.com/another"))
    assert (await inventory(found)).unheld("example.com/another") == {"node-0": 0, "node-1": 2}
    assert sorted(judged[2:]) == ["0", "1", "2", "3"]


def with_nic(one: HulkJob) -> HulkJob:
    """Each worker claims two network devices as well."""
    body = one.wire()
    body["spec"]["workers"]["resourceName"] = GPU
    body["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": "nics"}]
    return HulkJob.model_validate(body)


async def test_claims_of_the_template_count_for_pods_that_are_not_there_yet() -> None:
    gpus = device_class(1, f"device.driver == '{DRIVER}'")
    kinds = (gpus, device_class(1, "device.driver == 'nic.example.com'", name="nic", resource=""))
    found = store(*(device(str(number)) for number in range(8)), kinds=kinds)
    nics = [{"name": f"nic-{number}"} for number in range(5)]
    found.devices.slices.put(resource_slice(1, *nics, driver="nic.example.com"))
    request = {"name": "r", "exactly": {"deviceClassName": "nic", "count": 2}}
    template = {"spec": {"spec": {"devices": {"requests": [request]}}}}
    found.devices.templates.put({"metadata": {"name": "nics", "namespace": "lab", "resourceVersion": "1"}, **template})
    one = with_nic(job())
    empty = await inventory(found)
    spec = empty.spec_of(one)
    assert spec["containers"][0]["resources"]["requests"][NIC] == "2"
    assert empty.candidates(spec, GPU, 1) == {"node-0": 2}  # of five, two each
    held = await inventory(found, Held(one, plan()))
    assert held.room.free["node-0"][NIC] == 5 - 2
    assert held.room.free["node-0"][GPU] == 8 - 1
    assert with_claims(one.spec.template.pod_spec(), "another", found.snapshot().asked) == one.spec.template.pod_spec()
