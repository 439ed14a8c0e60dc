"""The Hulk paper's own data, `node_feature.csv` and `edge.txt` of its repository -> a topology document.

What the files leave open is decided here and said in the document. A city is a region. Capability is the accelerators'
compute capability, which says how they are built and not how fast they are: it becomes the product, so that machines of
one capability count as alike. Memory is gigabytes of the whole machine. A latency is a round trip, and stands for both
directions where the other one has none. Pairs that are not there are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hulk_placement.files.hulk_rows import EDGES, NODES, Node, read_edges, read_nodes
from hulk_placement.files.part import API_VERSION, plain
from hulk_placement.files.text import parse
from hulk_placement.files.topology import TopologyFile
from hulk_placement.files.topology_reading import to_topology
from hulk_placement.geography.cities import coordinates
from hulk_placement.topology import Pair


@dataclass(frozen=True, slots=True)
class Imported:
    """The values of a topology document, and what is odd about the data, in sentences."""

    document: dict[str, Any]
    warnings: tuple[str, ...]


def import_hulk(folder: Path, bandwidth_mbits: float | None = None, num_accelerators: int = 1) -> Imported:
    """The topology in the folder's two files, which may be in a folder below; OSError where one is not there.

    ValueError where one is there more than once, or a row cannot be read.

    `bandwidth_mbits` is assumed of every link; without it only latencies are known. `num_accelerators` of each machine
    share its memory.
    """
    nodes, of_nodes = read_nodes(_find(folder, NODES))
    latencies, of_edges = read_edges(_find(folder, EDGES), nodes)
    rate: dict[str, Any] = {"bandwidth": "unknown"}
    if bandwidth_mbits is not None:
        rate = {"bandwidthMegabitsPerSecond": plain(bandwidth_mbits)}
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Topology",
        "description": _description(len(nodes), latencies, bandwidth_mbits, num_accelerators),
        "regions": list(_regions(nodes.values())),
        "machines": [_machine(node, num_accelerators) for node in nodes.values()],
        "links": [{**entry, **rate} for entry in _links(latencies)],
    }
    read = to_topology(parse(TopologyFile, document, str(folder)), str(folder))
    return Imported(document, (*of_nodes, *of_edges, *read.warnings))


def _find(folder: Path, name: str) -> Path:
    """The file of this name in the folder, or the only one below it."""
    if (folder / name).is_file():
        return folder / name
    below = sorted(folder.rglob(name))
    if not below:
        raise FileNotFoundError(f"no {name} in {folder}")
    if len(below) > 1:
        raise ValueError(
            f"{folder} has {len(below)} files {name}: {', '.join(map(str, below))}; name a folder with one"
        )
    return below[0]


def _description(num_nodes: int, latencies: Mapping[Pair, float], mbits: float | None, num_accelerators: int) -> str:
    pairs, known = num_nodes * (num_nodes - 1) // 2, len({frozenset(pair) for pair in latencies})
    rate = "Bandwidths are not in the data" + (
        "." if mbits is None else f": {mbits:g} Mbit/s is assumed of every link."
    )
    return (
        f"Made by `hulk topology import` from {NODES} and {EDGES}. Latencies are taken as round trips. Of {pairs} "
        f"pairs of machines {known} have one; the others are unknown. {rate} Accelerators of each machine, which share "
        f"its memory: {num_accelerators}, an assumption. Their speed is not known."
    )


def _regions(nodes: Iterable[Node]) -> Iterator[dict[str, Any]]:
    for city in dict.fromkeys(node.city for node in nodes):
        place = coordinates(city)
        if place is not None:
            yield {"name": city, "latitude": place[0], "longitude": place[1]}


def _machine(node: Node, num_accelerators: int) -> dict[str, Any]:
    said: dict[str, Any] = {"name": f"node-{node.name}", "region": node.city, "accelerators": num_accelerators}
    said |= {"product": f"compute-capability-{node.capability}"} if node.capability else {}
    return said | ({"memoryGigabytes": plain(node.memory_gb / num_accelerators)} if node.memory_gb else {})


def _links(latencies: Mapping[Pair, float]) -> Iterator[dict[str, Any]]:
    """A link for each pair; for both directions where only one was measured, or both are the same."""
    for (source, target), latency_ms in latencies.items():
        back_ms = latencies.get((target, source))
        ends = {"source": f"node-{source}", "target": f"node-{target}"}
        if back_ms is None or (back_ms == latency_ms and source < target):
            yield {**ends, "symmetric": True, "rttMilliseconds": plain(latency_ms)}
        elif back_ms != latency_ms:
            yield {**ends, "rttMilliseconds": plain(latency_ms)}
