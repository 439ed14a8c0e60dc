"""A measured profile, a mapping as read from JSON or YAML, becomes a Model with the seconds of its layers.

    attentionHeads: 32                    # optional: a tensor degree must divide them
    sequenceLength: 4096                  # optional: tokens of the sequences that the figures are of
    layers:                               # in the order they run
      - name: model.layers.0              # prefix in the state dict
        parameters: 218112000             # or parameterBytes, at bytesPerParameter (4) each
        outputBytes: 33554432             # this and all that follows: of one sequence
        activationBytes: 939524096
        forwardFlops: 4.0e+12             # optional, for all layers or for none; backwardFlops: else twice as many
        replicatedActivationBytes: 0      # optional, with tensorBytes and tensorAllreduces: see Layer
        tiedTo: model.embed_tokens        # optional, with tiedParameters: shares so many with that layer
        frozenParameters: 0               # optional: so many of them are not trained
    times:                                # optional where there are FLOPs
      - product: NVIDIA-A100-SXM4-80GB    # as the node's label nvidia.com/gpu.product has it
        microBatch: 1                     # sequences
        tensor: 1                         # accelerators that share each layer
        forwardSeconds: [0.0132]          # of one micro-batch, a figure for each layer
        backwardSeconds: [0.0270]

The older form, of layers with `parameters`, `flopsPerSequence` (forward and backward) and `activationBytesPerSequence`,
is read as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from hulk_placement.model.layer import BYTES_PER_FP32, NOTHING_FROZEN, Frozen, Layer
from hulk_placement.model.layers import Model, split_flops
from hulk_placement.model.times import LayerTimes, TimesRow

MAX_COUNT = 2**53  # the largest integer that every JSON reader keeps exact

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Positive = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, use_attribute_docstrings=True)


class LayerEntry(_Part):
    """One measured layer, per sequence."""

    name: str = Field(min_length=1)
    """Its prefix in the state dict, like `model.layers.0`."""
    parameters: Count | None = None
    """Parameters of its own; or `parameterBytes`."""
    parameter_bytes: Count | None = None
    """The same in bytes, `bytesPerParameter` each."""
    output_bytes: Count
    """What the next layer gets; its gradient has as many bytes."""
    activation_bytes: Count
    """What is kept for the backward pass."""
    replicated_activation_bytes: Count = 0
    """The part of that which every rank of a tensor-parallel group keeps whole."""
    tensor_bytes: Count = 0
    """What such a group all-reduces in a forward pass; in a backward pass as much."""
    tensor_allreduces: Count = 0
    """How many all-reduces that is."""
    tied_to: str | None = None
    """Name of an earlier layer whose parameters this one also uses."""
    tied_parameters: Count = 0
    """How many of them."""
    frozen_parameters: Count = 0
    """How many of `parameters` are not trained: they have neither gradient nor optimizer state."""
    frozen_tied_parameters: Count = 0
    """How many of `tiedParameters` are not."""
    forward_flops: Figure | None = None
    """Floating-point operations of the forward pass; for all layers or for none."""
    backward_flops: Figure | None = None
    """The same of the backward pass; absent = twice as many."""


class TimesEntry(_Part):
    """Seconds of every layer, measured with one micro-batch on one product."""

    product: str = Field(min_length=1)
    """The accelerator, by its label `nvidia.com/gpu.product`; or any word that machines have as their product."""
    micro_batch: Positive
    """Sequences of the micro-batch."""
    tensor: Positive = 1
    """Accelerators that shared each layer."""
    forward_seconds: tuple[Figure, ...]
    """Of one micro-batch's forward pass, a figure for each layer."""
    backward_seconds: tuple[Figure, ...]
    """The same of the backward pass."""


class Profile(_Part):
    """A measured model."""

    bytes_per_parameter: Positive = BYTES_PER_FP32
    """What `parameterBytes` counts for one."""
    bytes_per_frozen_parameter: Positive = BYTES_PER_FP32
    """What one that is not trained takes."""
    sequence_length: Positive | None = None
    """Tokens of the sequences that all figures are of; absent = not known, and no other length may be asked for."""
    attention_heads: Positive | None = None
    """Heads of a block, which a tensor degree must divide; absent = not known, and then any degree may be."""
    layers: tuple[LayerEntry, ...] = Field(min_length=1)
    """The layers in the order they run."""
    times: tuple[TimesEntry, ...] = ()
    """Seconds as they were measured; they may be absent where there are FLOPs."""


class LayerTotals(_Part):
    """A layer in the older form; `flops_per_sequence` of a forward and a backward pass."""

    parameters: Count
    flops_per_sequence: Figure
    activation_bytes_per_sequence: Count


class Totals(_Part):
    """A profile in the older form."""

    layers: tuple[LayerTotals, ...] = Field(min_length=1)


def parse_profile(document: Mapping[str, Any]) -> Model:
    """The model of a profile. ValueError names what is wrong and its place, like `times.0.forwardSeconds`."""
    listed = document.get("layers") if isinstance(document, Mapping) else None
    is_older = isinstance(listed, list) and any(
        "flopsPerSequence" in entry for entry in listed if isinstance(entry, Mapping)
    )
    try:
        return _of_totals(Totals.model_validate(document)) if is_older else _model(Profile.model_validate(document))
    except ValidationError as error:
        mistakes = (f"{'.'.join(map(str, entry['loc'])) or 'profile'}: {entry['msg']}" for entry in error.errors())
        raise ValueError("; ".join(mistakes)) from error


def _model(profile: Profile) -> Model:
    layers = tuple(_layer(profile, number) for number in range(len(profile.layers)))
    times = LayerTimes(tuple(_rows(profile))) if profile.times else None
    length = profile.sequence_length or 0
    return Model(layers, times=times, num_heads=profile.attention_heads, sequence_length=length)


def _layer(profile: Profile, number: int) -> Layer:
    entry, place = profile.layers[number], f"layers.{number}"
    forward, backward = _flops(profile, number)
    frozen = Frozen(entry.frozen_parameters, entry.frozen_tied_parameters, profile.bytes_per_frozen_parameter)
    return Layer(
        name=entry.name,
        num_parameters=_parameters(entry, profile.bytes_per_parameter, place),
        forward_flops=forward,
        backward_flops=backward,
        output_bytes=entry.output_bytes,
        activation_bytes=entry.activation_bytes,
        replicated_activation_bytes=entry.replicated_activation_bytes,
        tensor_bytes=entry.tensor_bytes,
        num_tensor_allreduces=entry.tensor_allreduces,
        tied_to=_number_of(profile, entry.tied_to, place) if entry.tied_to is not None else None,
        tied_parameters=entry.tied_parameters,
        frozen=frozen if frozen.num_parameters or frozen.tied_parameters else NOTHING_FROZEN,
    )


def _parameters(entry: LayerEntry, bytes_each: int, place: str) -> int:
    if entry.parameter_bytes is None and entry.parameters is not None:
        return entry.parameters
    if entry.parameter_bytes is None or entry.parameters is not None:
        raise ValueError(f"{place}: exactly one of parameters and parameterBytes must be given")
    num_parameters, rest = divmod(entry.parameter_bytes, bytes_each)
    if rest:
        raise ValueError(f"{place}.parameterBytes: {entry.parameter_bytes} is no multiple of {bytes_each} bytes each")
    return num_parameters


def _flops(profile: Profile, number: int) -> tuple[float, float]:
    entry = profile.layers[number]
    if (entry.forward_flops is None) != (profile.layers[0].forward_flops is None):
        raise ValueError(f"layers.{number}.forwardFlops: must be given for all layers or for none")
    if entry.forward_flops is not None:
        backward = entry.backward_flops
        return entry.forward_flops, 2 * entry.forward_flops if backward is None else backward
    if entry.backward_flops is not None:
        raise ValueError(f"layers.{number}.backwardFlops: forwardFlops are missing")
    if not profile.times:
        raise ValueError(f"layers.{number}.forwardFlops: missing, and there are no times")
    return 0.0, 0.0


def _number_of(profile: Profile, name: str, place: str) -> int:
    names = [layer.name for layer in profile.layers]
    if name not in names:
        raise ValueError(f"{place}.tiedTo: no layer has the name {name!r}")
    return names.index(name)


def _rows(profile: Profile) -> list[TimesRow]:
    for number, entry in enumerate(profile.times):
        for key, seconds in (("forwardSeconds", entry.forward_seconds), ("backwardSeconds", entry.backward_seconds)):
            if len(seconds) != len(profile.layers):
                raise ValueError(f"times.{number}.{key}: {len(seconds)} figures for {len(profile.layers)} layers")
    return [
        TimesRow(entry.product, entry.micro_batch, entry.tensor, entry.forward_seconds, entry.backward_seconds)
        for entry in profile.times
    ]


def _of_totals(totals: Totals) -> Model:
    """What a layer sends is not said in this form, and never free: it counts as all that the layer keeps."""
    return Model(
        tuple(
            Layer(
                f"layers.{number}",
                entry.parameters,
                *split_flops(entry.flops_per_sequence),
                output_bytes=entry.activation_bytes_per_sequence,
                activation_bytes=entry.activation_bytes_per_sequence,
            )
            for number, entry in enumerate(totals.layers)
        )
    )
