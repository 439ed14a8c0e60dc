"""TCP ports for what a test starts."""

import os
import random
import socket
from contextlib import suppress
from pathlib import Path

GIVEN: set[int] = set()
"""Ports that this process has given out."""


def free_port() -> int:
    """A TCP port that is free, and that no connection of others or listener at any port takes in the meantime.

    Nor does another test: each worker has ports of its own, and gives none out twice.
    """
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    num_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    own = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = random.SystemRandom().randrange(10_000 + own, first_ephemeral, num_workers)
        if port in GIVEN:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            GIVEN.add(port)
            return port
