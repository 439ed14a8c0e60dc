"""What the layers take on emulated accelerators, before anything is run: spans of blocks, and placements with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hulk_placement.schedule.placement import Kind, Placement
from hulk_runtime.plan.wire import Model

from bench.shapes.accelerator import BACKWARD
from bench.shapes.model import attention_flops, head_flops, mlp_flops

FRONT, BLOCK, HEAD, JOIN = "front", "block", "head", "join"
SUMS = {FRONT: (1, 0), BLOCK: (2, 2), HEAD: (2, 1), JOIN: (0, 0)}
"""Over the shards of a divided layer: forward, backward."""


@dataclass(frozen=True, slots=True)
class Costs:
    """`sum_s`: what a sum of so many samples' activations over all ranks takes, measured."""

    model: Model
    flops_per_s: float
    sum_s: Mapping[int, float]

    def flops(self, kind: str) -> float:
        """Of a layer's forward pass, of a sample."""
        block = attention_flops(self.model) + mlp_flops(self.model)
        return {FRONT: 0.0, BLOCK: block, HEAD: head_flops(self.model), JOIN: 0.0}[kind]

    def spans(self, kinds: Sequence[str], num_shards: int, num_samples: int) -> tuple[float, float]:
        """Seconds of the forward and the backward block of some layers."""
        compute_s = sum(self.flops(kind) for kind in kinds) * num_samples / num_shards / self.flops_per_s
        sum_s = self.sum_s[num_samples] if num_shards > 1 else 0.0
        there, back = (sum_s * sum(SUMS[kind][way] for kind in kinds) for way in (0, 1))
        return compute_s + there, BACKWARD * compute_s + back


def with_spans(placement: Placement, costs: Costs, kinds: Mapping[str, Sequence[str]], num_samples: int) -> Placement:
    """The placement with the seconds of each stage's layers; `num_samples` are those of a block."""
    blocks = []
    for block in placement.blocks:
        there_s, back_s = costs.spans(kinds[block.stage], len(block.devices), num_samples)
        blocks.append(replace(block, span=there_s if block.kind is Kind.FORWARD else back_s))
    return replace(placement, blocks=tuple(blocks))
