"""What the ranks of a group tell one another before they connect: which worker each is of, and where it listens.

A rank writes it to the group's store when it makes the group, and listens from then on. Torch makes a group on all of
its ranks together, so whoever sums in it first waits for nobody else's first sum.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv6Address
from typing import Any

import torch.distributed as dist

from hulk_runtime.collective import init_process_group
from hulk_runtime.collective.forks import in_child
from hulk_runtime.collective.process_group import lost_peers
from hulk_runtime.collective.wire.rendezvous import Address, listen
from hulk_runtime.errors import ConfigurationError, PeerLostError
from hulk_runtime.job import environment


@dataclass(frozen=True, slots=True)
class Member:
    """One rank. `hosts`: its addresses, of each family at most one, first the family in which it reaches rank 0.

    `problem`: why it has found none.
    """

    worker: int
    port: int
    hosts: tuple[str, ...]
    problem: str = ""


class Introduction:
    """This rank's own part, and the listener that it tells of. `store`: a group's, where the others read it."""

    def __init__(self, store: Any = None, rank: int = 0) -> None:
        here = environment.read(os.environ)
        found, problem = list[IPv6Address](), ""
        try:
            found = init_process_group.own_addresses(here.master_address, here.master_port)
        except OSError as error:  # torch may meet elsewhere, and need no planned sums
            problem = f"{here.master_address}: {error}"
        self.listener = listen("", 0)
        in_child(self.listener, socket.socket.close)
        self.member = Member(here.worker, self.listener.getsockname()[1], tuple(map(str, found)), problem)
        self.store = store
        if store is not None:
            store.set(_key(rank), json.dumps(asdict(self.member)))


def read_members(store: Any, num_ranks: int) -> list[Member]:
    """What each rank has written. Raises PeerLostError after the store's own timeout."""
    try:
        found = store.multi_get([_key(rank) for rank in range(num_ranks)])
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        raise PeerLostError(f"rank 0's store does not say where the group's {num_ranks} ranks are: {first}") from error
    return [Member(**json.loads(text)) for text in found]


def exchange_members(own: Member, group: dist.ProcessGroup) -> list[Member]:
    """Of a group that torch has made without Hulk: by a collective. Raises PeerLostError."""
    found: list[Any] = [None] * dist.get_world_size(group)
    with lost_peers():
        dist.all_gather_object(found, own, group)
    return found


def addresses_of(members: Sequence[Member]) -> list[Address]:
    """Where they listen, all in one family: the first of rank 0's in which each has an address.

    Raises PeerLostError where a rank has found none, which another attempt may, and ConfigurationError.

    >>> both, one = Member(0, 7, ("::1", "::ffff:127.0.0.1")), Member(1, 8, ("::ffff:127.0.0.1",))
    >>> print(*addresses_of([both, both]), *addresses_of([both, one]))
    [::1]:7 [::1]:7 127.0.0.1:7 127.0.0.1:8
    """
    for rank, member in enumerate(members):
        if not member.hosts:
            raise PeerLostError(f"rank {rank} did not find its own address by that of rank 0, {member.problem}")
    hosts = [{_is_ipv4(host): host for host in map(IPv6Address, member.hosts)} for member in members]
    for is_ipv4 in hosts[0]:
        if all(is_ipv4 in found for found in hosts):
            chosen = (found[is_ipv4] for found in hosts)
            return [
                Address(str(host.ipv4_mapped or host), member.port)
                for host, member in zip(chosen, members, strict=True)
            ]
    raise ConfigurationError(f"ranks have no addresses of one family: {[member.hosts for member in members]}")


def _is_ipv4(host: IPv6Address) -> bool:
    return host.ipv4_mapped is not None


def _key(rank: int) -> str:
    return f"hulk/{rank}"
