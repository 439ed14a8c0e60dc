"""Actions of one rank in one step -> what they do to values: run blocks, hand on what they give out."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from hulk_runtime.collective.process_group import lost_peers_inside
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.pipeline.actions import Action, Receive, Run, Send, Sum
from hulk_runtime.pipeline.dataflow import Flows, Way
from hulk_runtime.pipeline.event_log import Event, Log
from hulk_runtime.pipeline.forward_backward import Passes
from hulk_runtime.pipeline.grid import Grid, Place
from hulk_runtime.pipeline.micro_batches import Values
from hulk_runtime.pipeline.shared_parameters import Sums
from hulk_runtime.pipeline.stages import Shapes
from hulk_runtime.pipeline.transfers import Transfers
from hulk_runtime.plan.pipeline_schedule import Turn


@dataclass(frozen=True, slots=True)
class Lines:
    """The ways between devices as messages between ranks."""

    flows: Flows
    grid: Grid
    place: Place
    shapes: Mapping[int, Shapes]
    transfers: Transfers
    device: torch.device

    def num_bytes(self, way: Way, num_samples: int) -> int:
        """Of a message."""
        return sum(shape.num_bytes(num_samples) for shape in self.shapes_on(way))

    def post(self, receive: Receive, num_samples: int) -> None:
        """Begin to receive, where that was not done before."""
        if self.transfers.is_posted(receive):
            return
        buffers = tuple(shape.empty(num_samples, self.device) for shape in self.shapes_on(receive.way))
        self.transfers.post(receive, buffers, self._rank(receive.source), self._tag(receive.way, receive.micro_batch))

    def send(self, send: Send, values: Values) -> None:
        """Begin to send. Raises ConfigurationError where values are not as they were for the first sample."""
        for value, shape in zip(values, self.shapes_on(send.way), strict=True):
            if (tuple(value.shape[1:]), value.dtype) != (shape.rest, shape.dtype):
                name = self.flows.schedule.blocks[send.way.source].name
                raise ConfigurationError(
                    f"block {name} gives out {tuple(value.shape[1:])} of {value.dtype} for each sample of micro-batch "
                    f"{send.micro_batch}, and gave {shape.rest} of {shape.dtype} before: all samples must be alike"
                )
        self.transfers.send(send, values, self._rank(send.target), self._tag(send.way, send.micro_batch))

    def shapes_on(self, way: Way) -> Shapes:
        """Of outputs, or of their gradients: only floating-point numbers have some."""
        blocks = self.flows.schedule.blocks
        if blocks[way.source].kind == "forward":
            return self.shapes[way.source]
        return tuple(shape for shape in self.shapes[blocks[way.target].forward] if shape.dtype.is_floating_point)

    def _rank(self, device: int) -> int:
        return self.grid.rank(replace(self.place, device=device))

    def _tag(self, way: Way, micro_batch: int) -> int:
        """The first of as many as any message has tensors."""
        width = max(map(len, self.shapes.values()))
        return (self.flows.numbers[way] * self.flows.schedule.num_micro_batches + micro_batch) * width


@dataclass(frozen=True, slots=True)
class ActionRunner:
    """One step. `there` is what this rank has made and not yet used or sent, by way and micro-batch."""

    flows: Flows
    passes: Passes
    lines: Lines
    sums: Sums
    log: Log
    there: dict[tuple[Way, int], Values] = field(default_factory=dict)
    uses: dict[tuple[Way, int], int] = field(default_factory=dict)

    def do(self, action: Action) -> None:
        """Carry out one. Raises PeerLostError."""
        match action:
            case Receive(way, m, _):
                self.lines.post(action, len(self.passes.samples((way.target, m))))
            case Send(way, m, _):
                self.lines.send(action, self._used(way, m))
            case Run(block, m):
                self._run((block, m))
            case Sum(shared):
                self.sums.begin(shared)

    def _run(self, turn: Turn) -> None:
        taken = [self._take(way, turn[1]) for way in self.flows.ways_into[turn[0]]]
        start_s = time.perf_counter()
        with lost_peers_inside():
            self._compute(turn, taken)
        self.log.events.append(Event("run", *turn, start_s, time.perf_counter()))

    def _compute(self, turn: Turn, taken: Sequence[Values]) -> None:
        match self.flows.schedule.blocks[turn[0]].kind:
            case "forward":
                outputs = self.passes.forward(turn, tuple(value for values in taken for value in values))
                for way in self.flows.ways_out_of[turn[0]]:
                    self._give(way, turn[1], outputs)
            case "backward":
                gradients = list(self.passes.backward(turn, taken))
                for way in self.flows.ways_out_of[turn[0]]:
                    num = len(self.lines.shapes_on(way))
                    self._give(way, turn[1], tuple(gradients[:num]))
                    del gradients[:num]
            case "weight":
                self.passes.weight(turn)

    def _take(self, way: Way, m: int) -> Values:
        source = self.flows.giver(way, self.lines.place.device)
        if source == self.lines.place.device:
            return self._used(way, m)
        start_s = time.perf_counter()
        values = self.lines.transfers.take(Receive(way, m, source))
        self.log.events.append(Event("wait", way, m, start_s, time.perf_counter(), source))
        return values

    def _give(self, way: Way, m: int, values: Values) -> None:
        """Keep for as many devices as take it here, this one among them."""
        device = self.lines.place.device
        is_own = device in self.flows.schedule.blocks[way.target].devices
        num_uses = len(self.flows.takers(way, device)) + int(is_own)
        if num_uses:
            self.there[way, m], self.uses[way, m] = values, num_uses

    def _used(self, way: Way, m: int) -> Values:
        """What is there; it goes with its last use."""
        self.uses[way, m] -= 1
        if self.uses[way, m]:
            return self.there[way, m]
        del self.uses[way, m]
        return self.there.pop((way, m))
