"""The bundled byte-level GPT as a trial of a sweep whose trials share devices (`hulk_runtime.sharp`).

Its parameters are the function's; whatever a HulkSweep does not name has its default here. Unlike the model of
`hulk_runtime.examples.gpt`, the head has a table of its own, because a shard's parameters must be its own.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hulk_runtime.examples import text
from hulk_runtime.examples.byte_gpt import NUM_BYTE_VALUES
from hulk_runtime.examples.gpt_model import initialized
from hulk_runtime.examples.gpt_stages import gpt_layers
from hulk_runtime.plan.wire import Model as Dimensions
from hulk_runtime.sharp import Model


def make(
    layers: int = 2,
    hidden: int = 64,
    heads: int = 2,
    sequence_length: int = 32,
    batch: int = 4,
    learning_rate: float = 1e-3,
) -> Model:
    """Next-byte prediction on the standard library's source, the text of a sequence drawn from the step's number."""
    dimensions = Dimensions(
        layers=layers, hidden=hidden, heads=heads, sequence_length=sequence_length, vocabulary=NUM_BYTE_VALUES
    )
    read = text.standard_library_source()

    def batches(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        starts = np.random.default_rng(step).integers(0, len(read) - sequence_length, batch)
        rows = np.stack([read[start : start + sequence_length + 1] for start in starts]).astype(np.int64)
        return torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, 1:])

    def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=learning_rate)

    return Model(gpt_layers(initialized(dimensions)), _loss, optimizer, batches)


def _loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy, in nats per byte."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
