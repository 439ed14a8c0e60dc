"""The bench of unchanged trainers: what a job of each program is planned to sum, and predicted to take."""

from __future__ import annotations

import pytest
from hulk_placement.plan import Layout

from bench.allreduce.rounds import MIB
from bench.trainers import beside_torchft, steps

CASE = steps.CASES[-1]


def test_trainers_are_predicted_as_the_models_that_they_sum() -> None:
    found = {kind: steps.job_of(CASE, kind, steps.COMPUTE_S) for kind in (*steps.KINDS, *steps.PROGRAMS)}
    step_s = {kind: plan.prediction.step_s for kind, (plan, _) in found.items()}
    assert step_s["lightning"] == step_s["accelerate"] == step_s["transformers"] == step_s["ddp"]
    assert found["peft-lora"][1].model.gradient_bytes == steps.NUM_LAYERS * MIB // 4
    assert steps.COMPUTE_S < step_s["peft-lora"] < step_s["ddp"]
    assert found["fsdp-tensor"][0].layout == Layout(3, tensor=2)
    assert step_s["fsdp-tensor"] == pytest.approx(step_s["hsdp"], rel=0.02)  # as many bytes of each layer
    assert step_s["hsdp"] > 2 * step_s["ddp"]


def test_replicas_that_train_apart_are_predicted_to_wait_for_sums_that_take_longer_than_their_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert beside_torchft.predicted_step_s() == pytest.approx(beside_torchft.COMPUTE_S)
    monkeypatch.setattr(beside_torchft, "COMPUTE_S", 0.01)
    assert beside_torchft.predicted_step_s() > 0.015
