"""The bundled GPT as replicas of several ranks equals the GPT of one process, in every combination of degrees of 8."""

import itertools
from pathlib import Path

import pytest
import torch
from depth import WHOLE
from hulk_runtime.examples.gpt_model import initialized
from pipeline_cases import found_by_ranks
from sharded_gpt_ranks import BATCH, LEARNING_RATE, MODEL, STEPS, model_of, tokens
from test_pipeline_training import schedule

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
SHORT = [(1, 2, 4), (1, 8, 1), (2, 2, 2), (4, 1, 2), (4, 2, 1)]
OF_STAGES = [
    (data, stages, shard, tensor)
    for stages in (2, 4, 8)
    for data, shard, tensor in itertools.product((1, 2, 4), repeat=3)
    if data * stages * shard * tensor == NUM_RANKS
]
"""Replicas, stages, shards and tensor ranks of each."""
SHORT_OF_STAGES = [(1, 2, 1, 4), (1, 4, 1, 2), (2, 2, 1, 2), (1, 2, 4, 1), (1, 4, 2, 1), (2, 2, 2, 1), (1, 2, 2, 2)]
ORDERS = {(1, 4, 2, 1): "gpipe", (1, 2, 2, 2): "explicit"}
"""Of some; of all others 1f1b."""
NUM_MICRO_BATCHES = {(2, 2, 2, 1): 6, (4, 2, 1, 1): 1}
"""Of some: so that one of two shards has no sequence of a micro-batch, or a replica one for each."""
OPTIMIZERS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def optimizer_of(number):
    return "sgd" if number % 3 == 1 else "adamw"


def one_process(optimizer, model=MODEL):
    gpt = initialized(model).double()
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
    def plan(data, optimizer, layout, **changes):
        training = {"globalBatch": BATCH, "microBatch": 2, "precision": "fp32", "steps": STEPS, "optimizer": optimizer}
        return make_plan(
            (1,) * NUM_RANKS,
            version=3,
            layout={"data": data, "shard": 1, "pipeline": 1, **layout},
            shares=SHARES[data],
            training=training,
            **changes,
        )

    cases = {}
    for number, (data, shard, tensor) in enumerate(COMBINATIONS):
        if WHOLE or (data, shard, tensor) in SHORT:
            of = {"shard": shard, "tensor": tensor}
            cases[str((data, shard, tensor))] = plan(data, optimizer_of(number), of)
    for number, combination in enumerate(OF_STAGES):
        if not WHOLE and combination not in SHORT_OF_STAGES:
            continue
        data, stages, shard, tensor = combination
        name = ORDERS.get(combination, "1f1b")
        pipeline = {
            "stages": [model_of(stages).layers + 2 - stages + n if n else 0 for n in range(stages)],
            "rings": [],
            "name": name,
            "schedule": schedule(name, stages, NUM_MICRO_BATCHES.get(combination, 3)),
        }
        of = {"pipeline": stages, "shard": shard, "tensor": tensor}
        cases[f"stages {combination}"] = plan(data, optimizer_of(number), of, pipeline=pipeline)
    return found_by_ranks(module_job, make_plan((1,) * NUM_RANKS), SCRIPT, cases, NUM_RANKS)


@pytest.mark.parametrize(
    ("number", "combination"),
    [
        pytest.param(number, one, id=str(one), marks=() if one in SHORT else pytest.mark.whole)
        for number, one in enumerate(COMBINATIONS)
    ],
)
def test_replicas_of_several_ranks_equal_one_process(found, references, number, combination):
    losses, parameters = references[optimizer_of(number)]
    for rank, own in enumerate(each[str(combination)] for each in found):
        assert own["losses"] == pytest.approx(losses, rel=1e-12)
        trained = {name: values for name, values in own["state"].items() if not name.startswith("optimizer.")}
        assert sum(values.numel() for values in trained.values()) == sum(map(torch.numel, parameters.values()))
        for name, values in trained.items():
            assert float((values - in_one(parameters, name)).abs().max()) < TOLERANCE, name
        if rank % (combination[1] * combination[2]):
            assert own["gathered"] == []
        else:
            whole = torch.cat([values.flatten() for values in parameters.values()])
            assert float((torch.cat(own["gathered"]) - whole).abs().max()) < TOLERANCE


@pytest.mark.parametrize(
    ("number", "combination"),
    [
        pytest.param(number, one, id=str(one), marks=() if one in SHORT_OF_STAGES else pytest.mark.whole)
        for number, one in enumerate(OF_STAGES)
    ],
)
def test_stages_of_several_ranks_equal_one_process(found, references, number, combination):
    _, stages, shard, tensor = combination
    model, optimizer = model_of(stages), optimizer_of(number)
    losses, parameters = references[optimizer] if model == MODEL else one_process(optimizer, model)
    num_values = 0
    for rank, own in enumerate(each[f"stages {combination}"] for each in found):
        assert own["losses"] == pytest.approx(losses, rel=1e-12)
        assert bool(own["stage"]) == (rank % (shard * tensor) == 0)
        for name, values in own["stage"].items():
            expected = in_one(parameters, of_layer(name, model.layers)).flatten()
            assert float((values - expected).abs().max()) < TOLERANCE, name
            num_values += values.numel() if rank < stages * shard * tensor else 0
    assert num_values == sum(map(torch.numel, parameters.values())) + MODEL.vocabulary * MODEL.hidden


def of_layer(name, num_blocks):
    """The name in the GPT of one process of a parameter of its list of layers."""
    layer, _, rest = name.partition(".")
    if int(layer) == num_blocks + 1:
        return "token.weight" if rest == "weight" else rest
    return f"blocks.{int(layer) - 1}.{rest}" if int(layer) else rest


def in_one(parameters, name):
    """What a parameter is in the GPT of one process."""
    block, _, kind = name.rpartition(".")
    block, _, layer = block.rpartition(".")
    if layer in ("q", "k", "v"):
        return parameters[f"{block}.qkv.{kind}"].chunk(3)["qkv".index(layer)]
    return parameters[name]
