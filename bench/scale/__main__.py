"""`python -m bench.scale [SIZE ...] [--short]`: some sizes, as `500-stub`; other rows are kept, and all are printed."""

import argparse

from bench.raw import Raw
from bench.scale.phases import SHORT, Times
from bench.scale.question import QUESTION, SIZES, measure, only, read, show

parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
parser.add_argument("size", nargs="*", help=", ".join(f"{size.num_nodes}-{size.server}" for size in SIZES))
parser.add_argument("--short", action="store_true", help="shorter waits")
asked = parser.parse_args()
rows = Raw(QUESTION, fresh=False)
for one in only(asked.size):
    measure(one, SHORT if asked.short else Times(), rows)
show(read(rows.path))
