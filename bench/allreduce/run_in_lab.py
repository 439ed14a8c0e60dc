"""`python -m bench.allreduce.run_in_lab --profile A --nodes 6 SCRIPT [ARGS]`: a script on every node of a WAN.

Brings up the network of a profile, starts one Python process per node (the environment is described in `gang`), prints
rank 0's standard output as it comes and what the other ranks print on standard error, and takes everything down.
Exits with 1 when a rank failed or the time was over. At the end standard error says whether the WAN kept its promise
since rank 0's first line: print one when everything is imported and connected.
"""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from bench.allreduce.gang import Gang, RankError, lab_name, wan
from bench.allreduce.profiles import PROFILES, lab_spec, node_counts
from bench.conditions import Watch


def main() -> int:
    """Run one script; 1 when a rank failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=PROFILES, default="A")
    parser.add_argument("--nodes", default="", help="a number, or one count a region separated by commas")
    parser.add_argument("--name", default=lab_name(), help="the lab's name, for `hulk-lab down --lab NAME`")
    parser.add_argument("--timeout", type=int, default=600, help="seconds, then everything is ended")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(options.timeout)
    spec = lab_spec(options.profile, node_counts(options.profile, options.nodes), options.name)
    with wan(spec) as net:
        watch = None
        with Gang(net, options.script, *options.arguments) as gang:
            for line in gang.lines():
                watch = watch or Watch(net)
                print(line, flush=True)
            try:
                gang.wait()
            except RankError as error:
                print(error, file=sys.stderr)
                return 1
        if watch is not None:
            print(watch.conditions(), file=sys.stderr)
    return 0


def _end(number: int, _: FrameType | None) -> None:
    """As an exception, so that everything is taken down."""
    raise SystemExit(f"ended by {signal.Signals(number).name}")


if __name__ == "__main__":
    sys.exit(main())
