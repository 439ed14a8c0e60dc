"""`python -m bench.gnn`: a part of the question."""

from __future__ import annotations

import argparse
import json

from bench.gnn.question import NUM_CLUSTERS, REGIONS, SECONDS, measured
from bench.gnn.table import SEARCHED, Row, show
from bench.raw import Raw


def main() -> None:
    """Measure a part and print it, with `--add` beside all that was measured before."""
    parser = argparse.ArgumentParser(prog="python -m bench.gnn", description=main.__doc__)
    parser.add_argument("--machines", type=int, nargs="*", choices=REGIONS, default=list(REGIONS))
    parser.add_argument("--seconds", type=float, nargs="*", default=SECONDS)
    parser.add_argument("--clusters", type=int, nargs=2, default=(0, NUM_CLUSTERS), metavar=("FIRST", "END"))
    parser.add_argument("--searches", nargs="*", choices=SEARCHED, default=SEARCHED)
    parser.add_argument("--add", action="store_true", help="to what was measured before")
    options = parser.parse_args()
    raw = Raw("gnn", fresh=not options.add)
    before = [Row(**json.loads(line)) for line in raw.path.read_text().splitlines()]
    rows = measured(raw, options.machines, options.seconds, range(*options.clusters), options.searches)
    show([*before, *rows])


if __name__ == "__main__":
    main()
