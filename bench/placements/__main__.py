"""`python -m bench.placements [LAB ...] [--who NAME ...] [--more] [--keep]`: single labs, verdicts over all rows.

`python -m bench placements` trains in all labs. Rows are kept by lab in build/bench; `--more` adds to them, and without
a lab nothing is trained. `--keep` leaves the lab up for the next such call: `hulk-lab down --prefix bench-` ends it.
"""

from __future__ import annotations

import argparse
import signal
import sys

from bench.placements import question
from bench.placements.draw import SHAPES
from bench.placements.rows import outcomes, read
from bench.raw import FOLDER


def main() -> None:
    """Train what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.placements", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lab", nargs="*", help=f"of {', '.join(SHAPES)}")
    parser.add_argument(
        "--who", action="append", default=[], help="only this one's machines (nobody: none); may be repeated"
    )
    parser.add_argument("--more", action="store_true", help="keep the rows of earlier runs")
    parser.add_argument("--keep", action="store_true", help="take over the lab that was left up, and leave it up")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the lab is taken down
    for name in options.lab:
        question.in_lab(name, options.who, more=options.more, keep=options.keep)
    paths = [FOLDER / f"placements-{name}.jsonl" for name in SHAPES]
    question.conclude(outcomes(row for path in paths if path.exists() for row in read(path)))


if __name__ == "__main__":
    main()
