"""Turns the environment into a connected process group: gloo between CPUs, NCCL between GPUs.

The planned order is the rank order, so the default group's ring is the planned ring.
"""

import contextlib
import inspect
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from ipaddress import IPv6Address

import torch
import torch.distributed as dist

from hulk_runtime.collective import between_regions, tcp_info
from hulk_runtime.collective.process_group import Group, lost_peers
from hulk_runtime.collective.wire.rendezvous import Address
from hulk_runtime.errors import PeerLostError
from hulk_runtime.job.environment import Environment
from hulk_runtime.plan.wire import Plan

RETRY_S = 0.2
CONNECT_TIMEOUT_S = 5.0


@contextlib.contextmanager
def connect(environment: Environment, plan: Plan | None = None) -> Iterator[Group]:
    """Join the attempt's group within `rendezvous_s`, with the plan's all-reduce between regions; leave it at the end.

    Raises PeerLostError when the ranks do not come together.
    """
    chosen = device(environment.local_rank)
    backend = "gloo" if chosen.type == "cpu" else "nccl"
    with lost_peers():
        _join(environment, backend)
    alone = introduce(environment, backend, chosen)
    with contextlib.nullcontext() if plan is None else between_regions.connect(environment, plan, alone) as between:
        yield replace(alone, wan=between)
    # Only after success: with a peer lost, NCCL would wait here for operations that can never end.
    dist.destroy_process_group()


def device(local_rank: int) -> torch.device:
    """The accelerator of one local rank; the CPU where torch finds no GPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def _join(environment: Environment, backend: str) -> None:
    timeout = timedelta(seconds=environment.rendezvous_s)
    first = environment.rank == 0
    if not first:
        _wait_for_first(environment)
    store = dist.TCPStore(  # type: ignore[attr-defined]  # public, but not in torch's __all__
        environment.master_address,
        environment.master_port,
        environment.world_size,
        first,
        timeout,
        wait_for_workers=False,
    )
    # The attempt is part of every key: a leftover of an older attempt that reaches this store meets nobody.
    scope = f"{environment.job}/{environment.attempt}"
    scoped = dist.PrefixStore(scope, store)  # type: ignore[attr-defined]  # as above
    init = inspect.unwrap(dist.init_process_group)  # Hulk's own programs are not instrumented
    init(backend, store=scoped, rank=environment.rank, world_size=environment.world_size, timeout=timeout)


def _wait_for_first(environment: Environment) -> None:
    """Wait until rank 0's name resolves and its port answers.

    torch retries too, but backs off to seconds and prints a page per attempt.
    """
    address = (environment.master_address, environment.master_port)
    deadline = time.monotonic() + environment.rendezvous_s
    while True:
        try:
            socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            if time.monotonic() > deadline:
                late = f"rank 0 at {Address(*address)} did not answer within {environment.rendezvous_s:g} s"
                raise PeerLostError(f"{late}: {error}") from error
            time.sleep(RETRY_S)
        else:
            return


def introduce(
    environment: Environment, backend: str, chosen: torch.device, process_group: "dist.ProcessGroup | None" = None
) -> Group:
    """First collective of the world, or of a group of it: every rank learns every rank's address.

    All are of one family, rank 0's own: where its name has addresses of both, hosts differ in which they take first.
    """
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    alone = Group(rank, size, backend, chosen, {}, process_group=process_group)
    own = own_addresses(environment.master_address, environment.master_port)[0]
    first = _addresses(alone, own)[0]
    if (first.ipv4_mapped is None) is not (own.ipv4_mapped is None):
        own = own_addresses(str(first.ipv4_mapped or first), environment.master_port)[0]
    found = _addresses(alone, own)
    return replace(alone, peers={other: address for other, address in enumerate(found) if other != rank})


def _addresses(group: Group, own: IPv6Address) -> list[IPv6Address]:
    """The one that each rank gives, by rank."""
    rows = group.gather(torch.frombuffer(bytearray(own.packed), dtype=torch.uint8))
    return [IPv6Address(bytes(row.tolist())) for row in rows]


def own_addresses(host: str, port: int) -> list[IPv6Address]:
    """Those from which this machine reaches another, one of each family that it has, in the name's order.

    A connected UDP socket shows them without sending anything. Raises OSError where there is none.
    """
    found = dict[socket.AddressFamily, IPv6Address]()
    refusal: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        if family in found:
            continue
        try:
            with socket.socket(family, kind, protocol) as view:
                view.connect(address)
                found[family] = tcp_info.canonical(view.getsockname()[0])
        except OSError as error:
            refusal = error
    if refusal is not None and not found:
        raise refusal
    return list(found.values())
