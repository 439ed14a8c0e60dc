"""Accelerators that a lab's pods emulate: as fast as the lab's file says, and gradients when they would be there."""

from __future__ import annotations

import json
import time

import pytest
import torch
from hulk_lab import spec
from hulk_runtime.examples.gpt_model import Gpt, initialized
from hulk_runtime.plan.wire import Model

from bench.accelerators import FLOPS_PER_S, pod_on
from bench.geo import FILES
from bench.pods.emulated_gpt import FORWARD, Accelerator, emulate
from bench.training import Size

NUM_SEQUENCES, RATE = 4, 10.0
PASS_S = NUM_SEQUENCES / RATE


def made() -> Gpt:
    return initialized(Model(layers=2, hidden=8, heads=2, sequence_length=4, vocabulary=256))


def passed(module: Gpt) -> tuple[float, float, dict[str, float]]:
    """Seconds of a forward pass, of both, and from the beginning to each parameter's gradient."""
    there: dict[str, float] = {}
    for name, parameter in module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: there.update({name: time.monotonic()}))  # type: ignore[no-untyped-call]
    begun_s = time.monotonic()
    logits = module(torch.arange(4 * NUM_SEQUENCES).reshape(NUM_SEQUENCES, 4))
    forward_s = time.monotonic() - begun_s
    logits.square().mean().backward()
    return forward_s, time.monotonic() - begun_s, {name: at - begun_s for name, at in there.items()}


def test_a_pass_takes_as_long_as_on_the_accelerator() -> None:
    module = made()
    emulate(module, Accelerator(RATE))
    forward_s, both_s, _ = passed(module)
    assert forward_s >= FORWARD * PASS_S
    assert both_s >= PASS_S


def test_gradients_are_there_when_their_part_of_the_pass_is_done() -> None:
    """Of two blocks the last one's are there after half of the backward pass, not before."""
    module = made()
    emulate(module, Accelerator(RATE))
    _, _, there = passed(module)
    half_s = (1 + FORWARD) / 2 * PASS_S
    assert min(at for name, at in there.items() if name.startswith("blocks.0.")) >= half_s
    assert there["blocks.1.qkv.weight"] >= half_s - 1 / 12 * (1 - FORWARD) / 2 * PASS_S
    assert there["blocks.1.contract.weight"] < there["blocks.1.qkv.weight"] < there["blocks.0.contract.weight"]


def test_what_is_computed_stays_the_same() -> None:
    plain, slow = made(), made()
    emulate(slow, Accelerator(1e9))
    for module in (plain, slow):
        passed(module)
    for mine, other in zip(plain.parameters(), slow.parameters(), strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        assert torch.equal(mine.grad, other.grad)


def test_pods_know_the_rate_of_every_node() -> None:
    lab, size = spec.load(FILES["two-sites"]), Size(layers=4, hidden=96, global_batch=60)
    environment = {entry["name"]: entry.get("value") for entry in pod_on(lab, size)["containers"][0]["env"]}
    rates = json.loads(environment["RATES"])
    speeds = {node.name: node.speed for region in lab.regions for node in region.nodes}
    per_speed = {round(rates[name] / speed, 6) for name, speed in speeds.items()}
    assert rates.keys() == speeds.keys()
    assert per_speed.pop() == pytest.approx(FLOPS_PER_S / 195.8e6, rel=0.05)
    assert not per_speed
    assert environment["OMP_NUM_THREADS"] == "1"
