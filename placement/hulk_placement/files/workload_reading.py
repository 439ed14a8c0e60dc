"""A workload document, with the topology that it is for -> the planner's `Workload`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

from hulk_placement.files import text
from hulk_placement.files.constraints import allowed_machines, contradictions, layer_pins
from hulk_placement.files.moving import to_moving
from hulk_placement.files.part import MOST_LAYERS
from hulk_placement.files.profile import GroupedProfile, profiled_model
from hulk_placement.files.training_memory import to_kept, to_memory
from hulk_placement.files.wishes import affordable
from hulk_placement.files.workload import ModelPart, NcclPart, SyncPart, TrainablePart, WorkloadFile
from hulk_placement.model import Architecture, Model, Trainable, Transformer
from hulk_placement.model.architecture import AS_COUNTED
from hulk_placement.model.hugging_face import from_config
from hulk_placement.model.presets import preset
from hulk_placement.model.profile import parse_profile
from hulk_placement.model.transformer import architecture
from hulk_placement.nccl import Algorithm, Nccl, ProtocolName
from hulk_placement.restart import Moving
from hulk_placement.sync import DILOCO, WARMUP_PART, Rounds, Sync
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

MOST_PARAMETERS = 1 << 55
"""Bytes of so many still are whole numbers of 64 bits."""

OBJECTIVES = {"time": "time", "throughputPerMoney": "throughput-per-money"}


@dataclass(frozen=True, slots=True)
class ReadWorkload:
    """A workload, the optimizer steps of the whole training where they were said, and what a move takes.

    `warnings`: what was read, and may be meant otherwise.
    """

    workload: Workload
    num_steps: int | None = None
    moving: Moving = field(default_factory=Moving)
    warnings: tuple[str, ...] = ()


def read_workload(path: Path, topology: Topology) -> ReadWorkload:
    """The workload in a file. ValueError with every mistake in it; OSError where it is not, or a file that it names."""
    document = text.parse(WorkloadFile, text.read_values(path), str(path))
    return to_workload(document, topology, path.parent, str(path))


def to_workload(
    document: WorkloadFile, topology: Topology, folder: Path | None = None, where: str = "workload"
) -> ReadWorkload:
    """The workload that a document describes. ValueError names its mistakes; `where` is what it calls the document.

    Files that it names are looked for in `folder`.
    """
    try:
        model = _planned(_model(document, folder or Path()))
        mistakes = contradictions(document, model, topology)
    except ValueError as error:
        raise ValueError(f"{where}: model: {error}") from error
    if mistakes:
        raise text.mistaken(where, mistakes)
    moving = to_moving(document.moving)
    odd = chain(_unknown_store(moving, topology), _unpriced(document, topology), _undivided(document))
    warnings = tuple(f"{where}: {warning}" for warning in odd)
    try:
        return ReadWorkload(_workload(document, model, topology), document.training.steps, moving, warnings)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _unknown_store(moving: Moving, topology: Topology) -> Iterator[str]:
    """That the region of the checkpoints is nowhere in the topology: it was lost, or is mistyped."""
    regions = {machine.region for machine in topology.machines}.union(*topology.region_links)
    if moving.store_region is not None and moving.store_region not in regions:
        yield (
            f"moving.storeRegion: the topology has no {moving.store_region}; reading a checkpoint from there is priced "
            "as over a link of which nothing is known"
        )


def _undivided(document: WorkloadFile) -> Iterator[str]:
    """That what replicas divide counts whole, because their number is not known."""
    memory = document.training.memory
    if memory is not None and memory.sharded != "none" and document.parallelism.data is None:
        yield (
            f"training.memory.sharded: {memory.sharded} count whole, as if each replica kept them, until "
            "parallelism.data says how many replicas divide them"
        )


def _unpriced(document: WorkloadFile, topology: Topology) -> Iterator[str]:
    """That a wish about money leaves machines out."""
    allowed = allowed_machines(document.constraints, topology)
    priced = {machine.name for machine in affordable(document, allowed)}
    left_out = [machine.name for machine in allowed if machine.name not in priced]
    if left_out:
        more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
        names = f"{', '.join(left_out[:3])}{more}"
        yield f"machines without a price (0 counts as none) are left out where prices decide: {names}"


def _workload(document: WorkloadFile, model: Model, topology: Topology) -> Workload:
    training, workers, degrees, asked = document.training, document.workers, document.parallelism, document.constraints
    each = workers.accelerators_per_worker
    machines = affordable(document, allowed_machines(asked, topology))
    candidates = {machine.name: machine.num_accelerators // each for machine in machines}
    return Workload(
        key=document.name,
        model=model,
        global_batch=training.global_batch,
        candidates=candidates,
        min_workers=workers.min,
        max_workers=workers.max or max(workers.min, sum(candidates.values())),
        accelerators_per_worker=each,
        priority=document.priority,
        micro_batch=training.micro_batch,
        precision=training.precision,
        optimizer=training.optimizer,
        data=degrees.data,
        pipeline=degrees.pipeline,
        tensor=degrees.tensor,
        shard=degrees.shard,
        schedule=degrees.schedule,
        shares=training.shares,
        recompute=training.recompute,
        objective=OBJECTIVES[document.objective],
        max_price_per_hour=asked.max_price_per_hour,
        allow_unknown_links=asked.allow_unknown_links,
        pins=asked.worker_machines or (),
        layer_pins=layer_pins(asked, model),
        regions=asked.allowed_regions or (),
        flops_per_s={speed.machine: speed.flops_per_second for speed in document.measured_speeds},
        measured_micro_batch={
            speed.machine: speed.micro_batch for speed in document.measured_speeds if speed.micro_batch is not None
        },
        likely_flops_per_s={speed.machine: speed.flops_per_second for speed in document.likely_speeds},
        sync=_sync(document.sync, training.steps),
        memory=to_memory(training.memory),
        stage_transport=training.stage_transport,
        nccl=_nccl(document.nccl),
        optimizer_s=training.optimizer_seconds,
        step_overhead_s=training.step_overhead_seconds,
        end_collectives=training.small_all_reduces,
    )


def _nccl(asked: NcclPart) -> Nccl:
    return Nccl(
        num_channels=asked.channels,
        buffer_bytes=asked.buffer_bytes,
        num_sockets=asked.sockets_per_channel,
        window_bytes=asked.window_bytes,
        algorithm=cast("Algorithm | None", asked.algorithm),
        protocol=cast("ProtocolName | None", asked.protocol),
    )


def _sync(asked: SyncPart, num_steps: int | None) -> Sync:
    return Sync(
        asked.mode,
        Sync().inner_steps if asked.inner_steps is None else asked.inner_steps,
        compression="none" if asked.compression == "auto" else asked.compression,
        on_region_loss=asked.on_region_loss,
        fixed_shares=asked.fixed_shares,
        encryption=asked.encryption,
        rounds=_rounds(asked, num_steps) if asked.mode == "local" else DILOCO,
    )


def _rounds(asked: SyncPart, num_steps: int | None) -> Rounds:
    return Rounds(
        fragments=asked.fragments,
        delay_steps=asked.delay_steps,
        warmup_steps=(num_steps or 0) // WARMUP_PART if asked.warmup_steps is None else asked.warmup_steps,
        any_precision=asked.compression == "auto",
    )


def _model(document: WorkloadFile, folder: Path) -> Model:
    asked, precision, kept = document.model, document.training.precision, to_kept(document.training.memory)
    trainable = _trainable(asked.trainable)
    if asked.profile is not None or asked.profile_file is not None:
        if kept != AS_COUNTED:
            raise ValueError(
                "training.memory: dropout, bytesPerScore and bytesPerLogit exclude a profile, whose activationBytes "
                "have them"
            )
        measured = profiled_model(asked.profile) if asked.profile else _profile_in(folder / (asked.profile_file or ""))
        measured = measured.at_length(asked.sequence_length) if asked.sequence_length else measured
        return measured if trainable.is_all else measured.training(trainable, precision)
    described = _described(asked, folder)
    counted = architecture(described) if isinstance(described, Transformer) else described
    return Model.of(replace(counted, kept=kept), precision, trainable)


def _planned(model: Model) -> Model:
    """The model. ValueError where it has more of something than is planned."""
    for num, most, what in (
        (model.num_layers, MOST_LAYERS, "layers"),
        (model.num_parameters, MOST_PARAMETERS, "parameters"),
    ):
        if num > most:
            raise ValueError(f"{num:,} {what}: at most {most:,} are planned")
    return model


def _described(asked: ModelPart, folder: Path) -> Transformer | Architecture:
    if asked.preset is not None:
        return preset(asked.preset, asked.sequence_length)
    if asked.transformer is not None:
        shape = asked.transformer
        return Transformer(
            shape.layers,
            shape.hidden,
            shape.heads,
            asked.sequence_length or shape.sequence_length,
            shape.vocabulary,
            shape.feed_forward or 0,
        )
    config = asked.hugging_face if asked.config_file is None else _map_in(folder / asked.config_file)
    length = {} if asked.sequence_length is None else {"sequence_length": asked.sequence_length}
    return from_config({**(config or {}), **length})


def _trainable(asked: TrainablePart | None) -> Trainable:
    return Trainable() if asked is None else Trainable(asked.share or 1.0, asked.parameters or ())


def _profile_in(path: Path) -> Model:
    values = _map_in(path)
    layers = values.get("layers")
    if isinstance(layers, list) and layers and isinstance(layers[0], dict) and "flopsPerSequence" in layers[0]:
        return parse_profile(values)  # the older form
    return profiled_model(text.parse(GroupedProfile, values, str(path)))


def _map_in(path: Path) -> dict[str, Any]:
    values = text.read_values(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a map of keys, found a {type(values).__name__}")
    return values
