"""A node that is taken over says that it is in another region: it gets no new pods."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.api import HulkJob, HulkTopologySpec, PinnedRegion
from hulk_operator.cluster import HULK_TOPOLOGIES, NODE_PROFILES, ApiResource, Object
from hulk_operator.planning.inventory import Reader
from hulk_operator.probing import Budget
from hulk_operator.probing.runner import Prober
from hulk_operator.reconcile.types import Unplanned
from hulk_operator.watched.informers import read
from pydantic import ValidationError
from test_planning import job, machines, node, planning_over
from test_planning_replan_review import profile
from views import NOW

RESIDENT = {"residency": [{"namespace": "lab", "regions": ["eu"]}]}
PINNED = {"pinnedRegions": [{"node": "a", "region": "eu"}, {"node": "b", "region": "us"}]}


def labelled(name: str, region: str) -> tuple[ApiResource, Object]:
    kind, body = node(name)
    body["metadata"]["labels"][names.NODE_REGION] = region
    return kind, body


def topology(**spec: Any) -> tuple[ApiResource, Object]:
    return HULK_TOPOLOGIES, {"metadata": {"name": names.TOPOLOGY_NAME}, "spec": spec}


LIAR = labelled("b", "eu")  # which the administrator knows to be in us
STRANGER = labelled("c", "eu")  # which registered itself


@pytest.mark.parametrize(
    ("name", "liar", "placement"),
    [
        ("residency, and a node of another region", LIAR, {}),
        ("residency, and a node that nobody knows", STRANGER, {}),
        ("the job's own wish", LIAR, {"regions": ["eu"]}),
        ("what the job denies", LIAR, {"deniedRegions": ["us"]}),
        ("no rule about regions: what is sent inside one is plain", LIAR, {"allowUnknownLinks": True}),
    ],
)
async def test_a_node_that_lies_about_its_region_gets_nothing_that_is_bound_to_it(
    name: str, liar: tuple[ApiResource, Object], placement: dict[str, Any]
) -> None:
    rules = topology(**PINNED, **({} if placement else RESIDENT))
    one = job("one", num_workers=1, placement={"allowUnknownLinks": True, **placement})
    two = job("two", num_workers=2, placement={"allowUnknownLinks": True, **placement})
    async with planning_over(labelled("a", "eu"), liar, rules, one, two) as world:
        world.planner.request("lab/two")
        assert isinstance(await world.answer("two"), Unplanned), name
        world.planner.request("lab/one")
        assert machines(await world.answer("one")) == ["a"], name


@pytest.mark.parametrize(
    ("name", "spec", "region"),
    [
        ("without a list labels are believed", RESIDENT, "eu"),
        ("the list agrees", {**RESIDENT, "pinnedRegions": [{"node": "b", "region": "eu"}]}, "eu"),
        ("the list says nothing of the region", {**RESIDENT, "pinnedRegions": [{"node": "z", "region": "us"}]}, "eu"),
        ("a beginning of names agrees", {"pinnedRegions": [{"node": "b*", "region": "eu"}]}, "eu"),
        (
            "a name goes before a beginning, a longer one before a shorter",
            {"pinnedRegions": [{"node": "b*", "region": "us"}, {"node": "b", "region": "eu"}]},
            "eu",
        ),
    ],
)
async def test_other_nodes_are_used_as_before(name: str, spec: dict[str, Any], region: str) -> None:
    async with planning_over(labelled("b", region), topology(**spec), job("one", num_workers=1)) as world:
        world.planner.request("lab/one")
        assert machines(await world.answer("one")) == ["b"], name


async def test_a_job_that_only_liars_would_take_says_so() -> None:
    async with planning_over(LIAR, topology(**PINNED, **RESIDENT), job("one", num_workers=1)) as world:
        world.planner.request("lab/one")
        found = await world.answer("one")
        assert isinstance(found, Unplanned)
        assert found.reason == "RegionContradicted"
        assert "such as b: its label says region eu, the HulkTopology pins it to us" in found.message


async def test_liars_are_told_by_events_on_their_profiles_and_counted() -> None:
    cluster = FakeCluster(labelled("a", "eu"), LIAR, STRANGER, topology(**PINNED))
    prober = Prober(cluster, partial(read, cluster), jobs=lambda: (), clock=lambda: NOW)
    await prober.tick()
    state = await prober.tick()
    said = {body["involvedObject"]["name"]: body for (kind, _, _), body in cluster.objects.items() if kind == "events"}
    assert {name: body["reason"] for name, body in said.items()} == {"b": "RegionContradicted", "c": "RegionNotPinned"}
    assert said["b"]["message"] == ("node b gets no new pods: its label says region eu, the HulkTopology pins it to us")
    assert {rejection.source for rejection in state.accepted.rejections} == {"b", "c"}


@pytest.mark.parametrize(("pins", "measured_from"), [({}, {"a", "b", "c"}), (PINNED, {"a"})], ids=["none", "pins"])
async def test_what_a_liar_measures_stands_for_no_region(pins: dict[str, Any], measured_from: set[str]) -> None:
    """It would say that it is near, for the region that it claims to be in: everybody's jobs would go there."""
    links = [profile("a", {"u": 90_000}), profile("b", {"u": 100}), profile("c", {"u": 100}), profile("u", {})]
    there = [labelled("a", "eu"), LIAR, STRANGER, labelled("u", "ap")]
    async with planning_over(*there, *links, topology(**pins)) as world:
        seen = await world.planner._reader.inventory((), NOW)
    assert {source for source, target in seen.topology("nvidia.com/gpu").node_links} == measured_from


@pytest.mark.parametrize(("pins", "standing"), [({}, set("abcdef")), (PINNED, {"a"})], ids=["none", "pins"])
async def test_a_liar_is_not_elected_and_nobody_measures_towards_it(pins: dict[str, Any], standing: set[str]) -> None:
    """Six nodes say that they are in eu, which is measured towards three other regions, and inside."""
    nodes = [labelled(name, "eu") for name in "abcdef"] + [
        labelled(f"{region}-1", region) for region in ("x", "y", "z")
    ]
    for number, (_, body) in enumerate(nodes):
        body["status"]["addresses"] = [{"type": "InternalIP", "address": f"10.0.0.{number}"}]
    cluster = FakeCluster(*nodes, topology(**pins))
    for number, (_, body) in enumerate(nodes):
        echo = {"address": f"10.0.0.{number}", "port": 9403}
        name = body["metadata"]["name"]
        cluster._store(NODE_PROFILES, {"metadata": {"name": name}, "spec": {}, "status": {"echo": echo}})
    prober = Prober(
        cluster, partial(read, cluster), jobs=lambda: (), clock=lambda: NOW, budget=Budget(num_inner_links=9)
    )
    state = await prober.tick()
    targets = {order.target for orders in state.decision.measurements.values() for order in orders}
    assert targets - {"x-1", "y-1", "z-1"} == standing
    assert state.region_of.keys() - {"x-1", "y-1", "z-1"} == standing


@pytest.mark.parametrize("node", ["", "*", "*-eu", "eu*-1", "EU-1"])
def test_a_pin_is_a_name_or_its_beginning(node: str) -> None:
    with pytest.raises(ValidationError, match="node"):
        PinnedRegion(node=node, region="eu")


async def test_pods_that_are_there_stay_when_their_node_says_something_else() -> None:
    """As on a cordoned node: a label that somebody got wrong must not end what trains."""
    async with planning_over(labelled("a", "eu"), labelled("b", "us")) as world:
        seen = await world.planner._reader.inventory((), NOW)
    lying = replace(seen, declared=HulkTopologySpec.model_validate({"pinnedRegions": [{"node": "a", "region": "ap"}]}))
    one = HulkJob.model_validate(job("one", num_workers=1)[1])
    reader = Reader(FakeCluster(), world.planner._reader._seen)
    assert set((await reader.workload(one, replace(lying, _known={}), {"a": 1})).candidates) == {"a", "b"}
    assert set((await reader.workload(one, replace(lying, _known={}))).candidates) == {"b"}
