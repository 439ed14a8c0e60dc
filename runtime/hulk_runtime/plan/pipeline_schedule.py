"""Reads the JSON of a schedule: blocks of one micro-batch, and in which order each device runs its own.

The planner writes it (docs/reference/schedule-files.md); a version that this runtime does not read is refused. What
holds of every schedule is checked here once, so that nothing behind has to: every device runs each of its blocks once
for each micro-batch, and every block that computes gradients is on the devices of the forward block that it is for.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Final, Literal

from hulk_runtime.errors import PlanError
from hulk_runtime.plan import document
from hulk_runtime.plan.document import FULL, DocumentError, Natural, Positive

READABLE: Final = (1,)

Turn = tuple[int, int]
"""A block and a micro-batch."""
WireTurn = tuple[Natural, Natural]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of every micro-batch, on all of `devices` at once, after the blocks numbered in `after`.

    `forward` is the block whose activations it needs: itself where it is a forward block.
    """

    name: str
    kind: Literal["forward", "backward", "weight"]
    stage: str
    devices: Annotated[tuple[Natural, ...], FULL]
    after: tuple[Natural, ...] = ()
    forward: Natural


@dataclass(frozen=True, kw_only=True)
class Order:
    """Turns of a device: some before, a round `times` times, each for micro-batches `step` later, some behind."""

    before: tuple[WireTurn, ...] = ()
    round: tuple[WireTurn, ...] = ()
    step: Positive = 1
    times: Positive = 1
    behind: tuple[WireTurn, ...] = ()

    @property
    def num_turns(self) -> int:
        """Of all, without writing them out."""
        return len(self.before) + self.times * len(self.round) + len(self.behind)

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """All, one after the other.

        >>> Order(before=((0, 0),), round=((0, 1), (1, 0)), times=2, behind=((1, 2),)).turns
        ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2))
        >>> Order(round=((0, 0), (0, 1), (1, 1), (1, 0)), step=2, times=2).turns
        ((0, 0), (0, 1), (1, 1), (1, 0), (0, 2), (0, 3), (1, 3), (1, 2))
        """
        rounds = ((block, m + k * self.step) for k in range(self.times) for block, m in self.round)
        return (*self.before, *rounds, *self.behind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What a pipeline computes, and in which order."""

    version: int
    num_devices: Positive
    num_micro_batches: Positive
    blocks: Annotated[tuple[Block, ...], FULL]
    orders: tuple[Order, ...]

    @property
    def is_training(self) -> bool:
        """Whether it has backward blocks."""
        return any(block.kind == "backward" for block in self.blocks)

    def words(self, turn: Turn) -> str:
        """A turn as messages name it."""
        return f"{self.blocks[turn[0]].name} of micro-batch {turn[1]}"

    def __post_init__(self) -> None:
        for block in self.blocks:
            self._check(block)
        self._check_kinds()
        if len(self.orders) != self.num_devices:
            raise ValueError(f"{len(self.orders)} orders for {self.num_devices} devices")
        for device, order in enumerate(self.orders):
            self._check_order(device, order)

    def _check(self, block: Block) -> None:
        if len(set(block.devices)) < len(block.devices) or max(block.devices) >= self.num_devices:
            raise ValueError(f"block {block.name}: devices {block.devices} of {self.num_devices}, each at most once")
        if max((block.forward, *block.after)) >= len(self.blocks):
            raise ValueError(
                f"block {block.name}: needs block {max((block.forward, *block.after))} of {len(self.blocks)}"
            )
        forward = self.blocks[block.forward]
        if forward.kind != "forward" or (block.kind == "forward" and forward is not block):
            raise ValueError(f"block {block.name}: block {forward.name} is not the forward block that it is for")
        if (block.stage, block.devices) != (forward.stage, forward.devices):
            raise ValueError(
                f"block {block.name} of stage {block.stage} on devices {block.devices}, "
                f"{forward.name} of stage {forward.stage} on {forward.devices}"
            )

    def _check_kinds(self) -> None:
        """All forward blocks have one backward block or none has; those of weights have one of inputs beside them."""
        num_of = Counter((block.forward, block.kind) for block in self.blocks)
        for number, block in enumerate(self.blocks):
            if block.kind != "forward":
                continue
            num_backward, num_weight = num_of[number, "backward"], num_of[number, "weight"]
            if num_backward != int(self.is_training) or num_weight > num_backward:
                raise ValueError(
                    f"block {block.name} has {num_backward} backward blocks and {num_weight} of weights: "
                    f"where there are any, each forward block has one backward block and at most one of weights"
                )

    def _check_order(self, device: int, order: Order) -> None:
        own = [number for number, block in enumerate(self.blocks) if device in block.devices]
        num_turns = len(own) * self.num_micro_batches
        if order.num_turns != num_turns:
            raise ValueError(
                f"device {device} has {order.num_turns} turns, its {len(own)} blocks and "
                f"{self.num_micro_batches} micro-batches need {num_turns}"
            )
        missing = {(block, m) for block in own for m in range(self.num_micro_batches)} - set(order.turns)
        if missing:
            raise ValueError(f"device {device} never runs {self.words(min(missing))}")


def read(content: Mapping[str, object]) -> Schedule:
    """Check a schedule's JSON values. Raises PlanError."""
    version = content.get("version")
    if type(version) is not int or version not in READABLE:  # JSON's true would pass for 1
        raise PlanError(f"schedule of version {version}, this runtime reads version {', '.join(map(str, READABLE))}")
    try:
        return document.read(Schedule, content)
    except DocumentError as error:
        raise PlanError(f"schedule: {error}") from error
