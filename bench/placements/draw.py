"""Draw the labs of this folder from measured cloud-region links: python -m bench.placements.draw --data DIR

Where a shape names its regions they are these; else the seed draws them among all sets of which every directed pair
was measured. It also deals out the machines' speeds. Round trips are kept, rates are multiplied by SCALE. The files are
committed as they are, so that only this program needs the data.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hulk_lab.draw import Measured, lab_of, read_links
from hulk_lab.spec import LabSpec, dump

FOLDER = Path(__file__).parent / "labs"
SCALE = 0.01
SEED = 1
SPEEDS = (0.20, 0.18, 0.18, 0.16, 0.16, 0.14, 0.14, 0.12, 0.12)
"""Of the accelerators that trainings emulate, relative; dealt out by the seed."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Nodes of each region, workers to be placed on them, and the regions where chance does not choose them."""

    num_nodes: tuple[int, ...]
    num_workers: int
    regions: tuple[str, ...] = ()


SHAPES = {
    "two-sites": Shape(
        (3, 2, 2, 2), 5, ("aws:eu-central-1", "gcp:europe-west3-a", "aws:us-east-1", "gcp:asia-southeast1-a")
    ),
    "three-regions": Shape((3, 3, 2), 4),
    "scattered": Shape((2, 1, 1, 1, 1), 4),
}
"""Two sites of one city that hold all workers, and two regions far away; no region that holds all; hardly two alike."""


def draw(measured: Measured, shape: Shape, *, seed: int = SEED, scale: float = SCALE) -> LabSpec:
    """The lab of a shape. KeyError where a pair of regions that it names was not measured."""
    speeds = random.Random(f"speeds {shape.num_nodes} {seed}").sample(
        SPEEDS[: sum(shape.num_nodes)], sum(shape.num_nodes)
    )
    dealt = iter(speeds)
    own = [list(itertools.islice(dealt, num)) for num in shape.num_nodes]
    return lab_of(measured, shape.regions or _drawn(measured, len(own), seed), own, scale)


def _drawn(measured: Measured, num_regions: int, seed: int) -> tuple[str, ...]:
    """The first complete one of random sets of regions: uniform among the complete ones."""
    return next(
        regions
        for regions in _sets(sorted({source for source, _ in measured}), num_regions, seed)
        if all(pair in measured for pair in itertools.permutations(regions, 2))
    )


def _sets(names: list[str], num_regions: int, seed: int) -> Iterator[tuple[str, ...]]:
    rng = random.Random(f"{num_regions} regions {seed}")
    while True:
        yield tuple(rng.sample(names, num_regions))


def render(name: str, lab: LabSpec) -> str:
    """The file's text, with where it comes from."""
    chosen = "named" if SHAPES[name].regions else f"drawn by seed {SEED}"
    return (
        "# Drawn by: python -m bench.placements.draw --data DIR\n"
        "# Links: measurements between cloud regions by the Skyplane project (Apache-2.0), 2022: round trips as\n"
        f"# measured (mean of both directions), TCP rates of 64 connections times {SCALE:g}; regions {chosen}.\n"
        f"# Speeds: of the accelerators that trainings emulate, relative, dealt out by seed {SEED}.\n"
        f"{dump(lab)}"
    )


def main() -> None:
    """Write every lab's file."""
    parser = argparse.ArgumentParser(description="Draw the labs of this folder.")
    parser.add_argument("--data", type=Path, required=True, help="folder of links.csv")
    measured = read_links(parser.parse_args().data)
    for name, shape in SHAPES.items():
        lab = draw(measured, shape)
        (FOLDER / f"{name}.yaml").write_text(render(name, lab.model_copy(update={"name": name})))


if __name__ == "__main__":
    main()
