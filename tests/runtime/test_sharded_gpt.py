"""The bundled GPT as replicas of shards and tensor ranks equals the GPT of one process, in every combination of 8."""

from pathlib import Path

import pytest
import torch
from hulk_runtime.examples.gpt_model import initialized
from pipeline_cases import found_by_ranks
from sharded_gpt_ranks import BATCH, LEARNING_RATE, MODEL, STEPS, tokens

SCRIPT = str(Path(__file__).with_name("sharded_gpt_ranks.py"))
NUM_RANKS = 8
TOLERANCE = 1e-11
"""Of parameters up to 0.3; the keys' biases, without which attention is the same, stay at rounding errors of zero."""
SHARES = {1: [21], 2: [8, 13], 4: [1, 4, 7, 9], 8: [1, 5, 2, 4, 1, 3, 2, 3]}
"""Sequences of each replica. Of one sequence one of two shards has none."""
COMBINATIONS = [
    (data, shard, NUM_RANKS // data // shard)
    for data in (1, 2, 4, 8)
    for shard in (1, 2, 4, 8)
    if NUM_RANKS % (data * shard) == 0
]
OPTIMIZERS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def optimizer_of(combination):
    return "adamw" if COMBINATIONS.index(combination) % 3 else "sgd"


def one_process(optimizer):
    gpt = initialized(MODEL).double()
    of = {"adamw": {"weight_decay": 0.01}, "sgd": {}}[optimizer]
    stepping = OPTIMIZERS[optimizer](gpt.parameters(), lr=LEARNING_RATE, **of)
    losses = []
    for step in range(1, STEPS + 1):
        gpt.zero_grad()
        found = tokens(step)
        loss = torch.nn.functional.cross_entropy(gpt(found[:, :-1]).flatten(0, 1), found[:, 1:].flatten())
        loss.backward()
        stepping.step()
        losses.append(float(loss.detach()))
    return losses, {name: parameter.detach() for name, parameter in gpt.named_parameters()}


@pytest.fixture(scope="module")
def references():
    return {optimizer: one_process(optimizer) for optimizer in OPTIMIZERS}


@pytest.fixture(scope="module")
def found(module_job, make_plan):
    cases = {}
    for data, shard, tensor in COMBINATIONS:
        training = {"globalBatch": BATCH, "microBatch": 2, "precision": "fp32", "steps": 9}
        cases[str((data, shard, tensor))] = make_plan(
            (1,) * NUM_RANKS,
            version=3,
            layout={"data": data, "shard": shard, "tensor": tensor, "pipeline": 1},
            shares=SHARES[data],
            training={**training, "optimizer": optimizer_of((data, shard, tensor))},
        )
    return found_by_ranks(module_job, make_plan((1,) * NUM_RANKS), SCRIPT, cases, NUM_RANKS)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_replicas_of_several_ranks_equal_one_process(found, references, combination):
    losses, parameters = references[optimizer_of(combination)]
    for rank, own in enumerate(each[str(combination)] for each in found):
        assert own["losses"] == pytest.approx(losses, rel=1e-12)
        trained = {name: values for name, values in own["state"].items() if not name.startswith("optimizer.")}
        assert sum(values.numel() for values in trained.values()) == sum(map(torch.numel, parameters.values()))
        for name, values in trained.items():
            expected = in_one(parameters, name)
            assert float((values - expected).abs().max()) < TOLERANCE, name
            gathered = own["gathered"][name]
            assert gathered is None if rank % (combination[1] * combination[2]) else torch.equal(gathered, values)


def in_one(parameters, name):
    """What a parameter is in the GPT of one process."""
    block, _, kind = name.rpartition(".")
    block, _, layer = block.rpartition(".")
    if layer in ("q", "k", "v"):
        return parameters[f"{block}.qkv.{kind}"].chunk(3)["qkv".index(layer)]
    return parameters[name]
