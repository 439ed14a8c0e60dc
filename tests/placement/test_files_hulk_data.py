"""The importer of the Hulk paper's data, on small files of our own with the defects of real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hulk_placement.files import text
from hulk_placement.files.hulk_data import Imported, import_hulk
from hulk_placement.files.topology import TopologyFile
from hulk_placement.files.topology_reading import to_topology
from hulk_placement.geography.cities import coordinates
from hulk_placement.geography.light import distance_km
from hulk_placement.topology import UNKNOWN_BANDWIDTH_BYTES_PER_S, LinkKind, Topology

NODES = "node,City,Capability,Memory\n0,Tokyo ,8.6,160\n1,Paris,7.0,64  \n2,Nowhere,8.0,\n3, Paris,7.0,64\n\n"
EDGES = "0 1 250\n1 0 240   \n1\t2\t7\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "node_feature.csv").write_text(NODES)
    (tmp_path / "edge.txt").write_text(EDGES)
    return tmp_path


def topology_of(imported: Imported) -> Topology:
    written = text.dump(imported.document)
    return to_topology(text.parse(TopologyFile, text.load(written), "topology.yaml")).topology


def test_cities_are_regions_and_blanks_around_names_go(folder: Path) -> None:
    imported = import_hulk(folder)
    topology = topology_of(imported)
    assert [(machine.name, machine.region, machine.product) for machine in topology.machines] == [
        ("node-0", "Tokyo", "compute-capability-8.6"),
        ("node-1", "Paris", "compute-capability-7.0"),
        ("node-2", "Nowhere", "compute-capability-8.0"),
        ("node-3", "Paris", "compute-capability-7.0"),
    ]
    assert [region["name"] for region in imported.document["regions"]] == ["Tokyo", "Paris"]
    assert "node_feature.csv, row 4: node 2: memory '' is no size: taken as unknown" in imported.warnings


def test_memory_is_shared_by_the_accelerators_of_a_machine(folder: Path) -> None:
    topology = topology_of(import_hulk(folder, num_accelerators=8))
    assert [(machine.num_accelerators, machine.memory_bytes) for machine in topology.machines] == [
        (8, 20 * 10**9),
        (8, 8 * 10**9),
        (8, 0),
        (8, 8 * 10**9),
    ]


def test_a_latency_stands_for_both_directions_where_the_other_has_none_and_missing_pairs_are_unknown(
    folder: Path,
) -> None:
    topology = topology_of(import_hulk(folder))
    rtts = [topology.link(f"node-{a}", f"node-{b}").rtt_s for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))]
    assert rtts == [0.25, 0.24, 0.007, 0.007]
    assert topology.link("node-0", "node-2").kind is LinkKind.UNKNOWN
    assert topology.link("node-0", "node-3").kind is LinkKind.INFERRED


@pytest.mark.parametrize(
    ("mbits", "bytes_per_s", "said"),
    [
        (None, UNKNOWN_BANDWIDTH_BYTES_PER_S, "Bandwidths are not in the data."),
        (80.0, 1e7, "Bandwidths are not in the data: 80 Mbit/s is assumed of every link."),
    ],
)
def test_a_bandwidth_is_unknown_or_assumed_and_the_file_says_so(
    folder: Path, mbits: float | None, bytes_per_s: float, said: str
) -> None:
    imported = import_hulk(folder, mbits)
    assert topology_of(imported).link("node-0", "node-1").bandwidth_bytes_per_s == bytes_per_s
    assert said in imported.document["description"]
    assert "2 have one" in imported.document["description"]
    assert any("have a latency and no bandwidth" in warning for warning in imported.warnings) == (mbits is None)


@pytest.mark.parametrize(
    ("edges", "rtt_s", "warning"),
    [
        ("1 1 3", None, "edge.txt, line 4: 1 -> 1 3: a loop, left out"),
        ("3 9 4", None, "edge.txt, line 4: 3 -> 9 4: no node 9, left out"),
        ("0 3 0", None, "edge.txt, line 4: 0 -> 3 0: no time above 0, left out"),
        ("0 3 nan", None, "edge.txt, line 4: 0 -> 3 nan: no time above 0, left out"),
        ("0 3 -5", None, "edge.txt, line 4: 0 -> 3 -5: no time above 0, left out"),
        ("0 3 260\n0 3 230", 0.23, "0 -> 3 has 2 figures, 260, 230 ms: taken is 230, the smallest"),
        ("0 3 20\n0 3 230", 0.23, "0 -> 3 has 2 figures, 20, 230 ms: taken is 230, the smallest above light's 95.1"),
        ("0 3 20\n0 3 30", 0.02, "0 -> 3 has 2 figures, 20, 30 ms: taken is 20, the smallest"),
        ("0 3 20", 0.02, "node-0 -> node-3: a round trip of 20 ms is below the 95.1 ms that light"),
    ],
    ids=["loop", "nobody", "zero", "NaN", "negative", "twice", "one below light", "all below light", "below light"],
)
def test_a_defect_is_set_right_and_told(folder: Path, edges: str, rtt_s: float | None, warning: str) -> None:
    (folder / "edge.txt").write_text(EDGES + edges)
    imported = import_hulk(folder)
    assert any(found.startswith(warning) for found in imported.warnings), imported.warnings
    found = topology_of(imported).node_links.get(("node-0", "node-3"))
    assert (found and found.rtt_s) == rtt_s


def test_the_same_figure_twice_is_no_defect(folder: Path) -> None:
    before = import_hulk(folder)
    (folder / "edge.txt").write_text(f"src dst latency_ms\n{EDGES}0 1 250\n\n")
    assert import_hulk(folder) == before


def test_the_files_may_be_in_a_folder_below_but_not_in_two(folder: Path) -> None:
    here = import_hulk(folder)
    (folder / "data").mkdir()
    for name in ("node_feature.csv", "edge.txt"):
        (folder / name).rename(folder / "data" / name)
    assert import_hulk(folder) == here
    (folder / "other").mkdir()
    (folder / "other" / "edge.txt").write_text(EDGES)
    with pytest.raises(ValueError, match=r"has 2 files edge\.txt"):
        import_hulk(folder)


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("edge.txt", "0 1", "edge.txt, line 1: '0 1': expected source, target and latency"),
        ("node_feature.csv", "node,City\n0,a", "no column capability, memory; there are node, city"),
        ("node_feature.csv", "", "no column node, city, capability, memory; there are none"),
        ("node_feature.csv", NODES + "3,Rome,7.0,1", "row 6: node 3 is there twice"),
        ("node_feature.csv", NODES + "4,Rome", "row 6: 2 cells for 4 columns"),
        ("node_feature.csv", NODES + "x" * 200_000, "not comma-separated values: field larger than field limit"),
        ("node_feature.csv", "node,City,Capability,Memory\n0,,8.6,1", 'machines[0].region: "" must be a name'),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_row(folder: Path, file: str, content: str, expected: str) -> None:
    (folder / file).write_text(content)
    with pytest.raises(ValueError, match=r"\w") as caught:
        import_hulk(folder)
    assert expected in str(caught.value)


def test_cities_are_found_however_they_are_written_and_are_where_they_are() -> None:
    assert coordinates("são paulo") is None
    london, paris, sydney = coordinates(" LONDON"), coordinates("paris"), coordinates("Sydney")
    assert london is not None
    assert paris is not None
    assert sydney is not None
    assert distance_km(london, paris) == pytest.approx(344, abs=5)
    assert distance_km(london, sydney) == pytest.approx(16990, rel=0.01)
    california, los_angeles = coordinates("California"), coordinates("Los Angeles")
    assert california is not None
    assert los_angeles is not None
    assert distance_km(california, los_angeles) < 500
