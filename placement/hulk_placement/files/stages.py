"""How a plan document cuts the model into stages -> the first layer of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from hulk_placement.files.plan import PlanFile
from hulk_placement.fit import layer_words
from hulk_placement.model import Model

_BLOCK = re.compile(r"(.*\.)?\d+")
"""A numbered layer of a state dict, like `model.layers.3`."""


def first_layers(document: PlanFile, model: Model) -> tuple[int, ...]:
    """The first layer of every stage. ValueError where stages do not add up to the model."""
    num_stages = document.layout.pipeline
    if document.first_layers is not None:
        return document.first_layers
    if document.blocks_per_stage is not None:
        _require_count("blocksPerStage", document.blocks_per_stage, num_stages)
        return _by_blocks(document.blocks_per_stage, model)
    if document.layers_per_stage is not None:
        sizes: Sequence[int] = document.layers_per_stage
        _require_count("layersPerStage", sizes, num_stages)
        if sum(sizes) != model.num_layers:
            raise ValueError(f"layersPerStage: {_sum(sizes)} layers, but the model has {layer_words(model)}")
        return _starts(sizes)
    if num_stages > model.num_layers:
        raise ValueError(f"layout: {num_stages} stages, but the model has {layer_words(model)}")
    base, more = divmod(model.num_layers, num_stages)
    return _starts([base + (stage < more) for stage in range(num_stages)])


def _by_blocks(sizes: Sequence[int], model: Model) -> tuple[int, ...]:
    blocks = [number for number, layer in enumerate(model.layers) if _BLOCK.fullmatch(layer.name)]
    if sum(sizes) != len(blocks):
        raise ValueError(
            f"blocksPerStage: {_sum(sizes)} blocks, but the model has {len(blocks)} among {layer_words(model)}"
        )
    before = [blocks[start - 1] + 1 if start else 0 for start in _starts(sizes)]
    return tuple(before)


def _require_count(key: str, sizes: Sequence[int], num_stages: int) -> None:
    if len(sizes) != num_stages:
        raise ValueError(f"{key}: {len(sizes)} figures for {num_stages} stages")


def _starts(sizes: Sequence[int]) -> tuple[int, ...]:
    return (0, *accumulate(sizes[:-1]))


def _sum(sizes: Sequence[int]) -> str:
    """
    >>> _sum([8, 8, 10])
    '8 + 8 + 10 = 26'
    """
    return f"{' + '.join(map(str, sizes))} = {sum(sizes)}" if len(sizes) > 1 else str(sizes[0])
