"""`python -m bench.allreduce [PART ...] [--profiles A,B] [--nodes 3,6] [--sizes 0.25,1] [--runs 5]`: single cases.

`python -m bench allreduce` answers all of it.
"""

from __future__ import annotations

import argparse
import signal
import sys

from bench.allreduce import speed
from bench.allreduce.case import Case
from bench.allreduce.profiles import PROFILES, node_counts
from bench.allreduce.rounds import MIB


def main() -> int:
    """Time what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.allreduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", default="A,B", help=f"of {','.join(PROFILES)}")
    parser.add_argument("--nodes", nargs="*", default=["3", "6"], help="6, or one count a region: 2,1,3,1")
    parser.add_argument("--sizes", default="0.25,1,4,16,64", help="MiB")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    profiles = options.profiles.split(",")
    cases = [Case(profile, node_counts(profile, nodes)) for profile in profiles for nodes in options.nodes]
    sizes = [round(float(word) * MIB) for word in options.sizes.split(",")]
    speed.run(cases, sizes, options.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
