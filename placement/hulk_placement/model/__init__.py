"""What is trained, layer by layer: parameters, FLOPs, bytes sent, bytes kept, and measured seconds if there are any.

    dimensions (transformer), config.json (hugging_face), a name (presets) --Architecture--> Model
    a measured profile (profile) ----------------------------------------------------------> Model

`parts` has the formulas, with their sources.
"""

from hulk_placement.model.architecture import Architecture
from hulk_placement.model.layer import PRECISIONS, Layer
from hulk_placement.model.layers import OPTIMIZER_BYTES_PER_PARAMETER, Known, Model
from hulk_placement.model.times import LayerTimes, TimesRow
from hulk_placement.model.trainable import Trainable
from hulk_placement.model.transformer import Transformer

__all__ = [
    "OPTIMIZER_BYTES_PER_PARAMETER",
    "PRECISIONS",
    "Architecture",
    "Known",
    "Layer",
    "LayerTimes",
    "Model",
    "TimesRow",
    "Trainable",
    "Transformer",
]
