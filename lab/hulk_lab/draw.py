"""Draw a lab's links from measured cloud-region links: python -m hulk_lab.draw --data DIR --seed N --scale F

DIR/links.csv has the columns src_region, dst_region, gbps, rtt_ms (the Skyplane project's figures, Apache-2.0). The
seed picks uniformly among all sets of regions of which every directed pair was measured; rates are multiplied by the
scale, round trips are kept. A drawn file is committed as it is, so that nothing but this program needs the data.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from hulk_lab.spec import LabSpec, LinkSpec, NodeSpec, RegionSpec, dump

SPEEDS = (0.20, 0.20, 0.16, 0.16, 0.14, 0.14)
"""Shares of a core, dealt out by the seed: about one core in all, so that two are never oversubscribed."""

Measured = dict[tuple[str, str], tuple[float, float]]
"""(source, target) -> (Gbit/s, RTT in ms)"""


def read_links(data: Path) -> Measured:
    """The pairs of which both figures were measured."""
    with (data / "links.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {
        (row["src_region"], row["dst_region"]): (float(row["gbps"]), float(row["rtt_ms"]))
        for row in rows
        if row["gbps"] and row["rtt_ms"]
    }


def draw(measured: Measured, *, seed: int, scale: float, num_regions: int = 3, nodes_per_region: int = 2) -> LabSpec:
    """The lab of a seed; ValueError when no set of regions is measured completely."""
    names = sorted({source for source, _ in measured})
    complete = [
        regions
        for regions in itertools.combinations(names, num_regions)
        if all(pair in measured for pair in itertools.permutations(regions, 2))
    ]
    if not complete:
        raise ValueError(f"no {num_regions} of {len(names)} regions have every directed pair measured")
    chosen = random.Random(seed).choice(complete)
    speeds = [SPEEDS[i % len(SPEEDS)] for i in range(num_regions * nodes_per_region)]
    random.Random(f"speeds {seed}").shuffle(speeds)
    first = range(0, len(speeds), nodes_per_region)
    return lab_of(measured, chosen, [speeds[i : i + nodes_per_region] for i in first], scale)


def lab_of(measured: Measured, chosen: Sequence[str], speeds: Sequence[Sequence[float]], scale: float) -> LabSpec:
    """The lab of these regions, a node for every speed of each; KeyError where a pair was not measured."""
    return LabSpec(
        regions=tuple(
            RegionSpec(
                name=_name(region),
                nodes=tuple(NodeSpec(name=f"{_name(region)}-{i}", speed=speed) for i, speed in enumerate(own)),
            )
            for region, own in zip(chosen, speeds, strict=True)
        ),
        links=tuple(_link(measured, pair, scale) for pair in itertools.permutations(chosen, 2)),
    )


def _name(region: str) -> str:
    return region.replace(":", "-")


def _link(measured: Measured, pair: tuple[str, str], scale: float) -> LinkSpec:
    source, target = pair
    gbps, there = measured[pair]
    _, back = measured[target, source]
    return LinkSpec(
        source=_name(source),
        target=_name(target),
        rtt_ms=round((there + back) / 2, 1),
        mbit_per_s=round(gbps * 1e3 * scale, 1),
    )


def render(spec: LabSpec, *, seed: int, scale: float) -> str:
    """The file's text, with where it comes from."""
    return (
        f"# Drawn by: python -m hulk_lab.draw --data DIR --seed {seed} --scale {scale:g}\n"
        "# Links: measurements between cloud regions by the Skyplane project (Apache-2.0), 2022: round trips as\n"
        f"# measured (mean of both directions), TCP rates of 64 connections times {scale:g}.\n"
        "# Speeds: shares of one core for job pods, dealt out by the same seed.\n"
        f"{dump(spec)}"
    )


def main() -> None:
    """Print the lab file of a seed."""
    parser = argparse.ArgumentParser(description="Draw a lab's links from measured cloud-region links.")
    parser.add_argument("--data", type=Path, required=True, help="folder of links.csv")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--scale", type=float, required=True, help="factor on the measured rates, e.g. 0.01")
    parser.add_argument("--regions", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=2, help="nodes per region")
    given = parser.parse_args()
    spec = draw(
        read_links(given.data),
        seed=given.seed,
        scale=given.scale,
        num_regions=given.regions,
        nodes_per_region=given.nodes,
    )
    sys.stdout.write(render(spec, seed=given.seed, scale=given.scale))


if __name__ == "__main__":
    main()
