"""The plan, the environment and a connected group -> the group's all-reduce between regions."""

import contextlib
import socket
from collections.abc import Iterator, Sequence

import torch

from hulk_runtime import names
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.process_group import Group
from hulk_runtime.collective.reduction import region_backend
from hulk_runtime.collective.reduction.region_backend import Inside
from hulk_runtime.collective.staging import AllReduce
from hulk_runtime.collective.wire.rendezvous import Address, listen
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.job import peer_secret
from hulk_runtime.job.environment import Environment
from hulk_runtime.plan.flows import CollectivePlan
from hulk_runtime.plan.wire import Plan

MAX_STREAMS = 4
"""To a peer, where packets are lost on the way."""


@contextlib.contextmanager
def connect(environment: Environment, plan: Plan, group: Group) -> Iterator[AllReduce | None]:
    """The sum over all ranks, its paths warm; None where the plan leaves it to torch's backend.

    Raises PeerLostError, ConfigurationError (no secret), PortError.
    """
    planned = plan.collective_plan()
    if planned is None:
        yield None
        return
    inside = region_backend.join(planned, group.rank, group.device) if region_backend.is_wanted(group.device) else None
    with connect_ranks(environment, planned, group, port=environment.collective_port, inside=inside) as between:
        yield between


@contextlib.contextmanager
def connect_ranks(
    environment: Environment,
    planned: CollectivePlan,
    group: Group,
    name: str = "",
    port: int = 0,
    inside: Inside | None = None,
) -> Iterator[AllReduce]:
    """As `connect_group`, of ranks that tell one another where they listen: at `port`, 0: anywhere."""
    with listen("", port) as listener:
        here = (environment, planned, group.rank, group.device, _addresses(group, listener.getsockname()[1]), listener)
        with connect_group(*here, name, inside) as between:
            yield between


@contextlib.contextmanager
def connect_group(
    environment: Environment,
    planned: CollectivePlan,
    rank: int,
    device: torch.device,
    addresses: Sequence[Address],
    listener: socket.socket,
    name: str = "",
    inside: Inside | None = None,
) -> Iterator[AllReduce]:
    """The sum over the ranks of a group, which all know it by a name. `addresses`: where they listen, this one already.

    Raises as `connect`.
    """
    collective = Collective.connect(
        rank,
        addresses,
        planned,
        _secret(environment),
        scope=f"{environment.job_uid or environment.job}/{environment.attempt}" + (f"/{name}" if name else ""),
        settings=Settings(connect_s=environment.rendezvous_s, max_streams=MAX_STREAMS),
        listener=listener,
        inside=inside,
        all_listen=True,
    )
    with contextlib.closing(collective):
        collective.warm()
        yield AllReduce(collective, device, environment.rendezvous_s)  # until a step's own bound is known


def _addresses(group: Group, port: int) -> list[Address]:
    """Where each rank listens; the own one is not used."""
    ports = group.gather(torch.tensor([port])).flatten().tolist()
    hosts = {rank: str(host.ipv4_mapped or host) for rank, host in group.peers.items()}
    return [Address(hosts.get(rank, ""), port) for rank, port in enumerate(ports)]


def _secret(environment: Environment) -> bytes:
    secret = peer_secret.read(environment.peer_secret_path)
    if not secret:
        raise ConfigurationError(f"the plan sums between regions, but {names.ENV_PEER_SECRET} names no secret")
    return secret
