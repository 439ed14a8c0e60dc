"""transformers' Llama on the bytes that the bundled GPT learns; transformers is imported where one is made."""

from __future__ import annotations

from functools import cached_property

import torch
from hulk_runtime.examples.byte_gpt import ByteTask
from hulk_runtime.examples.gpt_model import SEED
from hulk_runtime.plan import wire


class Llama(torch.nn.Module):
    """Token numbers to logits, with as many parameters as the GPT of these dimensions, nearly.

    B sequences, S positions, V vocabulary.
    """

    def __init__(self, model: wire.Model) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        super().__init__()
        config = LlamaConfig(
            vocab_size=model.vocabulary,
            hidden_size=model.hidden,
            intermediate_size=8 * model.hidden // 3,
            num_hidden_layers=model.layers,
            num_attention_heads=model.heads,
            max_position_embeddings=model.sequence_length,
            tie_word_embeddings=True,
            use_cache=False,
        )
        torch.manual_seed(SEED)  # all ranks, and all rows, begin alike
        self.llama = LlamaForCausalLM(config)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """From (B, S) to (B, S, V)."""
        logits: torch.Tensor = self.llama(input_ids=tokens).logits
        return logits


class LlamaTask(ByteTask):
    """The same text, in the same order."""

    @cached_property
    def module(self) -> Llama:  # type: ignore[override]  # another model
        """For ranks that hold the whole model."""
        assert self._model is not None
        return Llama(self._model).to(self._device)
