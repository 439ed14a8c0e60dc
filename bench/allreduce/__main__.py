"""`python -m bench.allreduce [QUESTION ...] [--profiles A,B] [--nodes 3 6] [--sizes 0.25,1] [--runs 5]`: single cases.

`speed` compares with gloo, the bound and the prediction, `prediction` times Hulk's own alone, `ddp` DDP's steps;
`variants` lists the other questions. A profile `5@7` is one of five regions, drawn by seed 7.
`python -m bench allreduce ddp` asks all of them.
"""

from __future__ import annotations

import argparse
import signal
import sys

from bench.allreduce import answers, ddp, prediction, speed
from bench.allreduce.case import Case
from bench.allreduce.profiles import PROFILES, node_counts
from bench.allreduce.rounds import MIB
from bench.allreduce.variants import QUESTIONS


def main() -> int:
    """Time what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.allreduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "question", nargs="*", default=["speed"], help=f"of speed, prediction, ddp, {', '.join(QUESTIONS)}"
    )
    parser.add_argument("--profiles", default="A,B", help=f"of {','.join(PROFILES)}, or REGIONS@SEED")
    parser.add_argument("--nodes", nargs="*", default=["3", "6"], help="6, or one count a region: 2,1,3,1")
    parser.add_argument("--sizes", default="0.25,1,4,16,64", help="MiB")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    profiles = options.profiles.split(",")
    cases = [Case(profile, node_counts(profile, nodes)) for profile in profiles for nodes in options.nodes]
    sizes = [round(float(word) * MIB) for word in options.sizes.split(",")]
    if "speed" in options.question:
        speed.run(cases, sizes, options.runs)
    if "prediction" in options.question:
        prediction.run(cases, sizes, options.runs)
    if "ddp" in options.question:
        ddp.run(cases, ddp.NUM_LAYERS, options.runs)
    others = [question for question in options.question if question not in ("speed", "prediction", "ddp")]
    if others:
        answers.run(others, cases, sizes, options.runs)
    return 0


def _end(*_: object) -> None:
    """Clean up once, however often one is told to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("ended")


if __name__ == "__main__":
    sys.exit(main())
