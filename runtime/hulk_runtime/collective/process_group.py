"""Turns the environment into a connected process group: gloo between CPUs, NCCL between GPUs.

The planned order is the rank order, so the default group's ring is the planned ring.
"""

import contextlib
import socket
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from ipaddress import IPv6Address
from typing import Protocol

import torch
import torch.distributed as dist

from hulk_runtime.collective import between_regions, tcp_info
from hulk_runtime.collective.staging import AllReduce
from hulk_runtime.collective.wire.membership import Membership
from hulk_runtime.errors import HulkError, PeerLostError
from hulk_runtime.job.environment import Environment
from hulk_runtime.plan.wire import Plan

RETRY_S = 0.2
CONNECT_TIMEOUT_S = 5.0


class Work(Protocol):
    """A collective under way."""

    def wait(self) -> None:
        """Until the result is in place. Raises PeerLostError."""


@dataclass(frozen=True, slots=True)
class Group:
    """The connected world. `peers` holds the network address of every other rank.

    `wan` sums between regions where the plan says so; otherwise the backend does.
    """

    rank: int
    world_size: int
    backend: str
    device: torch.device
    peers: dict[int, IPv6Address]
    wan: AllReduce | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes checkpoints and speaks for the job."""
        return self.rank == 0

    @property
    def next_rank(self) -> int:
        """The rank this one sends to in gloo's ring: data flows from rank r to rank r-1."""
        return (self.rank - 1) % self.world_size

    def all_reduce(self, values: torch.Tensor, num_exact: int = 0, name: Hashable = None) -> Work:
        """Begin to sum `values` over all ranks, in place. All ranks must begin their sums in the same order.

        The last `num_exact` values are not to be rounded, where the plan compresses on its way what may be. What that
        takes from values of some `name` is added to the next ones of that name.
        """
        return all_reduce(values) if self.wan is None else self.wan.all_reduce(values, num_exact, name)

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """Every rank's one-dimensional `values`, one row per rank, on all ranks. Shape (world_size, n)."""
        mine = values.to(self.device)
        everyone = torch.empty(self.world_size * mine.numel(), dtype=mine.dtype, device=self.device)
        with lost_peers():
            dist.all_gather_into_tensor(everyone, mine)
        return everyone.view(self.world_size, mine.numel()).cpu()

    def exchange(self, values: torch.Tensor) -> torch.Tensor:
        """As `gather`, directly between all ranks: it takes one way over the longest link, and sends more."""
        mine = values.to(self.device)
        everyone = torch.empty(self.world_size * mine.numel(), dtype=mine.dtype, device=self.device)
        with lost_peers():
            dist.all_to_all_single(everyone, mine.repeat(self.world_size))
        return everyone.view(self.world_size, mine.numel()).cpu()

    def broadcast(self, values: torch.Tensor) -> None:
        """Overwrite `values` with rank 0's, in place."""
        carrier = values.to(self.device)
        with lost_peers():
            dist.broadcast(carrier, src=0)
        values.copy_(carrier)

    def part(self) -> None:
        """Wait for all ranks but lost ones: gloo closes a rank's connections as soon as their other ends leave.

        NCCL does not, and would wait for lost ones. Raises MembershipChangedError, which only `wan` does.
        """
        if self.wan is not None:
            self.wan.part()
        elif self.backend == "gloo":
            with contextlib.suppress(PeerLostError):
                self.gather(torch.zeros(1))

    def adopt(self) -> Membership:
        """Go on with the ranks that are left, after MembershipChangedError, which only `wan` raises."""
        assert self.wan is not None
        return self.wan.adopt()

    def bound_silence(self, seconds: float) -> None:
        """From now on a collective in which a peer sends nothing for that long ends with PeerLostError."""
        if self.wan is not None:
            self.wan.patience_s = seconds
        bound_silence(seconds)


def bound_silence(seconds: float, group: dist.ProcessGroup | None = None) -> None:
    """As `Group.bound_silence`, of any group."""
    bound = timedelta(seconds=seconds)
    if hasattr(dist, "set_timeout"):
        dist.set_timeout(bound, group)
    else:  # torch before 2.15
        dist.distributed_c10d._set_pg_timeout(bound, group)


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


def all_reduce(values: torch.Tensor, num_exact: int = 0, name: Hashable = None) -> Work:
    """Torch's own sum over the default group, in place; it rounds nothing. Raises PeerLostError, also from `wait`."""
    with lost_peers():
        return _TorchWork(dist.all_reduce(values, async_op=True))


@dataclass(frozen=True, slots=True)
class _TorchWork:
    """None stands for work that torch has done at once."""

    under_way: dist.Work | None

    def wait(self) -> None:
        if self.under_way is not None:
            with lost_peers():
                self.under_way.wait()


@contextlib.contextmanager
def lost_peers() -> Iterator[None]:
    """Say that a peer is gone where torch says RuntimeError."""
    try:
        yield
    except HulkError:
        raise
    except RuntimeError as error:
        raise PeerLostError(str(error).partition("\n")[0]) from error


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
    dist.init_process_group(
        backend, store=scoped, rank=environment.rank, world_size=environment.world_size, timeout=timeout
    )


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
                late = f"rank 0 at {address[0]}:{address[1]} did not answer within {environment.rendezvous_s:g} s"
                raise PeerLostError(f"{late}: {error}") from error
            time.sleep(RETRY_S)
        else:
            return


def introduce(environment: Environment, backend: str, chosen: torch.device) -> Group:
    """First collective: every rank learns every rank's address."""
    alone = Group(environment.rank, environment.world_size, backend, chosen, {})
    own = torch.frombuffer(bytearray(_own_address(environment).packed), dtype=torch.uint8)
    rows = alone.gather(own)
    peers = {rank: IPv6Address(bytes(row.tolist())) for rank, row in enumerate(rows) if rank != environment.rank}
    return Group(environment.rank, environment.world_size, backend, chosen, peers)


def _own_address(environment: Environment) -> IPv6Address:
    """The address from which this host reaches rank 0; a connected UDP socket shows it without sending anything."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        environment.master_address, environment.master_port, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, protocol) as view:
        view.connect(address)
        return tcp_info.canonical(view.getsockname()[0])
