"""What ranks tell one another about checkpoints, beside the training's own groups; one process alone tells itself."""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch.distributed as dist

from hulk_runtime import names
from hulk_runtime.collective.process_group import lost_peers
from hulk_runtime.errors import ConfigurationError

WRITE_TIMEOUT: Final = timedelta(hours=2)
"""For a rank whose store is slow; one that is lost closes its connections."""
T = TypeVar("T")


class Ranks:
    """Some of the ranks, of which this is one; `None`: all."""

    def __init__(self, ranks: Sequence[int] | None = None) -> None:
        self.group: dist.ProcessGroup | None = None
        if dist.is_initialized():
            with lost_peers():
                made = dist.new_group(ranks, timeout=WRITE_TIMEOUT, backend="gloo", use_local_synchronization=True)
            assert isinstance(made, dist.ProcessGroup)
            self.group = made
        elif int(os.environ.get(names.ENV_WORLD_SIZE, "1")) > 1:
            raise ConfigurationError(
                f"{names.ENV_WORLD_SIZE}={os.environ[names.ENV_WORLD_SIZE]}, and torch.distributed is not initialized: "
                "call init_process_group, or make the model's device mesh, before hulk.Checkpointer"
            )

    @property
    def number(self) -> int:
        """This rank's place among them."""
        return 0 if self.group is None else dist.get_rank(self.group)

    def all(self, mine: T) -> list[T]:
        """What each of them says, in their order. Raises PeerLostError."""
        if self.group is None:
            return [mine]
        found: list[T] = [mine] * dist.get_world_size(self.group)
        with lost_peers():
            dist.all_gather_object(found, mine, group=self.group)
        return found

    def send(self, rank: int, message: object) -> None:
        """To one of all ranks, which receives it. Raises PeerLostError."""
        with lost_peers():
            dist.send_object_list([message], rank, group=self.group)

    def receive(self, rank: int) -> Any:
        """What one of all ranks sends. Raises PeerLostError."""
        found: list[Any] = [None]
        with lost_peers():
            dist.recv_object_list(found, rank, group=self.group)
        return found[0]
