"""A measured profile as it stands in a workload document, with groups of equal layers -> the plain profile of `model`.

`count: 24` stands for 24 layers alike, name.0 to name.23. Seconds may then be given for each entry instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, model_validator
from pydantic.alias_generators import to_camel

from hulk_placement.files.part import Many, require_values
from hulk_placement.model import Layer, LayerTimes, Model
from hulk_placement.model.layer import NOTHING_FROZEN
from hulk_placement.model.profile import LayerEntry, Profile, parse_profile

M = TypeVar("M", bound=BaseModel)


def _require_values(part: M) -> M:
    require_values({to_camel(field): getattr(part, field) for field in part.model_fields_set})
    return part


class LayerGroup(LayerEntry):
    """A measured layer, or `count` of them that are alike. Figures are of one sequence."""

    count: Many | None = None
    """How many layers like this one follow each other: name.0, name.1 and so on. Seconds may be given once for them."""

    _has_values = model_validator(mode="after")(_require_values)


class GroupedProfile(Profile):
    """A model as it was measured, layer by layer."""

    layers: Annotated[tuple[LayerGroup, ...], Field(min_length=1)]
    """The layers in the order they run."""

    _has_values = model_validator(mode="after")(_require_values)


def profiled_model(profile: GroupedProfile) -> Model:
    """The model. ValueError names what is wrong and its place."""
    values: dict[str, Any] = profile.model_dump(by_alias=True, exclude_unset=True)
    counts = [entry.count or 1 for entry in profile.layers]
    layers = [each for entry in values["layers"] for each in _each(entry)]
    times = [_spread(row, counts) for row in values.get("times", ())]
    return parse_profile({**values, "layers": layers, "times": times})


def _each(entry: dict[str, Any]) -> list[dict[str, Any]]:
    plain = {key: value for key, value in entry.items() if key != "count"}
    if "count" not in entry:
        return [plain]
    return [{**plain, "name": f"{entry['name']}.{number}"} for number in range(entry["count"])]


def _spread(row: dict[str, Any], counts: Sequence[int]) -> dict[str, Any]:
    """A row of seconds with one for each layer."""
    spread = dict(row)
    for key in ("forwardSeconds", "backwardSeconds"):
        if len(row[key]) == len(counts):
            spread[key] = [each for each, count in zip(row[key], counts, strict=True) for _ in range(count)]
    return spread


def profile_values(model: Model) -> dict[str, Any]:
    """The values of a profile that reads back to the model's layers and times."""
    names = [layer.name for layer in model.layers]
    has_flops = model.times is None or any(layer.forward_flops or layer.backward_flops for layer in model.layers)
    frozen = [layer.frozen.value_bytes for layer in model.layers if layer.frozen != NOTHING_FROZEN]
    few = {
        "attentionHeads": model.num_heads,
        "sequenceLength": model.sequence_length,
        "bytesPerFrozenParameter": frozen[0] if frozen else None,
    }
    said = {key: figure for key, figure in few.items() if figure}
    values: dict[str, Any] = {**said, "layers": [_layer(layer, names, has_flops) for layer in model.layers]}
    return values if model.times is None else {**values, "times": _times(model.times)}


def _layer(layer: Layer, names: Sequence[str], has_flops: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"name": layer.name, "parameters": layer.num_parameters}
    if has_flops:
        said |= {"forwardFlops": layer.forward_flops, "backwardFlops": layer.backward_flops}
    said |= {"outputBytes": layer.output_bytes, "activationBytes": layer.activation_bytes}
    rarely = {
        "replicatedActivationBytes": layer.replicated_activation_bytes,
        "tensorBytes": layer.tensor_bytes,
        "tensorAllreduces": layer.num_tensor_allreduces,
        "tiedParameters": layer.tied_parameters,
        "frozenParameters": layer.frozen.num_parameters,
        "frozenTiedParameters": layer.frozen.tied_parameters,
    }
    said |= {key: figure for key, figure in rarely.items() if figure}
    return said if layer.tied_to is None else {**said, "tiedTo": names[layer.tied_to]}


def _times(times: LayerTimes) -> list[dict[str, Any]]:
    return [
        {
            "product": row.product,
            "microBatch": row.micro_batch,
            "tensor": row.tensor,
            "forwardSeconds": list(row.forward_s),
            "backwardSeconds": list(row.backward_s),
        }
        for row in times.rows
    ]
