"""The planner's `Workload` -> the values of a workload document, which reads back to the very same one.

What only the operator knows (attempt, age, workers that are kept) is not in the document.
"""

from __future__ import annotations

from typing import Any

from hulk_placement.files.part import API_VERSION, plain
from hulk_placement.files.profile import profile_values
from hulk_placement.files.training_memory import memory_values
from hulk_placement.files.workload_reading import OBJECTIVES
from hulk_placement.layer_pins import LayerPin, as_spans
from hulk_placement.model import Model, Transformer
from hulk_placement.nccl import Nccl
from hulk_placement.sync import Sync
from hulk_placement.workload import END_COLLECTIVES, Workload


def workload_document(workload: Workload, num_steps: int | None = None) -> dict[str, Any]:
    """The document's values. Machines are listed by name; each takes as many workers as it has accelerators for."""
    (objective,) = (said for said, meant in OBJECTIVES.items() if meant == workload.objective)
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "name": workload.key,
        "model": _model(workload.model, workload.precision),
        "training": _given(
            globalBatch=workload.global_batch,
            microBatch=workload.micro_batch,
            precision=workload.precision,
            optimizer=workload.optimizer,
            steps=num_steps,
            shares=workload.shares,
            recompute=workload.recompute,
            memory=memory_values(workload.memory),
            stageTransport=workload.stage_transport,
            optimizerSeconds=workload.optimizer_s,
            stepOverheadSeconds=workload.step_overhead_s or None,
            smallAllReduces=workload.end_collectives if workload.end_collectives != END_COLLECTIVES else None,
        ),
        "parallelism": _given(
            data=workload.data, pipeline=workload.pipeline, tensor=workload.tensor, schedule=workload.schedule
        ),
        "workers": {
            "min": workload.min_workers,
            "max": workload.max_workers,
            "acceleratorsPerWorker": workload.accelerators_per_worker,
        },
        "sync": _sync(workload.sync),
        "nccl": _nccl(workload.nccl),
        "objective": objective,
        "constraints": _constraints(workload),
        "measuredSpeeds": [
            _given(machine=name, flopsPerSecond=plain(speed), microBatch=workload.measured_micro_batch.get(name))
            for name, speed in workload.flops_per_s.items()
        ],
        "likelySpeeds": [
            {"machine": name, "flopsPerSecond": plain(speed)} for name, speed in workload.likely_flops_per_s.items()
        ],
        "priority": workload.priority,
    }
    return {key: value for key, value in document.items() if value not in ({}, [], 0)}


def _constraints(workload: Workload) -> dict[str, Any]:
    return _given(
        allowedRegions=list(workload.regions) or None,
        allowedMachines=list(workload.candidates),
        pins=[_pin(pin) for pin in workload.layer_pins] or None,
        workerMachines=list(workload.pins) or None,
        maxPricePerHour=workload.max_price_per_hour,
        allowUnknownLinks=workload.allow_unknown_links or None,
    )


def _pin(pin: LayerPin) -> dict[str, Any]:
    return _given(layers=as_spans(pin.layers), regions=list(pin.regions) or None, machines=list(pin.machines) or None)


def _sync(sync: Sync) -> dict[str, Any]:
    asked = sync.rounds
    rounds = _given(fragments=asked.fragments, delaySteps=asked.delay_steps, warmupSteps=asked.warmup_steps)
    inner = {"innerSteps": sync.inner_steps, **rounds} if sync.is_local else {}
    return {
        "mode": sync.mode,
        **inner,
        "compression": "auto" if sync.rounds.any_precision else sync.compression,
        "onRegionLoss": sync.on_region_loss,
        "fixedShares": sync.fixed_shares,
        "encryption": sync.encryption,
    }


def _nccl(nccl: Nccl) -> dict[str, Any]:
    """What differs from the defaults."""
    usual = Nccl()
    figures = {
        "algorithm": (nccl.algorithm, usual.algorithm),
        "protocol": (nccl.protocol, usual.protocol),
        "channels": (nccl.num_channels, usual.num_channels),
        "socketsPerChannel": (nccl.num_sockets, usual.num_sockets),
        "bufferBytes": (nccl.buffer_bytes, usual.buffer_bytes),
        "windowBytes": (nccl.window_bytes, usual.window_bytes),
    }
    return {key: figure for key, (figure, default) in figures.items() if figure != default}


def _model(model: Model, precision: str) -> dict[str, Any]:
    shape = model.shape
    if shape is not None and Model.of(shape, precision) == model:
        return {"transformer": _dimensions(shape)}
    return {"profile": profile_values(model)}


def _dimensions(shape: Transformer) -> dict[str, int]:
    return _given(
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        sequenceLength=shape.sequence_length,
        vocabulary=shape.vocabulary,
        feedForward=shape.feed_forward or None,
    )


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
