"""What a move from one plan to another costs: named seconds, the bytes that go over the links, and their sum.

What is done, one after the other: the ranks agree on a step to stop at and save it; new machines get the image; pods
and processes start; the ranks find each other; rank 0 reads the checkpoint and hands it on to every other machine, or,
without a store, every machine fetches the layers that it lacks from one that had them; the first step warms up; steps
since the last checkpoint are made again, where there was no time to save one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from hulk_placement.cost.drawn import Shared, drawn_on
from hulk_placement.model import OPTIMIZER_BYTES_PER_PARAMETER
from hulk_placement.model.layer import BYTES_PER_FP32
from hulk_placement.plan import Plan
from hulk_placement.restart import Moving
from hulk_placement.topology import Pair, Topology
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class MoveCost:
    """What a move takes, in seconds by part, and the bytes of the checkpoint that go over links between machines.

    `num_lost_layers`: of those that only machines had that are gone, while nothing says where checkpoints are kept.
    """

    stop_s: float
    image_s: float
    start_s: float
    rendezvous_s: float
    read_s: float
    hand_on_s: float
    first_step_s: float
    repeat_s: float
    sent_bytes: int
    num_lost_layers: int = 0

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
    """Bytes of a checkpoint: parameters, and what the optimizer keeps of trained ones; local SGD's outer velocity."""
    num_vectors = 1 + workload.sync.is_local
    each = num_vectors * BYTES_PER_FP32 + OPTIMIZER_BYTES_PER_PARAMETER[workload.optimizer]
    return round(workload.model.state_bytes(each))


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
    if moving.is_stored or moving.store_region is not None:
        sent, num_lost = _handed_on(new, workload, size, first), 0
    else:
        had = {name: layers for name, layers in _layers_of(old, workload).items() if name in names}
        sent = _fetched(had, new, workload, size, topology)
        num_lost = len(workload.model.layers) - len(set[int]().union(*had.values()))
    return MoveCost(
        stop_s=restart.stop_s if is_whole else 0.0,
        image_s=restart.image_s if is_new else 0.0,
        start_s=restart.start_s,
        rendezvous_s=restart.rendezvous_s,
        read_s=_read_s(size, moving.store_region, first, topology),
        hand_on_s=_sent_s(sent, topology),
        first_step_s=restart.first_step_s,
        repeat_s=moving.repeated_steps * new.prediction.step_s,
        sent_bytes=sum(sent.values()),
        num_lost_layers=num_lost,
    )


Sent = Counter[Pair]
"""Bytes of the checkpoint from one machine to another."""


def _handed_on(plan: Plan, workload: Workload, size: int, first: str) -> Sent:
    """Every machine but the first gets from that the stages that it has, once each."""
    layers = workload.model.layers
    total = max(1, sum(layer.num_parameters for layer in layers))
    ends = (*plan.stages[1:], len(layers))
    held = {(plan.machine(r, s), s) for r in range(plan.layout.data) for s in range(plan.layout.pipeline)}
    found: Sent = Counter()
    for machine, stage in held:
        if machine != first:
            mine = sum(layer.num_parameters for layer in layers[plan.stages[stage] : ends[stage]])
            found[first, machine] += round(size * mine / total)
    return found


def _fetched(had: Mapping[str, set[int]], new: Plan, workload: Workload, size: int, topology: Topology) -> Sent:
    """Every machine gets each layer that it lacks from the quickest to send it of those that `had` it and are left.

    What none of these had must have been saved somewhere: rank 0 has it, and hands it on.
    """
    layers = workload.model.layers
    total = max(1, sum(layer.num_parameters for layer in layers))
    sources = [tuple(name for name in sorted(had) if layer in had[name]) for layer in range(len(layers))]
    found: Sent = Counter()
    for machine, wanted in _layers_of(new, workload).items():
        lacking: Counter[tuple[str, ...]] = Counter()  # bytes, by who has them
        for layer in wanted - had.get(machine, set()):
            lacking[sources[layer] or (new.machine(0, 0),)] += layers[layer].num_parameters
        for names, num_parameters in lacking.items():
            num_bytes = round(size * num_parameters / total)
            sends_s = {name: topology.link(name, machine).one_flow_s(num_bytes) for name in names}
            source = min(names, key=sends_s.__getitem__)
            if source != machine:
                found[source, machine] += num_bytes
    return found


def _layers_of(plan: Plan, workload: Workload) -> dict[str, set[int]]:
    """The layers whose parameters each machine holds; those that a layer there shares with an earlier one, too."""
    layers = workload.model.layers
    found: dict[str, set[int]] = {}
    for stage, (first, last) in enumerate(pairwise([*plan.stages, len(layers)])):
        tied = {layer.tied_to for layer in layers[first:last] if layer.tied_to is not None}
        for replica in range(plan.layout.data):
            found.setdefault(plan.machine(replica, stage), set()).update(range(first, last), tied)
    return found


def _read_s(size: int, store_region: str | None, first: str, topology: Topology) -> float:
    if store_region is None:
        return 0.0
    return topology.region_link(store_region, topology.machine(first).region).message_s(size)


def _sent_s(sent: Sent, topology: Topology) -> float:
    """Seconds until all is there: by the busiest of the links between regions, of machines' own, and of the uplinks.

    What machines share is what their flows draw on (`drawn_on`).
    """
    leaving, entering, filled = Counter[str](), Counter[str](), Counter[Shared]()
    rates: dict[Shared, float] = {}
    longest_s, latency_s = 0.0, 0.0
    for pair, num_bytes in sent.items():
        link = topology.link(*pair)
        latency_s = max(latency_s, link.latency_s)
        longest_s = max(longest_s, num_bytes / link.one_flow_bytes_per_s)
        for shared, bytes_per_s in drawn_on(*pair, topology):
            rates[shared] = bytes_per_s
            filled[shared] += num_bytes
        if link.shared is not None:
            leaving[link.shared[0]] += num_bytes
            entering[link.shared[1]] += num_bytes
    longest_s = max([longest_s, *(num_bytes / rates[shared] for shared, num_bytes in filled.items())])
    for region, bytes_per_s in topology.uplinks.items():
        longest_s = max(longest_s, leaving[region] / bytes_per_s, entering[region] / bytes_per_s)
    return latency_s + longest_s
