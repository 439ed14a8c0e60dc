"""A HulkJob becomes the planner's workload, or a reason and a sentence."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hulk_operator.api import HulkJob
from hulk_operator.inputs.placement_constraints import UnusableJobError
from hulk_operator.inputs.workloads import (
    Situation,
    model_reference,
    to_model,
    to_workload,
)
from hulk_placement.model import Transformer
from hulk_placement.sync import Rounds, Sync
from hulk_placement.workload import Workload

ROOT = Path(__file__).parents[2]
FIFTH = 6  # of the steps of job()
SITUATION = Situation(attempt=3, candidates={"a": 2, "b": 1}, priority=7)
GPT2_TINY = {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 32, "vocab_size": 256}
GPT, LAUNCH = "hulk_runtime.examples.gpt", "/opt/hulk/bin/hulk-launch"
LLAMA_TINY = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 32,
    "vocab_size": 256,
}
TIMES_ONLY: dict[str, Any] = {
    "layers": [{"name": "h.0", "parameters": 10, "outputBytes": 1, "activationBytes": 7}],
    "times": [{"product": "T4", "microBatch": 1, "forwardSeconds": [0.1], "backwardSeconds": [0.2]}],
}


def job(**changes: Any) -> HulkJob:
    document = yaml.safe_load((ROOT / "examples" / "hulkjob.yaml").read_text())
    document["metadata"] |= {"namespace": "research", "creationTimestamp": "2026-01-02T03:04:05Z"}
    document["spec"] |= changes
    return HulkJob.model_validate(document)


def workload(found: HulkJob, situation: Situation = SITUATION) -> Workload:
    return to_workload(found, to_model(found.spec), situation)


def test_every_word_of_the_spec_arrives() -> None:
    placement = {"regions": ["eu"], "workerNodes": ["a"] * 5, "allowUnknownLinks": True}
    training = {"globalBatch": 24, "microBatch": 2, "precision": "bf16", "optimizer": "sgd", "steps": 5}
    found = workload(job(placement=placement, training=training))
    assert (found.key, found.attempt, found.priority) == ("research/demo", 3, 7)
    assert (found.min_workers, found.max_workers, found.accelerators_per_worker) == (5, 6, 1)
    assert (found.global_batch, found.micro_batch, found.precision, found.optimizer) == (24, 2, "bf16", "sgd")
    assert (found.regions, found.pins, found.allow_unknown_links) == (("eu",), ("a",) * 5, True)
    assert found.candidates == {"a": 2, "b": 1}
    assert found.created_s == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(("data", "per_worker", "expected"), [(None, 2, (1, 4)), (4, 2, (2, 2)), (3, 1, (3, 3))])
def test_data_is_the_number_of_ranks(data: int | None, per_worker: int, expected: tuple[int, int]) -> None:
    workers = {"min": 1, "max": 4, "acceleratorsPerWorker": per_worker}
    found = workload(job(workers=workers, parallelism={"data": data} if data else {}))
    assert (found.min_workers, found.max_workers) == expected


def test_the_default_jobs_model_has_about_1_3_million_parameters() -> None:
    model = to_model(job().spec)
    assert 1_250_000 < model.num_parameters < 1_350_000


def test_a_gpt2_config_and_the_same_dimensions_are_one_model_but_for_the_names_of_layers() -> None:
    transformer = {"layers": 2, "hidden": 64, "heads": 4, "sequenceLength": 32, "vocabulary": 256}
    spec = job(model={"huggingFace": {"configMap": "m", "key": "config.json"}}).spec
    reference = model_reference(spec)
    assert reference is not None
    assert (reference.config_map, reference.key) == ("m", "config.json")
    by_config = to_model(spec, json.dumps(GPT2_TINY))
    by_dimensions = to_model(job(model={"transformer": transformer}).spec)
    assert [replace(layer, name="") for layer in by_config.layers] == [
        replace(layer, name="") for layer in by_dimensions.layers
    ]
    assert by_config.shape == by_dimensions.shape == Transformer(2, 64, 4, 32, 256)
    assert len({to_workload(job(), model, SITUATION).digest for model in (by_config, by_dimensions)}) == 1


def test_a_config_of_another_architecture_is_counted_as_it_is_and_has_no_shape_to_train() -> None:
    model = to_model(job(model={"huggingFace": {"configMap": "m", "key": "k"}}).spec, json.dumps(LLAMA_TINY))
    attention, mlp = 2 * 64 * 64 + 2 * 64 * 32, 3 * 64 * 96
    assert model.num_parameters == 2 * 256 * 64 + 2 * (attention + mlp + 2 * 64) + 64
    assert [layer.name for layer in model.layers][1:] == ["model.layers.0", "model.layers.1", "lm_head"]
    assert model.shape is None


def test_a_profile_is_the_sum_of_its_layers() -> None:
    layer = {"parameters": 10, "flopsPerSequence": 100, "activationBytesPerSequence": 7}
    model = to_model(
        job(model={"profile": {"configMap": "m", "key": "p"}}).spec, json.dumps({"layers": [layer, layer]})
    )
    assert (model.num_parameters, model.flops_per_sequence, model.activation_bytes_per_sequence) == (20, 200.0, 14)
    assert model.shape is None
    assert [layer.output_bytes for layer in model.layers] == [7, 7]  # nobody said, and never free


def test_a_profile_brings_the_names_and_seconds_of_its_layers() -> None:
    layer = TIMES_ONLY["layers"][0] | {"forwardFlops": 100}
    text = json.dumps(TIMES_ONLY | {"layers": [layer]})
    model = to_model(job(model={"profile": {"configMap": "m", "key": "p"}}).spec, text)
    assert (model.layers[0].name, model.flops_per_sequence) == ("h.0", 300.0)
    assert model.times is not None
    assert model.times.seconds("T4", 2, 1) == ((0.2,), (0.4,))


PROFILE = {"layers": [{"name": "h.0", "parameters": 10, "outputBytes": 1, "activationBytes": 8, "forwardFlops": 100}]}
SHAPE = {"layers": 2, "hidden": 64, "heads": 4, "sequenceLength": 32, "vocabulary": 256}


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"transformer": SHAPE}, None),
        ({"huggingFace": {"configMap": "m", "key": "k"}}, json.dumps(GPT2_TINY)),
        ({"huggingFace": {"configMap": "m", "key": "k"}}, json.dumps(LLAMA_TINY)),
        ({"profile": {"configMap": "m", "key": "k"}}, json.dumps({**PROFILE, "sequenceLength": 32})),
    ],
    ids=["transformer", "gpt2", "llama", "profile"],
)
def test_a_length_beside_any_form_is_that_of_training(form: dict[str, Any], text: str | None) -> None:
    whole, half = (to_model(job(model=form | more).spec, text) for more in ({}, {"sequenceLength": 16}))
    assert (whole.sequence_length, half.sequence_length) == (32, 16)
    assert half.activation_bytes_per_sequence <= whole.activation_bytes_per_sequence / 2
    assert half.flops_per_sequence <= whole.flops_per_sequence / 2
    assert half.num_layers == whole.num_layers


@pytest.mark.parametrize(
    ("form", "text", "trainable", "expected"),
    [
        ({"transformer": SHAPE}, None, {"share": "0.25"}, 0.25),
        ({"transformer": SHAPE}, None, {"parameters": ["blocks.1"]}, 0.43),
        ({"huggingFace": {"configMap": "m", "key": "k"}}, json.dumps(LLAMA_TINY), {"parameters": ["lm_head"]}, 0.18),
        ({"profile": {"configMap": "m", "key": "k"}}, json.dumps(PROFILE), {"share": "0.5"}, 0.5),
    ],
)
def test_what_is_trained_of_any_form_decides_gradients(
    form: dict[str, Any], text: str | None, trainable: dict[str, Any], expected: float
) -> None:
    model = to_model(job(model=form | {"trainable": trainable}).spec, text)
    assert model.num_trained / model.num_parameters == pytest.approx(expected, abs=0.01)
    assert model.gradient_bytes == 4 * model.num_trained


@pytest.mark.parametrize(
    ("more", "form", "text", "words"),
    [
        ({"sequenceLength": 64}, "huggingFace", json.dumps(LLAMA_TINY), "sequence_length 64 is more than 32 positions"),
        ({"sequenceLength": 64}, "profile", json.dumps(PROFILE), "add sequenceLength to the profile"),
        (
            {"trainable": {"parameters": ["*.lora_A.*"]}},
            "huggingFace",
            json.dumps(LLAMA_TINY),
            "means none of the parameters that are counted (model.embed_tokens.weight, ",
        ),
    ],
)
def test_a_length_or_parameters_that_cannot_be_are_said(more: dict[str, Any], form: str, text: str, words: str) -> None:
    with pytest.raises(UnusableJobError) as caught:
        to_model(job(model={form: {"configMap": "m", "key": "k"}} | more).spec, text)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("huggingFace", "{", "ConfigMap m, key k holds no usable model"),
        ("huggingFace", "{}", "config.json has none of n_embd, hidden_size"),
        ("huggingFace", "[]", "holds no usable model"),
        ("huggingFace", "[" * 100_000, "holds no usable model"),
        ("huggingFace", json.dumps(GPT2_TINY | {"n_layer": float("inf")}), "holds no usable model"),
        (
            "huggingFace",
            json.dumps(GPT2_TINY | {"vocab_size": 10**310}),
            "vocab_size of 258 hex digits: must be",
        ),
        (
            "huggingFace",
            json.dumps(GPT2_TINY | {"n_layer": 1025}),
            "n_layer 1025: must be a whole number",
        ),
        ("profile", "[" * 100_000, "holds no usable model"),
        ("huggingFace", json.dumps(GPT2_TINY | {"n_head": 5}), "hidden 64 is no multiple of 5 heads"),
        ("huggingFace", json.dumps(LLAMA_TINY | {"num_key_value_heads": 3}), "no multiple of num_key_value_heads 3"),
        ("profile", "[]", "expected a JSON object, found a list"),
        ("profile", '{"layers": []}', "layers"),
        ("profile", json.dumps(TIMES_ONLY), "the layers need forwardFlops"),
        ("profile", '{"layers": [{"parameters": -1}]}', "layers.0.parameters"),
    ],
)
def test_a_text_that_is_no_model_is_said_with_its_config_map(form: str, text: str, expected: str) -> None:
    spec = job(model={form: {"configMap": "m", "key": "k"}}).spec
    with pytest.raises(UnusableJobError) as caught:
        to_model(spec, text)
    assert caught.value.reason == "InvalidModel"
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        (
            {"parallelism": {"shard": 2}, "sync": {"mode": "local"}},
            "UnsupportedLayout",
            "The job asks for shard 2, tensor 1 and sync.mode local, which exclude each other",
        ),
        (
            {"parallelism": {"tensor": 2}, "sync": {"onRegionLoss": "continue"}},
            "UnsupportedLayout",
            "The job asks for shard 1, tensor 2 and sync.onRegionLoss continue, which exclude each other",
        ),
        (
            {"parallelism": {"data": 3}, "workers": {"min": 1, "max": 4, "acceleratorsPerWorker": 2}},
            "UnsupportedLayout",
            "data 3, which is 3 / 2 workers",
        ),
        ({"parallelism": {"data": 4}}, "UnsupportedLayout", "from workers.min 5 to workers.max 6"),
        (
            {"parallelism": {"pipeline": 2}, "model": None},
            "UnsupportedLayout",
            "asks for pipeline 2 without spec.model",
        ),
        (
            {"checkpoint": {"storage": {"url": "s3://a", "regional": [{"region": "eu", "url": "s3://eu"}]}}},
            "UnsupportedStorage",
            "checkpoint.storage.regional, and its program is one of Hulk's own training loop, which saves whole states",
        ),
        (
            {"placement": {"pins": [{"layers": "0", "regions": ["eu"]}]}, "model": None},
            "InvalidPins",
            "it needs spec.model",
        ),
    ],
)
def test_what_this_version_cannot_do_is_refused_by_name(changes: dict[str, Any], reason: str, words: str) -> None:
    with pytest.raises(UnusableJobError) as caught:
        workload(job(**changes))
    assert caught.value.reason == reason
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "ring"),
        ({"mode": "local"}, "local"),
        ({"mode": "wan"}, "wan"),
        ({"onRegionLoss": "continue"}, "wan"),
        ({"compression": "bf16"}, "wan"),
    ],
)
@pytest.mark.parametrize("model", [{}, {"model": None}], ids=["counted", "unknown"])
@pytest.mark.parametrize("command", [["torchrun", "train.py"], [LAUNCH, "train.py"]], ids=["torchrun", "hulk-launch"])
def test_a_program_that_is_left_alone_has_the_ring_unless_it_asks_for_what_only_hulks_own_does(
    model: dict[str, Any], command: list[str], asked: dict[str, Any], expected: str
) -> None:
    template = {"spec": {"containers": [{"name": "worker", "image": "mine:1", "command": command}]}}
    assert workload(job(template=template, sync=asked, instrumentation="none", **model)).sync.mode == expected
    assert workload(job(template=template, sync=asked, **model)).sync.mode == asked.get("mode", "auto")


def test_hulks_own_programs_need_nothing_brought_in() -> None:
    template = {"spec": {"containers": [{"name": "worker", "image": "hulk:0.1.0", "command": ["python", "-m", GPT]}]}}
    assert workload(job(template=template, instrumentation="none")).sync.mode == "auto"


@pytest.mark.parametrize(
    ("asked", "command", "expected"),
    [
        (None, {"command": [LAUNCH, "-m", GPT]}, "planned"),
        (None, {"command": ["python"], "args": ["-u", "-m", GPT, "--learning-rate", "0.01"]}, "planned"),
        (None, {"command": ["sh", "-c", f"exec python -m {GPT}"]}, "planned"),
        (None, {"command": ["torchrun", "train.py"]}, "equal"),
        (None, {"command": [LAUNCH, "train.py"]}, "equal"),
        (None, {"command": ["python", "-m", "hulk_runtime.collective"]}, "equal"),
        (None, {}, "equal"),
        ("planned", {"command": ["torchrun", "train.py"]}, "planned"),
        ("equal", {"command": [LAUNCH, "-m", GPT]}, "equal"),
    ],
)
def test_shares_go_by_speed_where_the_program_is_known_to_weigh_them(
    asked: str | None, command: dict[str, Any], expected: str
) -> None:
    template = {"spec": {"containers": [{"name": "worker", "image": "hulk:0.1.0", **command}]}}
    training = {"globalBatch": 24, "steps": 5} | ({} if asked is None else {"shares": asked})
    assert workload(job(template=template, training=training)).shares == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["torchrun", "train.py"], True),
        ([LAUNCH, "train.py"], True),
        (["python", "-m", "torchtitan.train"], True),
        (["python", "-m", GPT], False),
        ([LAUNCH, "-m", GPT], False),
    ],
)
def test_torch_sums_the_layers_of_a_script_and_hulks_own_loop_buckets(command: list[str], expected: bool) -> None:
    template = {"spec": {"containers": [{"name": "worker", "image": "mine:1", "command": command}]}}
    found = workload(job(template=template, parallelism={"shard": 2}))
    assert (found.shard, found.sums_by_layer) == (2, expected)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, Sync()),
        ({"mode": "ring"}, Sync(mode="ring")),
        ({"mode": "local"}, Sync(mode="local", inner_steps=50, rounds=Rounds(warmup_steps=FIFTH))),
        (
            {"mode": "local", "local": {"innerSteps": 200, "warmupSteps": 0}},
            Sync(mode="local", inner_steps=200, rounds=Rounds()),
        ),
        (
            {
                "mode": "local",
                "local": {
                    "outerLearningRate": "0.5",
                    "outerMomentum": "0.8",
                    "fragments": 4,
                    "delaySteps": 3,
                    "warmupSteps": 9,
                },
            },
            Sync(mode="local", rounds=Rounds(0.5, 0.8, 1, 0, 9)),
        ),
        (
            {"mode": "wan", "compression": "int8", "onRegionLoss": "continue", "fixedShares": True},
            Sync(mode="wan", compression="int8", on_region_loss="continue", fixed_shares=True),
        ),
        ({"encryption": "none"}, Sync(encryption="none")),
    ],
)
def test_how_replicas_come_together_reaches_the_planner(asked: dict[str, Any], expected: Sync) -> None:
    """Of Hulk's own loop, which brings all layers together at once."""
    assert workload(job(sync=asked)).sync == expected


@pytest.mark.parametrize(
    ("steps", "local", "expected"),
    [(1000, {}, 200), (3, {}, 0), (None, {}, 0), (1000, {"warmupSteps": 0}, 0), (None, {"warmupSteps": 70}, 70)],
)
def test_replicas_begin_together_for_a_fifth_of_the_steps_unless_the_job_says_how_long(
    steps: int | None, local: dict[str, int], expected: int
) -> None:
    training = {"globalBatch": 24} | ({} if steps is None else {"steps": steps})
    asked = job(sync={"mode": "local", "local": local}, training=training)
    assert workload(asked).sync.rounds.warmup_steps == expected


@pytest.mark.parametrize(
    ("local", "compression", "expected"),
    [
        (None, {}, Rounds(fragments=None, delay_steps=None, any_precision=True)),
        ({"fragments": 4}, {}, Rounds(fragments=4, delay_steps=None, any_precision=True)),
        ({"delaySteps": 3}, {"compression": "none"}, Rounds(fragments=None, delay_steps=3)),
        ({"fragments": 4, "delaySteps": 0}, {"compression": "int4"}, Rounds(fragments=4, delay_steps=0)),
    ],
)
def test_what_a_script_s_job_leaves_out_of_its_rounds_is_the_planner_s(
    local: dict[str, int] | None, compression: dict[str, str], expected: Rounds
) -> None:
    container = {"name": "worker", "image": "own:1", "command": ["torchrun", "train.py"]}
    asked = {"mode": "local", **compression} | ({} if local is None else {"local": local})
    found = workload(job(sync=asked, template={"spec": {"containers": [container]}})).sync
    assert found.rounds == replace(expected, warmup_steps=FIFTH)
    assert found.precisions == (("none", "int8", "int4") if not compression else (compression["compression"],))


@pytest.mark.parametrize(
    ("asked", "allowed", "expected"),
    [
        ([], None, ()),
        (["eu", "us"], None, ("eu", "us")),
        ([], ("eu",), ("eu",)),
        (["eu", "us"], ("us", "ap"), ("us",)),
    ],
)
def test_residency_narrows_the_regions(
    asked: list[str], allowed: tuple[str, ...] | None, expected: tuple[str, ...]
) -> None:
    situation = Situation(1, {}, allowed_regions=allowed)
    assert workload(job(placement={"regions": asked}), situation).regions == expected


def test_residency_that_leaves_no_region_names_both_lists() -> None:
    with pytest.raises(UnusableJobError, match="asks for regions eu; jobs of namespace research may run only in us"):
        workload(job(placement={"regions": ["eu"]}), Situation(1, {}, allowed_regions=("us",)))
