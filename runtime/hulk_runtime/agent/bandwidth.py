"""One ordered bandwidth test, carried out: the client's side returns a `Transfer`, the server's side opens the port.

The two sides learn of their order at slightly different times, so the client tries until the order's patience is over
and the server stays open until then. A run that broke off after its connections were made is not tried again: what it
sent counts to the order's byte budget. The server ends as soon as the peer's test is done, and a server that somebody
else has reached is ended and opened again. Nothing outlives the order: cancelling ends the iperf3 process.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from typing import Final

from hulk_runtime.agent import iperf, tasks, tcp_peers
from hulk_runtime.agent.iperf import IperfError, NotConnectedError, Transfer
from hulk_runtime.agent.orders import BandwidthOrder

log = logging.getLogger(__name__)

PATIENCE_S: Final = 30.0  # from notBefore until the two sides must have met
HANDSHAKE_S: Final = 15.0  # what iperf3 may take beyond the transfer: about ten round trips
SECOND_RUN_S: Final = 5.0  # how long the client looks for the server's second opening
RETRY_S: Final = 0.3
GUARD_S: Final = 0.1  # how long a stranger can hold a server
MAX_OUTPUT_BYTES: Final = 4 << 20
END_S: Final = 2.0


Clock = Callable[[], float]
"""The time (Unix) by which the two sides have their appointment: neither node's, the API server's."""


def deadline_s(order: BandwidthOrder) -> float:
    """When (Unix) the two sides must have met; an order found later is given up."""
    return order.not_before_s + PATIENCE_S


async def run(order: BandwidthOrder, own_host: str, clock: Clock) -> Transfer | None:
    """Carry out this side: the client's result, None for the server. `IperfError` when the test did not happen."""
    if order.not_before_s == 0:
        order = dataclasses.replace(order, not_before_s=clock())
    await asyncio.sleep(order.not_before_s - clock())
    if order.role == "client":
        return await send(order, own_host, clock)
    await serve(order, own_host, clock)
    return None


async def send(order: BandwidthOrder, own_host: str, clock: Clock) -> Transfer:
    """Send to the peer; the rate that arrived there."""
    result = await _send_when_open(order, iperf.first_run(order, own_host), deadline_s(order), clock)
    if not iperf.needs_second_run(order, result.bytes_per_s):
        return result
    try:
        faster = await _send_when_open(order, iperf.second_run(order, own_host), clock() + SECOND_RUN_S, clock)
    except IperfError as error:  # the paced rate arrived all the same, and is a lower bound
        log.info("second run: %s", error)
        return result
    return max(result, faster, key=lambda transfer: transfer.bytes_per_s)


async def serve(order: BandwidthOrder, own_host: str, clock: Clock) -> None:
    """Receive the peer's runs. The order's address is the peer's; the port opened here is the same everywhere."""
    first = await _serve_peer(order, own_host, clock)
    if iperf.needs_second_run(order, first.bytes_per_s):
        await _serve_peer(order, own_host, clock)


async def _send_when_open(order: BandwidthOrder, command: tuple[str, ...], until_s: float, clock: Clock) -> Transfer:
    while True:
        try:
            return iperf.parse(await _output(command, order.seconds + HANDSHAKE_S))
        except IperfError as error:
            if not isinstance(error, NotConnectedError) or clock() + RETRY_S >= until_s:
                raise IperfError(f"test {order.id} to {order.target}: {error}") from error
            log.debug("test %d to %s: %s", order.id, order.target, error)
        await asyncio.sleep(RETRY_S)


async def _serve_peer(order: BandwidthOrder, own_host: str, clock: Clock) -> Transfer:
    command = iperf.server_command(own_host, order.address.port)
    while (left_s := deadline_s(order) + order.seconds + HANDSHAKE_S - clock()) > 0:
        try:
            output = await _output(command, left_s, guard=order)
            if iperf.accepted_host(output) == order.address.host:
                return iperf.parse(output)
        except IperfError as error:
            log.info("test %d from %s: %s", order.id, order.target, error)
            await asyncio.sleep(GUARD_S)
    raise IperfError(f"test {order.id}: {order.target} did not come within {PATIENCE_S:.0f} s")


async def _output(command: tuple[str, ...], limit_s: float, guard: BandwidthOrder | None = None) -> bytes:
    """What a command prints, ended after `limit_s` or when a stranger is connected to the guarded order's port."""
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=_env())
    guards = [_turn_strangers_away(guard)] if guard else []
    has_finished = False
    try:
        async with asyncio.timeout(limit_s):
            _, output = await tasks.first_of(*guards, _read(process))
        has_finished = True
        return bytes(output)
    except TimeoutError:
        raise IperfError(f"no end after {limit_s:.0f} s") from None
    finally:
        await _end(process, has_finished=has_finished)


async def _turn_strangers_away(order: BandwidthOrder) -> bytes:
    """`IperfError` as soon as anyone but the peer is connected to the server's port; returns never."""
    while True:
        strangers = tcp_peers.peers(order.address.port) - {order.address.host}
        if strangers:
            raise IperfError(f"{min(strangers)} is connected and is not the peer {order.address.host}")
        await asyncio.sleep(GUARD_S)


async def _read(process: Process) -> bytes:
    assert process.stdout is not None
    output = bytearray()
    while chunk := await process.stdout.read(65536):
        output += chunk
        if len(output) > MAX_OUTPUT_BYTES:
            raise IperfError(f"more than {MAX_OUTPUT_BYTES} bytes of output")
    return bytes(output)


async def _end(process: Process, *, has_finished: bool) -> None:
    """What has said all it had to say ends by itself: told to, it might end in between, and asyncio would lose it."""
    if has_finished and await _ends(process):
        return
    for stop in (process.terminate, process.kill):
        with contextlib.suppress(ProcessLookupError):
            stop()
        if await _ends(process):
            return


async def _ends(process: Process) -> bool:
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _env() -> dict[str, str]:
    """iperf3 needs a place for its buffer file; with a read-only root /dev/shm is there even where /tmp is not."""
    writable = next((path for path in ("/tmp", "/dev/shm") if os.access(path, os.W_OK)), "/tmp")
    return {**os.environ, "TMPDIR": os.environ.get("TMPDIR", writable), "LC_ALL": "C"}
