"""The task behind `hulk_runtime.examples.gpt`."""

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch.nn import functional

from hulk_runtime.errors import ConfigurationError
from hulk_runtime.examples.gpt_model import SEED, Gpt, initialized
from hulk_runtime.examples.text import Text
from hulk_runtime.plan.wire import Plan

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from hulk_runtime.training.layered_model import LayeredModel
    from hulk_runtime.training.sharded_model import DividedModel

NUM_BYTE_VALUES: Final = 256


class ByteTask:
    """Next-byte prediction. Which text a sequence holds depends on the step and its number only, never on the rank."""

    def __init__(self, plan: Plan, device: torch.device, learning_rate: float, text: Text) -> None:
        model = plan.model
        if model is None:
            raise ConfigurationError("this example needs spec.model.transformer; the plan carries no dimensions")
        if model.vocabulary < NUM_BYTE_VALUES or model.hidden % model.heads:
            raise ConfigurationError(
                f"vocabulary {model.vocabulary} must be >= 256, hidden {model.hidden} a multiple of heads {model.heads}"
            )
        self.learning_rate = learning_rate
        self._model, self._device = model, device
        self._length = model.sequence_length
        self._global_batch = plan.training.global_batch
        if len(text) <= model.sequence_length:
            raise ConfigurationError(f"{len(text)} bytes of text, one sequence needs {model.sequence_length + 1}")
        self._text = text

    @cached_property
    def module(self) -> Gpt:
        """For ranks that hold the whole model."""
        return initialized(self._model).to(self._device)

    def loss(self, step: int, sequences: range) -> torch.Tensor:
        """Mean cross entropy, in nats per byte, over `sequences` of the step's global batch."""
        return self.loss_of(step, (self.module(*self.inputs(step, sequences)),), sequences)

    def whole(self) -> "LayeredModel":
        """For ranks that hold stages: both embeddings, the blocks, the last norm with the head."""
        from hulk_runtime.examples.gpt_stages import gpt_layers
        from hulk_runtime.training.layered_model import LayeredModel

        gpt = initialized(self._model)
        layers = gpt_layers(gpt)
        return LayeredModel(gpt, layers, (((0, "token.weight"), (len(layers) - 1, "weight")),))

    def divided(self, mesh: "DeviceMesh | None") -> "DividedModel":
        """For replicas of several ranks: blocks divided among tensor ranks, and gathered one by one."""
        from hulk_runtime.examples import gpt_divided

        return gpt_divided.divided(initialized(self._model), mesh)

    def divided_layer(self, layer: torch.nn.Module, mesh: "DeviceMesh") -> torch.nn.Module:
        """For stages of several tensor ranks."""
        from hulk_runtime.examples import gpt_divided

        return gpt_divided.divided_layer(layer, mesh)

    def parts_of(self, name: str) -> tuple[str, ...]:
        """What a parameter of `whole` is where layers are divided."""
        from hulk_runtime.examples import gpt_divided

        return gpt_divided.parts_of(name)

    def inputs(self, step: int, sequences: range) -> tuple[torch.Tensor]:
        """Bytes of `sequences`."""
        return (self._batch(step, sequences)[0],)

    def loss_of(self, step: int, outputs: tuple[torch.Tensor, ...], sequences: range) -> torch.Tensor:
        """As `loss`, by the logits."""
        return functional.cross_entropy(outputs[0].flatten(0, 1), self._batch(step, sequences)[1].flatten())

    def _batch(self, step: int, sequences: range) -> tuple[torch.Tensor, torch.Tensor]:
        starts = np.random.default_rng((SEED, step)).integers(len(self._text) - self._length, size=self._global_batch)
        wanted = starts[sequences.start : sequences.stop, None] + np.arange(self._length + 1)
        tokens = torch.from_numpy(self._text[wanted].astype(np.int64)).to(self._device)
        return tokens[:, :-1], tokens[:, 1:]
