"""topology.yaml: every way to write a figure, what comes back, and every mistake with its place."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from file_worlds import topologies
from hulk_placement.files import text
from hulk_placement.files.topology import TopologyFile
from hulk_placement.files.topology_reading import ReadTopology, read_topology, to_topology
from hulk_placement.files.topology_writing import topology_document
from hulk_placement.geography.light import distance_km, least_rtt_s
from hulk_placement.topology import UNKNOWN_BANDWIDTH_BYTES_PER_S, Link, LinkKind, Topology
from hypothesis import given

HEAD = "apiVersion: hulk.dev/files/v1\nkind: Topology\n"
TWO = HEAD + "machines: [{name: a, region: eu}, {name: b, region: us}]\n"


def read(source: str) -> ReadTopology:
    return to_topology(text.parse(TopologyFile, text.load(source), "topology.yaml"), "topology.yaml")


def link_of(entry: str, source: str = "a", target: str = "b") -> Link:
    return read(f"{TWO}links: [{{{entry}}}]").topology.link(source, target)


@pytest.mark.parametrize(
    ("latency", "rtt_s"),
    [
        ("rttMilliseconds: 76", 0.076),
        ("rttMicroseconds: 76", 76e-6),
        ("rttSeconds: 1e-3", 0.001),
        ("oneWayMilliseconds: 38", 0.076),
        ("oneWayMicroseconds: 5", 10e-6),
        ("oneWaySeconds: 0.5", 1.0),
    ],
)
def test_a_latency_is_a_round_trip_or_one_way(latency: str, rtt_s: float) -> None:
    assert link_of(f"source: a, target: b, {latency}, bandwidthMegabitsPerSecond: 1").rtt_s == rtt_s


def test_a_round_trip_is_the_sum_of_ways_that_are_said_by_direction() -> None:
    there, back = "oneWayMilliseconds: 10, bandwidthMegabitsPerSecond: 1", "bandwidthMegabitsPerSecond: 1"
    said = "links: [{{source: eu, target: us, {}}}, {{source: us, target: eu, {}, {}}}]"
    ways = read(TWO + said.format(there, "oneWayMilliseconds: 30", back)).topology
    assert [(ways.link(*pair).latency_s, ways.link(*pair).rtt_s) for pair in ("ab", "ba")] == [
        (0.01, 0.04),
        (0.03, 0.04),
    ]
    mixed = read(TWO + said.format(there, "rttMilliseconds: 50", back)).topology
    assert [mixed.link(*pair).rtt_s for pair in ("ab", "ba")] == [0.02, 0.05]
    alike = read(TWO + said.format(there, "oneWayMilliseconds: 10", back)).topology
    assert alike.region_links["eu", "us"] == Link(0.02, 125_000.0, kind=LinkKind.DECLARED)


@pytest.mark.parametrize(
    ("rate", "bytes_per_s"),
    [
        ("MegabitsPerSecond: 400", 50e6),
        ("GigabitsPerSecond: 0.4", 50e6),
        ("GigabytesPerSecond: 0.05", 50e6),
        ("BytesPerSecond: 5e7", 50e6),
    ],
)
def test_a_rate_is_in_bits_or_bytes(rate: str, bytes_per_s: float) -> None:
    link = link_of(f"source: a, target: b, rttSeconds: 1, bandwidth{rate}, flow{rate}, streams: 8")
    assert (link.bandwidth_bytes_per_s, link.flow_bytes_per_s, link.num_streams) == (bytes_per_s, bytes_per_s, 8)


def test_a_link_is_directed_unless_it_is_symmetric() -> None:
    one = "source: a, target: b, rttSeconds: 1, bandwidthBytesPerSecond: 1"
    assert link_of(one, "b", "a").kind is LinkKind.UNKNOWN
    assert link_of(f"{one}, symmetric: true", "b", "a").rtt_s == link_of(one).rtt_s == 1


def test_an_unknown_link_inherits_nothing_and_a_latency_alone_has_the_rate_of_an_unknown_one() -> None:
    said = """
links:
  - {source: eu, target: us, rttMilliseconds: 76, bandwidth: unknown}
  - {source: a, target: b, unknown: true}
  - {source: us, target: eu, rttMilliseconds: 76, bandwidthMegabitsPerSecond: 9}
"""
    found = read(TWO + said)
    assert found.topology.region_link("eu", "us").rtt_s == 0.076
    assert found.topology.region_link("eu", "us").bandwidth_bytes_per_s == UNKNOWN_BANDWIDTH_BYTES_PER_S
    assert found.topology.link("a", "b").kind is LinkKind.UNKNOWN
    assert found.topology.link("b", "a").kind is LinkKind.INFERRED
    assert found.warnings == (
        "1 directed links have a latency and no bandwidth: they are planned with that of an unknown link, 1 Mbit/s",
    )


def test_an_unknown_region_pair_is_not_usable() -> None:
    topology = read(f"{TWO}links: [{{source: eu, target: us, unknown: true}}]").topology
    assert topology.link("a", "b").kind is LinkKind.UNKNOWN


def test_count_makes_machines_and_regions_give_prices_and_uplinks() -> None:
    topology = read(
        HEAD
        + """
regions:
  - {name: eu, uplinkGigabitsPerSecond: 1, pricePerHour: 2.5, egressPricePerGigabyte: 0.02}
machines:
  - {name: gpu, count: 2, region: eu, accelerators: 8, memoryGibibytes: 80, teraflopsPerSecond: 100}
  - {name: own, region: eu, pricePerHour: 0, inside: {oneWayMicroseconds: 5, bandwidthGigabytesPerSecond: 300}}
  - {name: far, region: us, zone: b, product: Tesla-T4}
links:
  - {source: eu, target: us, egressPricePerGigabyte: 0.01}
"""
    ).topology
    assert [machine.name for machine in topology.machines] == ["gpu-0", "gpu-1", "own", "far"]
    first, own, far = (topology.machine(name) for name in ("gpu-0", "own", "far"))
    assert (first.memory_bytes, first.flops_per_s, first.price_per_hour) == (80 << 30, 1e14, 2.5)
    assert (own.price_per_hour, own.inside) == (0.0, Link(10e-6, 300e9, kind=LinkKind.DECLARED))
    assert (far.zone, far.product, far.price_per_hour) == ("b", "Tesla-T4", 0.0)
    assert topology.uplinks == {"eu": 125e6}
    assert topology.egress_price_per_gb == {("eu", "us"): 0.01}


def test_matrices_are_directed_or_symmetric_and_null_is_unknown() -> None:
    topology = read(
        HEAD
        + """
machines: [{name: a, region: x}, {name: b, region: x}, {name: c, region: y}]
latencyMatrix:
  names: [x, y]
  unit: rttMilliseconds
  symmetric: true
  rows: [[0.5, 80], [null, 0]]
bandwidthMatrix:
  names: [x, y]
  unit: megabitsPerSecond
  streams: 4
  rows: [[8000, 40], [80, null]]
flowMatrix:
  names: [x, y]
  unit: megabitsPerSecond
  rows: [[null, 10], [null, null]]
links:
  - {source: a, target: c, rttMilliseconds: 70, bandwidthMegabitsPerSecond: 8}
"""
    ).topology
    declared = LinkKind.DECLARED
    assert topology.region_links == {
        ("x", "x"): Link(0.0005, 1e9, 4, kind=declared),
        ("x", "y"): Link(0.08, 5e6, 4, kind=declared, flow_bytes_per_s=1.25e6),
        ("y", "x"): Link(0.08, 1e7, 4, kind=declared),
    }
    assert topology.link("a", "c").rtt_s == 0.07
    assert topology.link("b", "c").rtt_s == 0.08


def test_machines_have_matrices_too_whose_diagonal_does_not_count() -> None:
    matrix = "{names: [a, b], unit: oneWayMilliseconds, rows: [[0.01, 10], [20, 0]]}"
    topology = read(f"{TWO}latencyMatrix: {matrix}").topology
    ways = {pair: (link.latency_s, link.rtt_s) for pair, link in topology.node_links.items()}
    assert ways == {("a", "b"): (0.01, 0.03), ("b", "a"): (0.02, 0.03)}


@given(topologies())
def test_a_topology_comes_back_from_its_document(topology: Topology) -> None:
    written = text.dump(topology_document(topology))
    assert read(written).topology == topology


def test_light_is_warned_of_and_not_refused() -> None:
    said = """
regions: [{name: eu, latitude: 50.11, longitude: 8.68}, {name: us, latitude: 40.71, longitude: -74.01}]
links: [{source: eu, target: us, symmetric: true, rttMilliseconds: 20, bandwidthMegabitsPerSecond: 9}]
"""
    assert read(TWO + said).warnings == (
        "eu -> us: a round trip of 20 ms is below the 60.7 ms that light in fibre needs for 6203 km and back",
        "us -> eu: a round trip of 20 ms is below the 60.7 ms that light in fibre needs for 6203 km and back",
    )
    assert read((TWO + said).replace(": 20", ": 61")).warnings == ()


def test_one_way_latencies_are_held_against_light_one_by_one() -> None:
    """There and back they make 101 ms, which no round trip over 6,203 km would be blamed for."""
    said = """
regions: [{name: eu, latitude: 50.11, longitude: 8.68}, {name: us, latitude: 40.71, longitude: -74.01}]
links:
- {source: eu, target: us, oneWayMilliseconds: 1, bandwidthMegabitsPerSecond: 9}
- {source: us, target: eu, oneWayMilliseconds: 100, bandwidthMegabitsPerSecond: 9}
"""
    assert read(TWO + said).warnings == (
        "eu -> us: a one-way latency of 1 ms is below the 30.4 ms that light in fibre needs for 6203 km",
    )
    assert read((TWO + said).replace(": 1,", ": 31,")).warnings == ()


def test_distances_are_those_of_a_sphere() -> None:
    assert distance_km((90, 0), (-90, 77)) == pytest.approx(math.pi * 6371)
    assert distance_km((10, 20), (10, 20)) == 0
    assert least_rtt_s((0, 0), (0, 90)) == pytest.approx(0.0980, abs=1e-4)


MISTAKES = yaml.safe_load((Path(__file__).parent / "golden" / "bad-topologies.yaml").read_text())


@pytest.mark.parametrize(
    ("said", "expected"),
    [(entry["said"], entry["expected"]) for entry in MISTAKES],
    ids=[entry["name"] for entry in MISTAKES],
)
def test_a_mistake_is_told_with_its_place_and_figure(tmp_path: Path, said: str, expected: str) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text((HEAD if said.startswith("machines") else TWO) + said)
    with pytest.raises(ValueError, match=r"topology\.yaml") as caught:
        read_topology(path)
    assert str(caught.value).startswith(str(path))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("kind: Plan", 'kind "Plan": expected Topology'),
        ("kind: Topology\napiVersion: hulk.dev/v1", 'apiVersion "hulk.dev/v1": expected hulk.dev/files/v1'),
        ("[1]", "expected a map of keys, found [1]"),
        ("a: [", "not YAML"),
        ('a: !!int ""', "not YAML"),
        ("a: !!bool perhaps", "not YAML"),
        ("a: !!timestamp now", "not YAML"),
        ("", "expected a map of keys, found nothing"),
    ],
)
def test_what_is_no_topology_is_said(tmp_path: Path, source: str, expected: str) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(source)
    with pytest.raises(ValueError, match=r"topology\.yaml") as caught:
        read_topology(path)
    assert expected in str(caught.value)


def test_json_has_escapes_that_yaml_does_not_know_and_keys_once() -> None:
    assert text.load(r'{"a": "\ud83d\ude00"}') == {"a": "\N{GRINNING FACE}"}
    with pytest.raises(ValueError, match="not YAML"):
        text.load(r'{"a": "\ud83d\ude00", "a": 1}')


def test_anchors_and_merges_of_yaml_are_read() -> None:
    said = HEAD + "machines:\n- &first {name: a, region: eu, accelerators: 8}\n- {<<: *first, name: b}\n"
    assert [(machine.name, machine.num_accelerators) for machine in read(said).topology.machines] == [
        ("a", 8),
        ("b", 8),
    ]


def test_a_machine_that_is_there_twice_makes_no_other_mistakes() -> None:
    """The second is in a region of its own, which the regions and a link name."""
    said = "machines: [{name: a, region: eu}, {name: a, region: us}, {name: a, region: eu}]\nregions: [{name: us}]\n"
    with pytest.raises(ValueError, match="topology") as caught:
        read(HEAD + said + "links: [{source: eu, target: us, unknown: true}]")
    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [
        "machines[1]: a is there twice; the first is in machines[0]",
        "machines[2]: a is there twice; the first is in machines[0]",
    ]


def test_every_mistake_is_told_at_once() -> None:
    said = (
        "regions: [{name: ue}]\nlinks: [{source: a, target: z, unknown: true}, {source: b, target: b, unknown: true}]"
    )
    with pytest.raises(ValueError, match="topology") as caught:
        read(TWO + said)
    assert len(str(caught.value).splitlines()) == 4
