"""Attention heads: where a model has them from, and that tensor degrees divide them, planned or asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.layouts.place import place
from hulk_placement.layouts.space import space_of, tensor_degrees
from hulk_placement.model import Model, Transformer
from hulk_placement.model.presets import preset
from hulk_placement.model.profile import parse_profile
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

WORLD = Topology(
    tuple(
        Machine(f"a{n}", "a", num_accelerators=8, product="NVIDIA-A100-SXM4-40GB", memory_bytes=20 << 30)
        for n in (0, 1)
    ),
    region_links={("a", "a"): Link(1e-4, 3e9)},
)
LAYER = {"name": "x", "parameters": 1, "forwardFlops": 1, "outputBytes": 1, "activationBytes": 1}


def job(trained: Model, **changes: object) -> Workload:
    room = {machine.name: machine.num_accelerators for machine in WORLD.machines}
    free = {"max_workers": 16, "pipeline": None, "tensor": None} | changes
    return Workload("team/job", trained, candidates=room, **{"global_batch": 16, **free})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trained", "heads"),
    [
        (Model.of(preset("gpt2-xl")), 25),
        (Model.of(preset("llama-3-8b")), 32),
        (Model.of(preset("t5-11b")), 128),
        (Model.of(Transformer(layers=2, hidden=12, heads=3, sequence_length=8, vocabulary=32)), 3),
        (parse_profile({"attentionHeads": 40, "layers": [LAYER]}), 40),
        (parse_profile({"layers": [LAYER]}), None),
        (Model.of_totals(1000, 1e9), None),
    ],
)
def test_a_model_knows_its_heads_as_far_as_they_were_said(trained: Model, heads: int | None) -> None:
    assert trained.num_heads == heads


def test_blocks_with_different_heads_are_shared_as_all_of_them_allow() -> None:
    found = preset("llama-3-8b")
    block = found.decoder[0]
    narrow = replace(block, attention=replace(block.attention, heads=24, key_value_heads=8))
    assert Model.of(replace(found, decoder=(narrow, *found.decoder[1:]))).num_heads == 8


@pytest.mark.parametrize(("name", "degrees"), [("gpt2-xl", [1]), ("gpt2", [1, 2, 4]), ("llama-3-8b", [1, 2, 4, 8, 16])])
def test_only_degrees_are_tried_that_divide_the_heads(name: str, degrees: list[int]) -> None:
    trained = Model.of(preset(name))
    assert tensor_degrees(job(trained)) == degrees
    options = space_of(Ground.of(job(trained), WORLD, WORLD.machines)).options
    assert {option.tensor for option in options} == {degree for degree in degrees if degree <= 8}
    assert tensor_degrees(job(replace(trained, num_heads=None))) == [1, 2, 4, 8, 16]


def test_a_plan_of_25_heads_shares_no_layer() -> None:
    """Few sequences of a model that one accelerator does not hold: a degree of 2 or more is best, were it possible."""
    trained = Model.of(preset("gpt2-xl"), "bf16")
    asked = job(trained, global_batch=2, micro_batch=1, recompute=False)
    plan = place(asked, WORLD, Budget(3_000))
    assert isinstance(plan, Plan)
    assert plan.layout.tensor == 1
    other = place(replace(asked, model=replace(trained, num_heads=None)), WORLD, Budget(3_000))
    assert isinstance(other, Plan)
    assert other.layout.tensor > 1


def test_a_degree_that_does_not_divide_the_heads_cannot_be_asked_for() -> None:
    trained = Model.of(preset("gpt2-xl"))
    with pytest.raises(ValueError, match="team/job: tensor degree 2 does not divide the model's 25 attention heads"):
        job(trained, tensor=2)
    assert job(trained, tensor=5).tensor == 5
    assert job(replace(trained, num_heads=None), tensor=2).tensor == 2


def test_hulks_own_all_reduce_cannot_be_asked_for_with_stages() -> None:
    with pytest.raises(ValueError, match="sync mode wan and pipeline 2 exclude each other"):
        job(Model.of(preset("gpt2")), pipeline=2, sync=Sync("wan"))
    assert job(Model.of(preset("gpt2")), pipeline=1, sync=Sync("wan")).sync.mode == "wan"
