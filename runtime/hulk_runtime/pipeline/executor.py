"""A schedule, a grid of ranks and a model -> steps: every rank carries out its own list of actions.

    schedule = document.read(json.loads(text))
    pipeline = Pipeline(schedule, Grid(num_replicas=1, num_devices=4), layers(my_layers, cut(len(my_layers), "0123")))
    optimizer = torch.optim.AdamW(pipeline.parameters())
    for step in range(100):
        result = pipeline.step(Tensors(inputs, targets, mean_loss), pipeline.even_shares(len(inputs)))
        optimizer.step()

The loss and the gradients of a step are those of the mean loss over the global batch, as one process would have them.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from hulk_runtime.collective.process_group import lost_peers, set_timeout
from hulk_runtime.errors import PlanError
from hulk_runtime.pipeline import actions, checkpoint, micro_batches, shared_parameters, stages
from hulk_runtime.pipeline.action_runner import ActionRunner, Lines
from hulk_runtime.pipeline.actions import Action, Receive, Shared
from hulk_runtime.pipeline.dataflow import Flows
from hulk_runtime.pipeline.event_log import Event, Log
from hulk_runtime.pipeline.forward_backward import Passes
from hulk_runtime.pipeline.grid import Grid, make_groups
from hulk_runtime.pipeline.isolated_run import run_isolated
from hulk_runtime.pipeline.layer_shards import shard_stage
from hulk_runtime.pipeline.micro_batches import Batch, Values
from hulk_runtime.pipeline.shared_parameters import Sums, Tie
from hulk_runtime.pipeline.stages import Model, Part, Shapes
from hulk_runtime.pipeline.transfers import Transfers
from hulk_runtime.plan.pipeline_schedule import Schedule

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Key = TypeVar("Key")
SILENCE_S: Final = 600.0
MESH: Final = ("cell", "dp_shard", "tp")
POSTED_BYTES: Final = 64 << 20
"""Of receives of one kind that a rank posts before the blocks that need them."""


@dataclass(frozen=True, slots=True)
class Result:
    """Of one step: the mean loss over the global batch, the same on all ranks, and what this rank did.

    The loss of `compute` is what this rank adds to that of all.
    """

    loss: float
    log: Log


class Pipeline:
    """One rank's part. All ranks must make it at the same time, from the same arguments.

    `lines_apart` gives each direction between two devices a group of its own, as NCCL needs them. In
    the groups that it makes a peer is lost that sends nothing for `silence_s`; in the default group that bound is the
    caller's, who has made it. Shards of a grid gather layers in `precision`, None: that of the parameters.

    Raises PlanError where the schedule would never end, ConfigurationError where the model does not fit it, and
    PeerLostError where a peer is gone.
    """

    def __init__(
        self,
        schedule: Schedule,
        grid: Grid,
        model: Model,
        ties: Sequence[Tie] = (),
        device: str = "cpu",
        lines_apart: bool = False,
        silence_s: float = SILENCE_S,
        precision: torch.dtype | None = None,
    ) -> None:
        if grid.num_shards > 1 and any(block.kind == "weight" for block in schedule.blocks):
            raise PlanError(
                f"backward passes in two halves, and {grid.num_shards} shards, which are whole in one alone"
            )
        if (grid.num_devices, grid.num_ranks) != (schedule.num_devices, dist.get_world_size()):
            raise PlanError(
                f"grid of {grid.num_devices} devices and {grid.num_ranks} ranks, "
                f"schedule of {schedule.num_devices} devices, world of {dist.get_world_size()} ranks"
            )
        self.schedule, self.grid = schedule, grid
        self.place = grid.place(dist.get_rank())
        self._device, self._silence_s = torch.device(device), silence_s
        self._flows = Flows(schedule)
        shared = shared_parameters.shared(self._flows, grid.num_replicas, ties) if schedule.is_training else []
        self._shared = shared
        self._shares: list[list[int]] = []  # for which receives are posted as early as memory allows
        self._actions: tuple[Action, ...] = actions.actions(self._flows, shared)[self.place.device]
        self._summing = self._own_groups({n: self._who_sum(one) for n, one in enumerate(shared)})
        self._teams = self._own_groups(self._all_teams())
        self.inside = self._own_groups({"cell": grid.cells()}).get("cell")
        self._mesh = self._make_mesh()
        self.modules = self._make_modules(model, precision)
        parameters = shared_parameters.parameters_of(shared, ties, self.modules, self.place.device)
        after_others = {n for n in parameters if shared[n].of_two and grid.num_replicas > 1}
        self._sums = Sums(parameters, self._summing, frozenset(after_others))
        self._lines = self._own_groups(self._all_lines()) if dist.get_backend() == "nccl" or lines_apart else {}
        self._transfers = Transfers(self._lines)
        self._open_lines()
        self._shapes: dict[int, Shapes] | None = None
        self._met_s = 0.0

    def parameters(self) -> Iterator[nn.Parameter]:
        """Of all stages on this rank, each once, also where stages have one object."""
        yield from (parameter for _, parameter in self.named_parameters())

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Those of `parameters`, in the same order, by the names under which they are saved."""
        devices = {block.stage: block.devices for block in self.schedule.blocks if self.place.device in block.devices}
        seen: set[nn.Parameter] = set()
        for stage, module in self.modules.items():
            shard = devices[stage].index(self.place.device)
            for name, parameter in module.named_parameters():
                if parameter in seen:
                    continue
                seen.add(parameter)
                is_of_list = isinstance(module, stages.Layers)
                yield checkpoint.name_of(stage, shard, len(devices[stage]), name, is_of_list), parameter

    def set_timeout(self, seconds: float) -> None:
        """From now on a peer is lost that does nothing for that long of what this rank waits for."""
        self._transfers.patience = self._sums.patience = timedelta(seconds=seconds)
        own = [] if self._mesh is None else [self._mesh.get_group(name) for name in MESH[1:]]
        own += [self.inside] if self.inside is not None else []
        for group in (*self._summing.values(), *self._teams.values(), *self._lines.values(), *own):
            set_timeout(seconds, group)

    @property
    def patience(self) -> timedelta | None:
        """How long a peer may do nothing; None: as long as its group has."""
        return self._transfers.patience

    def close(self) -> None:
        """Leave its groups, together with all ranks; the default group stays."""
        self._transfers.close()
        own = [self.inside] if self.inside is not None else []
        for group in (*self._summing.values(), *self._teams.values(), *self._lines.values(), *own):
            dist.destroy_process_group(group)

    def even_shares(self, num_samples: int) -> list[list[int]]:
        """A global batch over replicas and micro-batches."""
        return micro_batches.even_shares(num_samples, self.grid.num_replicas, self.schedule.num_micro_batches)

    def step(self, of: Batch, shares: Sequence[Sequence[int]]) -> Result:
        """Loss and gradients of a global batch; `shares` are the samples of each micro-batch of each replica.

        Gradients of the step before are gone. Raises PeerLostError, and PlanError where the schedule has none.
        """
        met_s = self._met_s
        result = self.compute(of, shares)
        start_s = time.perf_counter()
        loss = self._total_loss(result.loss)
        self.met()
        result.log.events.append(Event("sum", None, 0, start_s - met_s, self._met_s - met_s))
        return Result(loss, result.log)

    def compute(
        self, of: Batch, shares: Sequence[Sequence[int]], computed: Callable[[Result], None] = lambda _: None
    ) -> Result:
        """As `step`, with what this rank's own samples add to the loss: for those who meet in a way of their own.

        `computed` is told as soon as that is known, while gradients are still summed. They say when they have `met`,
        from which the next step's log counts.
        """
        if not self.schedule.is_training:
            raise PlanError("the schedule has forward blocks only: `infer` runs it, there is nothing to train")
        for parameter in self.parameters():
            parameter.grad = None
        passes, log = self._carry_out(of, shares)
        computed(Result(self._own_loss(passes), log))
        start_s = time.perf_counter()
        self._sums.finish()
        log.events.append(Event("sum", None, 0, start_s, time.perf_counter()))
        log.events.extend(self._transfers.finish())
        return Result(self._own_loss(passes), log.since(self._met_s))

    def met(self) -> None:
        """All ranks are together now."""
        self._met_s = time.perf_counter()

    def alone(self, of: Batch, shares: Sequence[Sequence[int]]) -> float:
        """Seconds of this rank's blocks in a step, without any other rank; gradients are those of no batch.

        What modules note of batches, as norms do, is as it was before. All ranks must call it the first
        time together. Raises PeerLostError.
        """
        passes, shapes = self._passes(of, shares), self._learned(of)
        noted = [(buffer, buffer.clone()) for module in self.modules.values() for buffer in module.buffers()]
        start_s = time.perf_counter()
        run_isolated(self._flows, passes, shapes, self.place.device, self._device)
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start_s
        for buffer, before in noted:
            buffer.copy_(before)
        return seconds

    def infer(self, of: Batch, shares: Sequence[Sequence[int]]) -> list[tuple[range, Values]]:
        """What the last stages on this rank give out, by samples; the schedule has forward blocks only.

        Raises PeerLostError, and PlanError where it has others.
        """
        if self.schedule.is_training:
            raise PlanError("the schedule has backward blocks: `step` runs it, `infer` those without")
        passes, _ = self._carry_out(of, shares)
        self._transfers.finish()
        return [(passes.samples(turn), values) for turn, values in sorted(passes.results.items())]

    def gather(self, log: Log) -> list[Log]:
        """The logs of this replica's devices, on all ranks; only to look at a step, since it holds the ranks up."""
        logs: list[Log | None] = [None] * self.grid.num_ranks
        with lost_peers():
            dist.all_gather_object(logs, log)
        ranks = (self.grid.rank(replace(self.place, device=device)) for device in range(self.grid.num_devices))
        return [found for rank in ranks if (found := logs[rank]) is not None]

    def ahead(self, of: Batch, shares: Sequence[Sequence[int]]) -> None:
        """Get ready to receive what the next step, of these shares, begins with: its senders need not wait then.

        Raises PeerLostError.
        """
        passes, lines = self._passes(of, shares), self._lines_of(of, shares)
        for receive in takewhile(lambda action: isinstance(action, Receive), self._actions):
            assert isinstance(receive, Receive)
            lines.post(receive, len(passes.samples((receive.way.target, receive.micro_batch))))

    def _carry_out(self, of: Batch, shares: Sequence[Sequence[int]]) -> tuple[Passes, Log]:
        passes, lines = self._passes(of, shares), self._lines_of(of, shares)
        log = Log(self.place.device)
        self._sums.expect()
        carrying = ActionRunner(self._flows, passes, lines, self._sums, log)
        for action in self._actions:
            carrying.do(action)
        return passes, log

    def _lines_of(self, of: Batch, shares: Sequence[Sequence[int]]) -> Lines:
        lines = Lines(self._flows, self.grid, self.place, self._learned(of), self._transfers, self._device)
        if self._shares != shares and self._device.type == "cpu":  # on a GPU a posted receive keeps a kernel waiting
            num_samples = -(-max(map(max, shares)) // self.grid.num_shards)
            most = max((lines.num_bytes(way, num_samples) for way in self._flows.ways), default=1)
            ahead = max(actions.LEAST_AHEAD, POSTED_BYTES // max(1, most))
            self._actions = actions.actions(self._flows, self._shared, ahead)[self.place.device]
            self._shares = [list(share) for share in shares]
        return lines

    def _passes(self, of: Batch, shares: Sequence[Sequence[int]]) -> Passes:
        place, num_passes = self.place, len(self._flows.components)
        division = micro_batches.divide(shares, place.replica, num_passes, place.shard, self.grid.num_shards)
        if len(division.pieces) != self.schedule.num_micro_batches:
            raise PlanError(f"{len(division.pieces)} shares for {self.schedule.num_micro_batches} micro-batches")
        return Passes(self._flows, self.modules, of, division)

    def _learned(self, of: Batch) -> dict[int, Shapes]:
        """The shapes of what blocks give out: all ranks tell each other before their first step."""
        if self._shapes is None:
            self._shapes = stages.learn_shapes(self._flows, self.grid, self.modules, of, self._device)
            self.met()
        return self._shapes

    def _own_loss(self, passes: Passes) -> float:
        """Blocks on several devices, and tensor ranks, have the same loss on all, which counts once."""
        is_first = {block: self.schedule.blocks[block].devices[0] == self.place.device for block, _ in passes.losses}
        own = [loss for block, loss in passes.losses if is_first[block] and self.place.tensor == 0]
        return float(torch.stack(own).sum().double()) if own else 0.0

    def _total_loss(self, own: float) -> float:
        total = torch.tensor(own, dtype=torch.float64, device=self._device)
        with lost_peers():
            dist.all_reduce(total)
        return float(total)

    def _own_groups(self, wanted: Mapping[Key, Sequence[tuple[int, ...]]]) -> dict[Key, dist.ProcessGroup]:
        """This rank's group of each, where it is a member of one."""
        keys = [key for key, members in wanted.items() for _ in members]
        made = make_groups([ranks for members in wanted.values() for ranks in members], self._silence_s)
        return {keys[number]: group for number, group in made.items()}

    def _who_sum(self, one: Shared) -> list[tuple[int, ...]]:
        """The ranks of each group that sums what is shared."""
        if one.of_two:
            return self.grid.teams(tuple(one.stages))
        return self.grid.rings_of(list(one.stages))

    def _all_teams(self) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
        """Of all blocks that are on several devices: the ranks that compute one together."""
        teams = dict.fromkeys(block.devices for block in self.schedule.blocks if len(block.devices) > 1)
        return {devices: self.grid.teams(devices) for devices in teams}

    def _all_lines(self) -> dict[tuple[int, int], list[tuple[int, ...]]]:
        """Sender and receiver of all messages, as ranks."""
        pairs = dict.fromkeys(
            (device, taker)
            for way in self._flows.ways
            for device in self.schedule.blocks[way.source].devices
            for taker in self._flows.takers(way, device)
        )
        return {(ranks[0], ranks[1]): [ranks] for pair in pairs for ranks in self.grid.teams(pair)}

    def _open_lines(self) -> None:
        """Both ends of each, in one order on all ranks: NCCL connects two ranks when both first speak, and waits."""
        own = dist.get_rank()
        with lost_peers():
            for (sender, taker), group in self._lines.items():
                one = torch.zeros(1, device=self._device)
                begun = dist.isend(one, taker, group) if own == sender else dist.irecv(one, sender, group)
                assert begun is not None
                begun.wait()

    def _make_modules(self, model: Model, precision: torch.dtype | None) -> dict[str, nn.Module]:
        """Of the stages on this rank."""
        made: dict[str, nn.Module] = {}
        mesh = self._mesh["tp"] if self._mesh is not None and self.grid.num_tensor > 1 else None
        for block in self.schedule.blocks:
            if self.place.device in block.devices and block.stage not in made:
                shard = block.devices.index(self.place.device)
                part = Part(block.stage, shard, len(block.devices), self._teams.get(block.devices), mesh)
                made[block.stage] = model(part)
                if self._mesh is not None and self.grid.num_shards > 1:
                    shard_stage(made[block.stage], self._mesh["dp_shard"], precision)
                made[block.stage].to(self._device)
        return made

    def _make_mesh(self) -> "DeviceMesh | None":
        """Of cells of several ranks."""
        grid = self.grid
        if grid.width == 1:
            return None
        from torch.distributed.device_mesh import DeviceMesh

        ranks = torch.arange(grid.num_ranks).view(-1, grid.num_shards, grid.num_tensor)
        return DeviceMesh(self._device.type, ranks, mesh_dim_names=MESH)
