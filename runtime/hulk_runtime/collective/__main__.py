"""`python -m hulk_runtime.collective`: time all-reduces between any machines, without Kubernetes or a launcher.

In one shell on each machine, with the same list of addresses and the same secret (at least 16 bytes):

    head -c 32 /dev/urandom > secret
    python -m hulk_runtime.collective --rank 0 --addresses 10.0.0.1:29401,10.9.0.1:29401 --secret-file secret
    python -m hulk_runtime.collective --rank 1 --addresses 10.0.0.1:29401,10.9.0.1:29401 --secret-file secret

Every address is a region of its own unless --regions names one for each. Without --plan each region reduces an equal
share; a plan is the file that Hulk mounts into a job's pods, for as many ranks.
"""

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.wire.rendezvous import Address
from hulk_runtime.errors import HulkError
from hulk_runtime.plan import wire
from hulk_runtime.plan.flows import CollectivePlan


def main() -> int:
    """The exit code; prints a line for every size."""
    parser = _parser()
    options = parser.parse_args()
    try:
        sizes = [size(text) for text in options.megabytes.split(",")]
        with contextlib.closing(_connect(options)) as group:
            _time(group, sizes, options.runs)
    except HulkError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return 0


def _connect(options: argparse.Namespace) -> Collective:
    addresses = [address(text) for text in options.addresses.split(",")]
    if not 0 <= options.rank < len(addresses) or options.runs < 1:
        raise ValueError(f"rank {options.rank} of {len(addresses)} addresses, {options.runs} runs")
    plan = _plan(options.plan, options.regions, len(addresses))
    secret, settings = options.secret_file.read_bytes(), Settings(connect_s=options.connect_seconds)
    return Collective.connect(options.rank, addresses, plan, secret, "by hand", settings, listen_everywhere=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hulk_runtime.collective",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rank", type=int, required=True, help="place of this one in the addresses, from 0")
    parser.add_argument("--addresses", required=True, help="HOST:PORT of every rank, separated by commas")
    parser.add_argument("--secret-file", type=Path, required=True, help="at least 16 bytes, the same everywhere")
    parser.add_argument("--regions", help="a region's name for every rank, separated by commas")
    parser.add_argument("--plan", type=Path, help="plan.json.gz")
    parser.add_argument("--megabytes", default="1,16", help="of float32, separated by commas")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--connect-seconds", type=float, default=300.0, help="how long to wait for the others")
    return parser


def address(text: str) -> Address:
    """`host:port`; an IPv6 host in brackets.

    >>> address("[fd00::1]:29401")
    Address(host='fd00::1', port=29401)
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"address {text!r} is not HOST:PORT")
    return Address(host.strip("[]"), int(port))


def size(text: str) -> float:
    """Megabytes.

    >>> size("0.25")
    0.25
    """
    megabytes = float(text) if text.replace(".", "", 1).isdigit() else 0.0
    if not megabytes > 0:
        raise ValueError(f"{text!r} MB is no size")
    return megabytes


def by_region(names: Sequence[str]) -> list[list[int]]:
    """The ranks of each region, regions in the order of their first rank.

    >>> by_region(["eu", "us", "eu"])
    [[0, 2], [1]]
    """
    return [[rank for rank, name in enumerate(names) if name == region] for region in dict.fromkeys(names)]


def _plan(path: Path | None, regions: str | None, num_ranks: int) -> CollectivePlan:
    if path is not None:
        found = wire.load(path).collective_plan()
        if found is None:
            raise ValueError(f"{path} plans gloo's ring: it has no collective")
        return found
    names = regions.split(",") if regions else [str(rank) for rank in range(num_ranks)]
    if len(names) != num_ranks:
        raise ValueError(f"{len(names)} regions for {num_ranks} addresses")
    return CollectivePlan.direct(by_region(names))


def _time(group: Collective, sizes: Sequence[float], num_runs: int) -> None:
    group.warm()
    for megabytes in sizes:
        values_N = torch.ones(max(1, int(megabytes * 1e6 / 4)))
        seconds = []
        for _ in range(num_runs):
            values_N.fill_(1.0)
            started = time.perf_counter()
            group.all_reduce(values_N).wait()
            seconds.append(time.perf_counter() - started)
        is_right = bool((values_N == group.plan.num_ranks).all())
        print(
            f"{megabytes:g} MB: median {statistics.median(seconds):.4f} s of {num_runs}, "
            f"{'right' if is_right else 'WRONG'}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
