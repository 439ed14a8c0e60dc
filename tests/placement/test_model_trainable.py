"""What is frozen: neither gradient nor optimizer state nor all-reduce, as torch has it on real models."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hulk_placement.cost.memory import cell_memory
from hulk_placement.model import Model, Trainable
from hulk_placement.model.hugging_face import from_config
from hulk_placement.model.presets import preset
from hulk_placement.plan import Plan
from hulk_placement.replan.moving import checkpoint_bytes
from hulk_placement.solve import solve
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from torch import nn
from torch_models import Attention, Decoder, Gated, PreNorm, count_flops, count_kept

B, S, V, H = 3, 48, 120, 64
CONFIG = {
    "model_type": "llama",
    "hidden_size": H,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "vocab_size": V,
    "max_position_embeddings": S,
}
LLAMA_8B = preset("llama-3-8b")


def trained(model: nn.Module, *modules: nn.Module) -> nn.Module:
    """Freezes all but the modules."""
    model.requires_grad_(False)
    for module in modules:
        module.requires_grad_(True)
    return model


def decoder() -> Decoder:
    torch.manual_seed(0)
    return Decoder(V, H, [PreNorm(H, Attention(H, 8, 2, 12), Gated(H, 112)) for _ in range(3)])


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        (("lm_head.weight",), lambda m: [m.head]),
        (("model.layers.2",), lambda m: [m.blocks[2]]),
        (
            ("*.q_proj.weight", "*.v_proj.*"),
            lambda m: [b.attention.q for b in m.blocks] + [b.attention.v for b in m.blocks],
        ),
        (("model.embed_tokens",), lambda m: [m.tokens]),
    ],
    ids=["head", "last block", "queries and values", "embedding"],
)
def test_parameters_and_passes_are_those_of_torch(patterns: tuple[str, ...], chosen: object) -> None:
    module, model = decoder(), Model.of(from_config(CONFIG), "fp32", Trainable(patterns=patterns))
    trained(module, *chosen(module))  # type: ignore[operator]
    assert model.num_trained == sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert model.num_parameters == sum(p.numel() for p in module.parameters())
    tokens = torch.randint(V, (B, S))
    flops = count_flops(lambda: module(tokens))
    assert B * model.flops_per_sequence == pytest.approx(flops, rel=0.06)  # what the first passes back
    kept = count_kept(module, lambda: module(tokens))
    logits = B * S * V * 4
    assert B * model.activation_bytes_per_sequence - logits >= 0.98 * kept


def test_memory_of_adapters_on_eight_billion_parameters() -> None:
    """Of 8.03 billion parameters 0.5 %: frozen ones two bytes each, trained ones 22 with adamw, buckets and casts."""
    whole, adapters = (Model.of(LLAMA_8B, "bf16", trainable) for trainable in (Trainable(), Trainable(0.005)))
    assert adapters.num_trained == pytest.approx(40_151_306, abs=200)
    held = adapters.num_trained * 22 + (adapters.num_parameters - adapters.num_trained) * 2
    job = Workload("t/job", adapters, 1, {"a": 1}, precision="bf16")
    assert job.replica_bytes(0) == held
    assert adapters.gradient_bytes == 4 * adapters.num_trained
    assert 0.6 < adapters.flops_per_sequence / whole.flops_per_sequence < 0.8  # no gradients of weights
    assert adapters.activation_bytes_per_sequence == pytest.approx(whole.activation_bytes_per_sequence, rel=0.01)


def test_a_plan_of_adapters_is_predicted_by_what_is_trained() -> None:
    topology = Topology(
        tuple(Machine(f"m{n}", f"r{n}", flops_per_s=1e14, memory_bytes=90 << 30) for n in range(2)),
        region_links={(a, b): Link(1e-3, 1e9) for a in ("r0", "r1") for b in ("r0", "r1")},
    )
    room = {machine.name: 1 for machine in topology.machines}
    model = Model.of(LLAMA_8B.at_length(512), "bf16", Trainable(0.005))
    job = Workload("t/job", model, 8, room, min_workers=2, max_workers=2, precision="bf16", micro_batch=1)
    found = solve([job], [], topology)
    plan = found.plans["t/job"]
    assert isinstance(plan, Plan)
    assert cell_memory(plan, job, 0, 0).total == job.replica_bytes(1) == plan.prediction.memory_bytes
    assert plan.prediction.communication_s < 1  # 160 MB; all gradients would be 32 GB and half a minute
    whole = replace(job, model=Model.of(LLAMA_8B.at_length(512), "bf16"))
    assert "NoMemory" in solve([whole], [], topology).unplaced["t/job"].reason
    assert checkpoint_bytes(job) < checkpoint_bytes(whole) / 4


def test_tied_matrices_are_trained_together() -> None:
    tied = CONFIG | {"tie_word_embeddings": True}
    head, *_ = (Model.of(from_config(tied), "fp32", Trainable(patterns=(name,))) for name in ("model.embed_tokens",))
    assert head.num_trained == V * H
    assert head.layers[-1].trained_tied_parameters == V * H
    frozen = Model.of(from_config(tied), "fp32", Trainable(patterns=("model.layers.*",)))
    assert frozen.layers[-1].trained_tied_parameters == 0
    assert frozen.layers[0].backward_flops == frozen.layers[0].activation_bytes == 0
    with pytest.raises(ValueError, match="'lm_head' means none of the parameters"):
        Model.of(from_config(tied), "fp32", Trainable(patterns=("lm_head",)))


def test_all_of_it_is_as_ever() -> None:
    assert Model.of(LLAMA_8B, "bf16", Trainable(1.0)) == Model.of(LLAMA_8B, "bf16")
    with pytest.raises(ValueError, match="share 0 must be above 0 and at most 1"):
        Trainable(0)
