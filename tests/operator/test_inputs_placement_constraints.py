"""Where workers may be: regions, pins and prices narrow the nodes; wishes that exclude each other are both named."""

from typing import Any

import pytest
from api_vectors import job
from hulk_operator.api import HulkJob
from hulk_operator.inputs.placement_constraints import Nodes, UnusableJobError
from hulk_operator.inputs.workloads import Situation, to_model, to_workload
from hulk_placement.workload import Workload

REGIONS = {"a": "eu", "b": "eu", "c": "us", "d": "ap"}
PRICES = {"a": 2.0, "b": 0.0, "c": 3.0, "d": 1.5}
NODES = Nodes(REGIONS, PRICES, dict.fromkeys(REGIONS, "T4") | {"b": "unknown"})


def workload(placement: dict[str, Any], residency: tuple[str, ...] | None = None, nodes: Nodes = NODES) -> Workload:
    found = HulkJob.model_validate(job({"placement": placement}))
    situation = Situation(1, dict.fromkeys(REGIONS, 2), allowed_regions=residency, nodes=nodes)
    return to_workload(found, to_model(found.spec), situation)


def pin(layers: str, *regions: str, nodes: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"layers": layers, "regions": regions, "nodes": nodes}


@pytest.mark.parametrize(
    ("placement", "nodes", "regions"),
    [
        ({}, "abcd", ()),
        ({"deniedRegions": ["us"]}, "abcd", ("ap", "eu")),  # outside its regions the planner leaves nodes out
        ({"regions": ["eu", "us"], "deniedRegions": ["ap"]}, "abcd", ("eu", "us")),
        ({"pins": [pin("0-2", "eu", "us")]}, "abc", ()),
        ({"pins": [pin("0-2", "eu", "us"), pin("3", "us", "ap")]}, "c", ()),
        ({"pins": [pin("0", "us", nodes=("a",))]}, "ac", ()),
        ({"pins": [{"parameters": "blocks.*", "nodes": ["b", "d"]}]}, "bd", ()),
        ({"objective": "throughputPerMoney"}, "acd", ()),
        ({"maxPricePerHour": "3"}, "acd", ()),
    ],
)
def test_what_is_left(placement: dict[str, Any], nodes: str, regions: tuple[str, ...]) -> None:
    found = workload(placement)
    assert "".join(found.candidates) == nodes
    assert found.regions == regions


def test_wishes_about_money_reach_the_planner() -> None:
    found = workload({"objective": "throughputPerMoney", "maxPricePerHour": "12.5"})
    assert (found.objective, found.max_price_per_hour) == ("throughput-per-money", 12.5)
    assert (workload({}).objective, workload({}).max_price_per_hour) == ("time", None)


def test_denied_regions_narrow_what_residency_allows() -> None:
    assert workload({"deniedRegions": ["us"]}, residency=("eu", "us")).regions == ("eu",)


@pytest.mark.parametrize(
    ("placement", "reason", "words"),
    [
        (
            {"deniedRegions": ["eu", "us", "ap"]},
            "ContradictoryPlacement",
            "placement.deniedRegions (eu, us, ap) excludes all of the cluster.",
        ),
        (
            {"deniedRegions": ["us"], "pins": [pin("0", "us", "eu")]},
            "ContradictoryPlacement",
            "placement.pins[0].regions names us, which placement.deniedRegions excludes.",
        ),
        (
            {"regions": ["eu"], "pins": [pin("0", nodes=("c",))]},
            "ContradictoryPlacement",
            "placement.pins[0].nodes names c in us, which placement.regions excludes.",
        ),
        (
            {"pins": [pin("0-2", "eu"), pin("2-3", "us")]},
            "ContradictoryPlacement",
            "placement.pins[0] (layers 0-2 in eu) and placement.pins[1] (layers 2-3 in us) both bind layer 2.",
        ),
        (
            {"pins": [pin("0-1", "eu"), pin("2-3", "us")]},
            "UnsupportedLayout",
            "placement.pins[0] (layers 0-1 in eu) and placement.pins[1] (layers 2-3 in us) have no node in common: "
            "layers in different places need pipeline stages (parallelism.pipeline), without which every worker holds "
            "all layers.",
        ),
        (
            {"pins": [pin("0", "eu", "us"), pin("1", "us", "ap"), pin("2", "ap", "eu")]},
            "UnsupportedLayout",
            "layers in different places need pipeline stages",
        ),
        ({"pins": [pin("0", "mars")]}, "NoCandidates", "No node is where placement.pins[0] (layers 0 in mars) allows."),
        ({"pins": [pin("3-9", "eu")]}, "InvalidPins", "placement.pins[0]: layers 3-9, of 4 from 0 to 3."),
        (
            {"pins": [{"parameters": "decoder.*", "regions": ["eu"]}]},
            "InvalidPins",
            "placement.pins[0]: 'decoder.*' means none of the layers token, blocks.0, blocks.1, norm.",
        ),
        (
            {"workerNodes": ["a", "c"], "deniedRegions": ["us"]},
            "ContradictoryPlacement",
            "placement.workerNodes names c in us, which placement.deniedRegions excludes.",
        ),
        (
            {"workerNodes": ["a", "c"], "pins": [pin("0", "eu")]},
            "ContradictoryPlacement",
            "placement.workerNodes names c, which placement.pins[0] (layers 0 in eu) excludes.",
        ),
        (
            {"maxPricePerHour": "2.5"},
            "ContradictoryPlacement",
            "placement.maxPricePerHour 2.5 and workers.min 2 exclude each other: 2 accelerators cost 3 an hour at",
        ),
        (
            {"pins": [pin("0", nodes=("b",))], "objective": "throughputPerMoney"},
            "NoPrices",
            "placement.objective throughputPerMoney goes by prices, and the HulkTopology has none for unknown.",
        ),
    ],
)
def test_wishes_that_exclude_each_other_are_both_named(placement: dict[str, Any], reason: str, words: str) -> None:
    with pytest.raises(UnusableJobError) as caught:
        workload(placement)
    assert caught.value.reason == reason
    assert words in caught.value.message


def test_a_pin_that_residency_excludes_says_so() -> None:
    with pytest.raises(UnusableJobError, match=r"placement.pins\[0\].regions names us, which residency excludes"):
        workload({"pins": [pin("0", "us")]}, residency=("eu",))
