"""The connected world as one rank uses it: sums, gathers and broadcasts, whose failures say that a peer is lost."""

import contextlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv6Address
from typing import Protocol

import torch
import torch.distributed as dist

from hulk_runtime.collective.staging import AllReduce
from hulk_runtime.collective.wire.membership import Membership
from hulk_runtime.errors import HulkError, PeerLostError


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
    process_group: dist.ProcessGroup | None = None
    """Torch's group of these ranks; None: of the whole world."""

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes checkpoints and speaks for the job."""
        return self.rank == 0

    def all_reduce(self, values: torch.Tensor, num_exact: int = 0, name: Hashable = None) -> Work:
        """Begin to sum `values` over all ranks, in place. All ranks must begin their sums in the same order.

        The last `num_exact` values are not to be rounded, where the plan compresses on its way what may be. What that
        takes from values of some `name` is added to the next ones of that name.
        """
        if self.wan is not None:
            return self.wan.all_reduce(values, num_exact, name)
        return all_reduce(values, group=self.process_group)

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """Every rank's one-dimensional `values`, one row per rank, on all ranks. Shape (world_size, n)."""
        mine = values.to(self.device)
        everyone = torch.empty(self.world_size * mine.numel(), dtype=mine.dtype, device=self.device)
        with lost_peers():
            dist.all_gather_into_tensor(everyone, mine, group=self.process_group)
        return everyone.view(self.world_size, mine.numel()).cpu()

    def exchange(self, values: torch.Tensor) -> torch.Tensor:
        """As `gather`, directly between all ranks: it takes one way over the longest link, and sends more."""
        mine = values.to(self.device)
        everyone = torch.empty(self.world_size * mine.numel(), dtype=mine.dtype, device=self.device)
        with lost_peers():
            dist.all_to_all_single(everyone, mine.repeat(self.world_size))
        return everyone.view(self.world_size, mine.numel()).cpu()

    def holds_on_all(self, is_so: bool) -> bool:
        """Whether something holds on all ranks."""
        if self.world_size == 1:
            return is_so
        flag = torch.tensor(int(is_so), device=self.device)
        with lost_peers():
            dist.all_reduce(flag, dist.ReduceOp.MIN, self.process_group)
        return bool(flag)

    def broadcast(self, values: torch.Tensor) -> None:
        """Overwrite `values` with rank 0's, in place; where bytes between regions are encrypted, float32 ones are."""
        if self.wan is not None and self.wan.is_encrypted and values.dtype is torch.float32:
            self.wan.broadcast(values)
            return
        carrier = values.to(self.device)
        with lost_peers():
            dist.broadcast(carrier, group=self.process_group, group_src=0)
        values.copy_(carrier)

    def part(self) -> None:
        """Wait for all ranks but lost ones: gloo closes a rank's connections as soon as their other ends leave.

        NCCL does not, and would wait for lost ones. Raises MembershipChangedError, which only `wan` does.
        """
        if self.wan is not None:
            self.wan.part()
        elif self.backend == "gloo":
            with contextlib.suppress(PeerLostError):
                self.gather(torch.zeros(1, dtype=torch.float32))

    def adopt(self) -> Membership:
        """Go on with the ranks that are left, after MembershipChangedError, which only `wan` raises."""
        assert self.wan is not None
        return self.wan.adopt()

    def set_timeout(self, seconds: float) -> None:
        """From now on a collective in which a peer sends nothing for that long ends with PeerLostError."""
        if self.wan is not None:
            self.wan.patience_s = seconds
        set_timeout(seconds, self.process_group)


def set_timeout(seconds: float, group: dist.ProcessGroup | None = None) -> None:
    """As `Group.set_timeout`, of any group."""
    bound = timedelta(seconds=seconds)
    if hasattr(dist, "set_timeout"):
        dist.set_timeout(bound, group)
    else:  # torch before 2.15
        dist.distributed_c10d._set_pg_timeout(bound, group)


def timeout_s(group: dist.ProcessGroup | None, device: torch.device) -> float:
    """For how long torch's own collectives of a group, None: the world, wait for a rank."""
    asked = group or dist.group.WORLD
    assert asked is not None
    timeout: timedelta = asked._get_backend(device).options._timeout
    return timeout.total_seconds()


def all_reduce(
    values: torch.Tensor, num_exact: int = 0, name: Hashable = None, group: dist.ProcessGroup | None = None
) -> Work:
    """Torch's own sum over a group, None: the world, in place. Raises PeerLostError, also from `wait`."""
    with lost_peers():
        return _TorchWork(dist.all_reduce(values, group=group, async_op=True))


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


@contextlib.contextmanager
def lost_peers_inside() -> Iterator[None]:
    """As `lost_peers`, around a model that has collectives inside: its own errors stay what they are."""
    try:
        yield
    except HulkError:
        raise
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo/transport" in str(error):
            raise PeerLostError(str(error).partition("\n")[0]) from error
        raise
