"""What a move from one plan to another costs: named seconds, the bytes that go over the links, and their sum.

What is done, one after the other: the ranks agree on a step to stop at and save it; new machines get the image; pods
and processes start; the ranks find each other; rank 0 reads the checkpoint and hands it on to every other machine; the
first step warms up; steps since the last checkpoint are made again, where there was no time to save one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields

from hulk_placement.model import OPTIMIZER_BYTES_PER_PARAMETER
from hulk_placement.model.layer import BYTES_PER_FP32
from hulk_placement.plan import Plan
from hulk_placement.topology import Pair, Topology, is_amount
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Restart:
    """Seconds of a restart, apart from the checkpoint; assumptions where nobody measured them.

    `image_s` where a machine has not run the job before. `first_step_s`: what the first steps take more than others.
    """

    stop_s: float = 3.0
    image_s: float = 60.0
    start_s: float = 15.0
    rendezvous_s: float = 5.0
    first_step_s: float = 5.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not is_amount(getattr(self, field.name)):
                raise ValueError(f"restart: {field.name} {getattr(self, field.name)} must be >= 0 and finite")


@dataclass(frozen=True, slots=True)
class Moving:
    """What is known of a move beside the plans.

    `checkpoint_bytes` None: by the model, parameters and optimizer state. `store_region` is where checkpoints are kept;
    None: unknown, then reading one costs nothing and only handing it on does. `repeated_steps` are made again after the
    move: steps since the last checkpoint, or 0 where the ranks save before they stop.
    """

    restart: Restart = Restart()
    checkpoint_bytes: int | None = None
    store_region: str | None = None
    repeated_steps: float = 0.0

    def __post_init__(self) -> None:
        if self.checkpoint_bytes is not None and self.checkpoint_bytes < 0:
            raise ValueError(f"moving: a checkpoint of {self.checkpoint_bytes} bytes must be >= 0")
        if not is_amount(self.repeated_steps):
            raise ValueError(f"moving: {self.repeated_steps} repeated steps must be >= 0 and finite")


@dataclass(frozen=True, slots=True)
class MoveCost:
    """What a move takes, in seconds by part, and the bytes of the checkpoint that go over links between machines."""

    stop_s: float
    image_s: float
    start_s: float
    rendezvous_s: float
    read_s: float
    hand_on_s: float
    first_step_s: float
    repeat_s: float
    sent_bytes: int

    @property
    def seconds(self) -> float:
        """All parts one after the other."""
        return sum(seconds for _, seconds in self.parts())

    def parts(self) -> tuple[tuple[str, float], ...]:
        """The seconds by what they are spent on."""
        return (
            ("stop and save", self.stop_s),
            ("image on new machines", self.image_s),
            ("start of pods and processes", self.start_s),
            ("rendezvous", self.rendezvous_s),
            ("checkpoint read", self.read_s),
            ("checkpoint handed on", self.hand_on_s),
            ("first step", self.first_step_s),
            ("steps made again", self.repeat_s),
        )


def checkpoint_bytes(workload: Workload) -> int:
    """Bytes of a checkpoint: parameters, and what the optimizer keeps of each."""
    each = BYTES_PER_FP32 + OPTIMIZER_BYTES_PER_PARAMETER[workload.optimizer]
    return workload.model.num_parameters * each


def move_cost(old: Plan, new: Plan, workload: Workload, topology: Topology, moving: Moving) -> MoveCost:
    """The cost of a move from one plan to another; `new` is predicted, and all its machines are in the topology.

    A machine that is not there any more saves nothing: it neither stops in order nor has an image.
    """
    names = {machine.name for machine in topology.machines}
    is_whole = names.issuperset(old.accelerators())
    is_new = bool(new.accelerators().keys() - old.accelerators().keys())
    restart = moving.restart
    size = checkpoint_bytes(workload) if moving.checkpoint_bytes is None else moving.checkpoint_bytes
    first = new.machine(0, 0)
    others = _parts(new, workload, size, first)
    return MoveCost(
        stop_s=restart.stop_s if is_whole else 0.0,
        image_s=restart.image_s if is_new else 0.0,
        start_s=restart.start_s,
        rendezvous_s=restart.rendezvous_s,
        read_s=_read_s(size, moving.store_region, first, topology),
        hand_on_s=_hand_on_s(others, first, topology),
        first_step_s=restart.first_step_s,
        repeat_s=moving.repeated_steps * new.prediction.step_s,
        sent_bytes=sum(others.values()),
    )


def _parts(plan: Plan, workload: Workload, size: int, first: str) -> Counter[str]:
    """Bytes of the checkpoint that each machine but the first needs: those of the stages that it has, once each."""
    layers = workload.model.layers
    total = max(1, sum(layer.num_parameters for layer in layers))
    ends = (*plan.stages[1:], len(layers))
    held = {(plan.machine(r, s), s) for r in range(plan.layout.data) for s in range(plan.layout.pipeline)}
    found: Counter[str] = Counter()
    for machine, stage in held:
        if machine != first:
            mine = sum(layer.num_parameters for layer in layers[plan.stages[stage] : ends[stage]])
            found[machine] += round(size * mine / total)
    return found


def _read_s(size: int, store_region: str | None, first: str, topology: Topology) -> float:
    if store_region is None:
        return 0.0
    return topology.region_link(store_region, topology.machine(first).region).message_s(size)


def _hand_on_s(parts: Counter[str], first: str, topology: Topology) -> float:
    """Seconds until every machine has its part: by the busiest of the links between regions, and of the uplinks.

    Machines of one region share the link to it; a machine with a link of its own inside its region takes what that
    takes.
    """
    here = topology.machine(first).region
    between: Counter[Pair] = Counter()
    longest_s, latency_s = 0.0, 0.0
    for machine, num_bytes in parts.items():
        link = topology.link(first, machine)
        latency_s = max(latency_s, link.rtt_s / 2)
        longest_s = max(longest_s, num_bytes / link.bandwidth_bytes_per_s)
        if link.shared is not None:
            between[link.shared] += num_bytes
    for pair, num_bytes in between.items():
        longest_s = max(longest_s, num_bytes / topology.region_link(*pair).bandwidth_bytes_per_s)
    leaves = sum(between.values())
    if leaves and here in topology.uplinks:
        longest_s = max(longest_s, leaves / topology.uplinks[here])
    return latency_s + longest_s
