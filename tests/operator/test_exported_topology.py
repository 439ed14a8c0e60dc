"""Nodes and round trips as Kueue's Topology and Volcano's HyperNodes, and the labels that nodes lack."""

from typing import Any

import yaml
from hulk_operator import names
from hulk_operator.cli.export_commands import page
from hulk_operator.cli.exported_topology import Place, kueue_objects, lacking, places, volcano_objects

GPU = names.DEFAULT_RESOURCE


def node(region: str = "", zone: str = "", num: str = "8", **labels: str) -> dict[str, Any]:
    given = {names.NODE_REGION: region, names.NODE_ZONE: zone, **labels}
    return {
        "metadata": {"labels": {key: value for key, value in given.items() if value}},
        "status": {"allocatable": {GPU: num, "cpu": "4"}},
    }


def cluster(**nodes: dict[str, Any]) -> tuple[Place, ...]:
    named = {
        name: {**body, "metadata": {"name": name, "labels": {names.NODE_HOST_NAME: name, **body["metadata"]["labels"]}}}
        for name, body in nodes.items()
    }
    return places(named, GPU)


TWO_REGIONS = cluster(
    a=node("eu", "eu-1"), b=node("eu", "eu-1"), c=node("eu", "eu-2"), d=node("us", "us-1"), cpus=node("us", "us-1", "0")
)


def test_kueue_gets_three_levels_and_a_flavor_for_each_region() -> None:
    topology, *flavors = kueue_objects(TWO_REGIONS)
    assert topology["spec"]["levels"] == [
        {"nodeLabel": names.NODE_REGION},
        {"nodeLabel": names.NODE_ZONE},
        {"nodeLabel": names.NODE_HOST_NAME},
    ]
    assert [flavor["spec"]["nodeLabels"] for flavor in flavors] == [
        {names.NODE_REGION: "eu"},
        {names.NODE_REGION: "us"},
    ]
    assert {flavor["spec"]["topologyName"] for flavor in flavors} == {topology["metadata"]["name"]}


def test_volcano_gets_zones_regions_and_all_of_them() -> None:
    found = {one["metadata"]["name"]: one["spec"] for one in volcano_objects(TWO_REGIONS)}

    def members(name: str) -> list[str]:
        return [member["selector"]["exactMatch"]["name"] for member in found[name]["members"]]

    assert {name: spec["tier"] for name, spec in found.items()} == {
        "zone-eu-eu-1": 1,
        "zone-eu-eu-2": 1,
        "region-eu": 2,
        "zone-us-us-1": 1,
        "region-us": 2,
        "all-regions": 3,
    }
    assert members("zone-eu-eu-1") == ["a", "b"]
    assert members("region-eu") == ["zone-eu-eu-1", "zone-eu-eu-2"]
    assert members("all-regions") == ["region-eu", "region-us"]
    assert {member["type"] for member in found["zone-us-us-1"]["members"]} == {"Node"}
    assert volcano_objects(cluster()) == []


def test_what_a_node_lacks_follows_from_whom_it_is_near_to() -> None:
    found = cluster(
        a=node("eu", "eu-1"),
        b=node(),  # 3 ms from a
        c=node(),  # near to b alone
        d=node("us"),
        e=node(),
        f=node(),  # near to each other
        g=node(),  # near to nobody
    )
    round_trips = {("a", "b"): 0.003, ("c", "b"): 0.0005, ("e", "f"): 0.0002, ("a", "d"): 0.08, ("g", "a"): 0.2}
    region, zone = names.NODE_REGION, names.NODE_ZONE
    assert list(lacking(found, round_trips)) == [
        f"kubectl label nodes b c {region}=eu  # 3.0 ms from a",
        f"kubectl label nodes e f {region}=NAME  # within 5 ms of each other: choose a name",
        f"kubectl label nodes g {region}=NAME  # none is known to be within 5 ms of another: choose names",
        f"kubectl label nodes b c {zone}=NAME  # within 1 ms of each other: choose a name",
        f"kubectl label nodes e f {zone}=NAME  # within 1 ms of each other: choose a name",
        f"kubectl label nodes d {zone}=NAME  # none is known to be within 1 ms of another: choose names",
        f"kubectl label nodes g {zone}=NAME  # none is known to be within 1 ms of another: choose names",
    ]
    assert list(lacking(TWO_REGIONS, {})) == []


def test_a_zone_is_a_part_of_one_region() -> None:
    found = cluster(a=node("eu", "z"), b=node("us"))
    assert list(lacking(found, {("a", "b"): 0.0001})) == [
        f"kubectl label nodes b {names.NODE_ZONE}=NAME  # none is known to be within 1 ms of another: choose names"
    ]


def test_the_page_is_for_kubectl_and_says_what_to_do_before() -> None:
    bare = cluster(a=node("eu", "eu-1"), b=node("eu"))
    text = page(bare, {("a", "b"): 0.0004}, GPU, kueue_objects)
    assert text.startswith("# eu: 16 nvidia.com/gpu on 2 nodes\n# These nodes lack labels")
    assert f"kubectl label nodes b {names.NODE_ZONE}=eu-1  # 0.4 ms from a" in text
    assert list(yaml.safe_load_all(text)) == kueue_objects(bare)
