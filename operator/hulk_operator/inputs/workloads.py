"""Turns a HulkJob into the planner's `Workload`: the model counted, the spec's words as numbers.

What this version cannot do (wishes that stages, shards or tensor ranks exclude) is refused here with a reason, before
anything is planned. The model's text, where it is in a ConfigMap, is read by the caller.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from hulk_placement.layer_pins import LayerPin
from hulk_placement.model import Model, Trainable, Transformer
from hulk_placement.model.hugging_face import from_config
from hulk_placement.sync import DILOCO, WARMUP_PART, Rounds, Sync
from hulk_placement.workload import Workload, heads_words

from hulk_operator import api
from hulk_operator.api import ConfigMapRef, HulkJob, HulkJobSpec, ObservedModel
from hulk_operator.api.hulkjob import LocalSync
from hulk_operator.inputs.instrumentation import can_sum_between_regions
from hulk_operator.inputs.launch import launch_notes, refuse_other_accelerators, refuse_standalone
from hulk_operator.inputs.placement_constraints import (
    Nodes,
    UnusableJobError,
    allowed_nodes,
    allowed_regions,
    are_apart,
    layer_pins,
)
from hulk_operator.inputs.stage_constraints import (
    RING,
    may_have_shards,
    may_have_stages,
    num_workers,
    refuse_beside_stages,
    refuse_beside_width,
    runs_training_loop,
    width,
)
from hulk_operator.inputs.unknown_model import stand_in

Texts = Mapping[tuple[str, str, str], str]
"""What ConfigMaps hold, by their namespace, name and key."""

OBJECTIVES: Final = {"time": "time", "throughputPerMoney": "throughput-per-money"}


@dataclass(frozen=True, slots=True)
class Situation:
    """What a workload needs to know beside the job: its attempt, who may run it, how important it is.

    `candidates`: how many of the job's workers each node's cpu, memory and pod slots admit. `allowed_regions`: the
    regions that residency rules allow the job's namespace, None where there is no rule. `kept`: how many of its pods
    wait on each node for this plan. `nodes`: where they are and what they cost.
    """

    attempt: int
    candidates: Mapping[str, int]
    priority: int = 0
    allowed_regions: tuple[str, ...] | None = None
    kept: Mapping[str, int] = field(default_factory=dict)
    nodes: Nodes = field(default_factory=Nodes)


def model_reference(spec: HulkJobSpec) -> ConfigMapRef | None:
    """The ConfigMap key that holds the model, None where the spec itself does, or nothing."""
    return None if spec.model is None else spec.model.hugging_face or spec.model.profile


def to_model(spec: HulkJobSpec, text: str | None = None, measured: ObservedModel | None = None) -> Model:
    """The planner's model; `text` is what `model_reference` points to. UnusableJobError where it is no model.

    Where the spec has none, something stands for it, as far as possible of what earlier steps `measured`.
    """
    asked, precision = spec.model, spec.training.precision
    if asked is None:
        return stand_in(spec, measured)
    if asked.transformer is not None:
        try:
            dimensions = _dimensions(asked.transformer, asked.sequence_length)
            return _model_of(dimensions, precision, _trainable(asked))
        except ValueError as error:
            raise UnusableJobError("InvalidModel", f"spec.model: {error}.") from error
    reference = model_reference(spec)
    if reference is None or text is None:
        raise UnusableJobError("InvalidModel", "The model's ConfigMap was not read.")
    try:
        return _parse_model(asked, precision, text)
    except (RecursionError, ValueError) as error:
        where = f"ConfigMap {reference.config_map}, key {reference.key}"
        raise UnusableJobError("InvalidModel", f"{where} holds no usable model: {error}.") from error


@lru_cache(maxsize=64)
def _model_of(dimensions: Transformer, precision: str, trainable: Trainable) -> Model:
    """One for all jobs that train the same: of many layers it takes milliseconds."""
    return Model.of(dimensions, precision, trainable)


def _dimensions(shape: api.Transformer, sequence_length: int | None) -> Transformer:
    return Transformer(
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        sequence_length=sequence_length or shape.sequence_length,
        vocabulary=shape.vocabulary,
        feed_forward=shape.feed_forward or 0,
    )


def _trainable(model: api.Model) -> Trainable:
    asked = model.trainable
    return Trainable() if asked is None else Trainable(float(asked.share or 1), asked.parameters or ())


def to_workload(job: HulkJob, model: Model, situation: Situation) -> Workload:
    """The planner's workload. UnusableJobError where this version cannot train it as asked."""
    spec = job.spec
    refuse_unsupported(spec, model)
    refuse_other_accelerators(spec)
    refuse_standalone(spec)
    model = replace(model, notes=(*model.notes, *launch_notes(spec)))
    regions = allowed_regions(job, situation.allowed_regions, situation.nodes)
    pins = layer_pins(job, model)
    num_stages = _num_stages(spec, pins, situation.nodes)
    is_plain = num_stages == 1 and width(spec) == 1
    limit = spec.placement.max_price_per_hour
    min_workers, max_workers = num_workers(spec)
    created = job.metadata.creation_timestamp
    return Workload(
        key=job.key,
        model=model,
        global_batch=spec.global_batch,
        candidates=allowed_nodes(job, pins, situation.candidates, regions, situation.nodes, num_stages != 1),
        min_workers=min_workers,
        max_workers=max_workers,
        accelerators_per_worker=spec.workers.accelerators_per_worker,
        attempt=situation.attempt,
        created_s=created.timestamp() if created else 0.0,
        priority=situation.priority,
        micro_batch=spec.training.micro_batch,
        shares=to_shares(spec),
        precision=spec.training.precision,
        optimizer=spec.training.optimizer,
        data=None if is_plain else spec.parallelism.data,
        pipeline=num_stages,
        tensor=spec.parallelism.tensor or 1,
        shard=spec.parallelism.shard or 1,
        schedule=spec.parallelism.schedule,
        recompute=None if is_plain else False,
        stages_if_needed=is_plain and may_have_stages(spec),
        shards_if_needed=is_plain and may_have_shards(spec),
        sums_by_layer=not runs_training_loop(spec),
        allow_unknown_links=spec.placement.allow_unknown_links,
        objective=OBJECTIVES[spec.placement.objective],
        max_price_per_hour=None if limit is None else float(limit),
        pins=spec.placement.worker_nodes,
        layer_pins=pins if num_stages != 1 else (),
        regions=regions,
        kept=situation.kept,
        sync=to_sync(spec) if num_stages == 1 else RING,
    )


def _num_stages(spec: HulkJobSpec, pins: Sequence[LayerPin], nodes: Nodes) -> int | None:
    """The stages asked for. None, for the planner to say: pins bind layers to different places."""
    asked = spec.parallelism.pipeline
    if asked is None and may_have_stages(spec) and are_apart(pins, nodes):
        return None
    return asked or 1


def to_sync(spec: HulkJobSpec) -> Sync:
    """How the job's replicas are to come together.

    A program that is left alone leaves the planner no choice: torch's ring, unless what only Hulk's own all-reduce does
    is asked for.
    """
    asked = spec.sync
    compression = "none" if asked.compression == "auto" else asked.compression
    alone = "ring" if compression == "none" and asked.on_region_loss == "restart" else "wan"
    local = asked.local or LocalSync()
    return Sync(
        mode=asked.mode if asked.mode != "auto" or can_sum_between_regions(spec) else alone,
        compression=compression,
        on_region_loss=asked.on_region_loss,
        fixed_shares=asked.fixed_shares,
        encryption=asked.encryption,
        inner_steps=local.inner_steps,
        rounds=_rounds(spec, local) if asked.mode == "local" else DILOCO,
    )


def _rounds(spec: HulkJobSpec, local: LocalSync) -> Rounds:
    """Hulk's own loop brings all layers together at once, and waits for it."""
    is_whole = runs_training_loop(spec)
    warmup_steps = (spec.training.steps or 0) // WARMUP_PART if local.warmup_steps is None else local.warmup_steps
    return Rounds(
        None if local.outer_learning_rate is None else float(local.outer_learning_rate),
        None if local.outer_momentum is None else float(local.outer_momentum),
        1 if is_whole else local.fragments,
        0 if is_whole else local.delay_steps,
        warmup_steps,
        spec.sync.compression == "auto" and not is_whole,
    )


def to_shares(spec: HulkJobSpec) -> str:
    """How the batch is shared: as asked, else by speed where the program is known to weigh gradients by sequences."""
    return spec.training.shares or ("planned" if runs_training_loop(spec) else "equal")


def refuse_unsupported(spec: HulkJobSpec, model: Model) -> None:
    """UnusableJobError for what the API knows and this version does not do yet."""
    asked = spec.parallelism
    refuse_beside_width(spec)
    if not model.shares_heads(asked.tensor or 1):
        words = f"The job asks for tensor {asked.tensor}: {heads_words(model, asked.tensor or 1)}."
        raise UnusableJobError("UnsupportedLayout", words)
    if not model.is_counted and spec.placement.pins:
        raise UnusableJobError("InvalidPins", "placement.pins bind layers, and the job says none: it needs spec.model.")
    if spec.checkpoint and spec.checkpoint.storage.regional and runs_training_loop(spec):
        raise UnusableJobError(
            "UnsupportedStorage",
            "The job asks for checkpoint.storage.regional, and its program is one of Hulk's own training loop, which "
            "saves whole states, all to checkpoint.storage.url.",
        )
    refuse_beside_stages(spec, model)


def _parse_model(asked: api.Model, precision: str, text: str) -> Model:
    document: Any = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError(f"expected a JSON object, found a {type(document).__name__}")
    length, trainable = asked.sequence_length, _trainable(asked)
    if asked.hugging_face is not None:
        own = {} if length is None else {"sequence_length": length}
        return Model.of(from_config({**document, **own}), precision, trainable)
    # Slow to load, and most jobs describe their model themselves.
    from hulk_placement.model.profile import parse_profile

    model = parse_profile(document)
    if not model.flops_per_sequence:
        raise ValueError("the layers need forwardFlops: what the nodes measure is compared with them")
    model = model if length is None else model.at_length(length)
    return model if trainable.is_all else model.training(trainable, precision)
