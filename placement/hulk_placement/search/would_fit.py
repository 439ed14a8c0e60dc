"""What would do for a workload that no machine has the memory for: smaller micro-batches, shorter sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hulk_placement.model import Model
from hulk_placement.workload import Workload

SHORTEST = 128
"""Tokens; what does not fit at this length is too large for other reasons."""


def would_fit(workload: Workload, fits: Callable[[Workload], bool]) -> str:
    """The first smaller micro-batch, or else length with micro-batches of one, that fits, in a sentence; else "".

    >>> from hulk_placement.model import Model, Transformer
    >>> model = Model.of(Transformer(layers=1, hidden=64, heads=4, sequence_length=1000, vocabulary=32))
    >>> job = Workload("a/b", model, 8, {"m": 1}, micro_batch=2)
    >>> would_fit(job, lambda asked: asked.model.sequence_length <= 256)
    'It fits at 256 tokens (model.sequenceLength) and micro-batch 1.'
    """
    for smaller, words in (*_micro_batches(workload), *_lengths(replace(workload, micro_batch=1))):
        if fits(smaller):
            also = " and micro-batch 1" if (workload.micro_batch or 1) > 1 and "tokens" in words else ""
            return f"It fits {words}{also}."
    return ""


def tokens_words(workload: Workload) -> str:
    """Of how many tokens sequences are, like " of 4,096 tokens"; "" where that is not known."""
    length = workload.model.sequence_length
    return f" of {length:,} tokens" if length else ""


def parameters_words(model: Model) -> str:
    """How many parameters there are, and are trained."""
    if model.num_trained == model.num_parameters:
        return f"{model.num_parameters:,} parameters"
    return f"{model.num_parameters:,} parameters, {model.num_trained:,} of them trained"


def _micro_batches(workload: Workload) -> Iterator[tuple[Workload, str]]:
    size = workload.micro_batch or 1
    while size > 1:
        size //= 2
        yield replace(workload, micro_batch=size), f"with micro-batch {size}"


def _lengths(workload: Workload) -> Iterator[tuple[Workload, str]]:
    """Powers of two."""
    length = 1 << max(0, workload.model.sequence_length - 1).bit_length()
    while length > SHORTEST:
        length //= 2
        shorter = replace(workload, model=workload.model.at_length(length))
        yield shorter, f"at {length:,} tokens (model.sequenceLength)"
