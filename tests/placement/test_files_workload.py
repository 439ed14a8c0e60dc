"""workload.yaml: every way to say a model, what comes back, and wishes that exclude each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from file_worlds import topologies, workloads
from hulk_placement.files import text
from hulk_placement.files.moving import to_moving
from hulk_placement.files.topology import TopologyFile
from hulk_placement.files.topology_reading import to_topology
from hulk_placement.files.workload import WorkloadFile
from hulk_placement.files.workload_reading import read_workload, to_workload
from hulk_placement.layer_pins import LayerPin
from hulk_placement.model import Layer, LayerTimes, Model, TimesRow, Transformer
from hulk_placement.model.presets import preset
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workload_writing import workload_document

TOPOLOGY: Topology = to_topology(
    text.parse(
        TopologyFile,
        text.load("""
apiVersion: hulk.dev/files/v1
kind: Topology
machines:
  - {name: a, count: 2, region: eu, accelerators: 4, pricePerHour: 2}
  - {name: b, region: us, accelerators: 8, pricePerHour: 3}
"""),
        "topology.yaml",
    )
).topology

HEAD = "apiVersion: hulk.dev/files/v1\nkind: Workload\nname: job\n"
GPT = "model: {transformer: {layers: 4, hidden: 16, heads: 2, sequenceLength: 8, vocabulary: 32}}\n"
TRAINING = "training: {globalBatch: 64}\n"


def read(said: str, folder: Path | None = None, topology: Topology = TOPOLOGY) -> Workload:
    return to_workload(text.parse(WorkloadFile, text.load(HEAD + said), "w.yaml"), topology, folder, "w.yaml").workload


def test_what_is_not_said_is_the_planners_to_choose() -> None:
    workload = read(GPT + TRAINING)
    assert workload.candidates == {"a-0": 4, "a-1": 4, "b": 8}
    assert (workload.min_workers, workload.max_workers, workload.accelerators_per_worker) == (1, 16, 1)
    assert (workload.data, workload.pipeline, workload.tensor) == (None, None, None)
    assert (workload.micro_batch, workload.recompute, workload.objective) == (None, None, "time")
    assert workload.model == Model.of(Transformer(4, 16, 2, 8, 32), "fp32")


def test_everything_can_be_said() -> None:
    workload = read(
        GPT
        + """
training: {globalBatch: 64, microBatch: 2, precision: bf16, optimizer: sgd, steps: 100, recompute: true}
parallelism: {data: 2, pipeline: 2, tensor: 2, schedule: gpipe}
workers: {min: 2, max: 4, acceleratorsPerWorker: 4}
sync: {mode: local, innerSteps: 7, compression: int8, onRegionLoss: continue, fixedShares: true, encryption: none}
objective: throughputPerMoney
constraints:
  allowedRegions: [eu, us]
  deniedMachines: [a-1]
  pins:
    - {layers: "0-2,4", regions: [eu]}
    - {parameters: norm.*, machines: [b], regions: [eu]}
  maxPricePerHour: 50
  allowUnknownLinks: true
measuredSpeeds: [{machine: b, flopsPerSecond: 1e13}]
likelySpeeds: [{machine: a-0, flopsPerSecond: 2e13}]
priority: 3
"""
    )
    assert workload.candidates == {"a-0": 1, "b": 2}
    assert workload.regions == ("eu", "us")
    assert (workload.data, workload.pipeline, workload.tensor, workload.recompute) == (2, 2, 2, True)
    assert workload.schedule == "gpipe"
    assert workload.layer_pins == (LayerPin((0, 1, 2, 4), ("eu",)), LayerPin((5,), ("eu",), ("b",)))
    assert (workload.objective, workload.max_price_per_hour) == ("throughput-per-money", 50)
    assert (workload.sync.mode, workload.sync.inner_steps, workload.sync.compression) == ("local", 7, "int8")
    assert workload.sync.encryption == "none"
    assert (workload.flops_per_s, workload.likely_flops_per_s) == ({"b": 1e13}, {"a-0": 2e13})
    assert (workload.allow_unknown_links, workload.priority) == (True, 3)


CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4} | {
    "intermediate_size": 128,
    "max_position_embeddings": 256,
    "vocab_size": 100,
}
PROFILE = {
    "layers": [
        {"name": "embed", "parameterBytes": 400, "outputBytes": 8, "activationBytes": 0},
        {"name": "block", "count": 3, "parameters": 50, "outputBytes": 8, "activationBytes": 16},
    ],
    "times": [{"product": "T4", "microBatch": 2, "forwardSeconds": [0.0, 0.5], "backwardSeconds": [0, 1, 1, 1]}],
}
PROFILED = Model(
    (Layer("embed", 100, 0, 0, 8, 0), *(Layer(f"block.{number}", 50, 0, 0, 8, 16) for number in range(3))),
    times=LayerTimes((TimesRow("T4", 2, 1, (0.0, 0.5, 0.5, 0.5), (0.0, 1.0, 1.0, 1.0)),)),
)


@pytest.mark.parametrize("is_file", [False, True])
def test_a_model_is_in_the_document_or_in_a_file_beside_it(tmp_path: Path, is_file: bool) -> None:
    (tmp_path / "parts").mkdir()
    for key, value, expected in (("huggingFace", CONFIG, None), ("profile", PROFILE, PROFILED)):
        said: dict[str, Any] = {key: value}
        if is_file:
            (tmp_path / "parts" / "it").write_text(json.dumps(value))
            said = {"configFile" if key == "huggingFace" else "profileFile": "parts/it"}
        path = tmp_path / "workload.yaml"
        path.write_text(HEAD + TRAINING + yaml.safe_dump({"model": said}))
        model = read_workload(path, TOPOLOGY).workload.model
        assert model == (expected or read(f"{TRAINING}model: {{huggingFace: {json.dumps(CONFIG)}}}").model)
        assert model.num_layers == 4


def test_the_older_form_of_a_profile_is_read_from_a_file(tmp_path: Path) -> None:
    layers = [{"parameters": 5, "flopsPerSequence": 30, "activationBytesPerSequence": 4}]
    (tmp_path / "p.json").write_text(json.dumps({"layers": layers}))
    model = read(f"{TRAINING}model: {{profileFile: p.json}}", tmp_path).model
    assert (model.num_parameters, model.flops_per_sequence) == (5, 30)


def test_a_preset_may_have_shorter_sequences() -> None:
    workload = read("model: {preset: gpt2, sequenceLength: 128}\ntraining: {globalBatch: 8, precision: bf16}")
    assert workload.model == Model.of(preset("gpt2", 128), "bf16")


SHORT_PROFILE = (
    "sequenceLength: 8, layers: [{name: x, parameters: 100, outputBytes: 4, activationBytes: 8, forwardFlops: 16}]"
)


@pytest.mark.parametrize(
    ("model", "length", "trained"),
    [
        ("{preset: gpt2, sequenceLength: 128, trainable: {share: 0.01}}", 128, 0.01),
        ("{preset: llama-3-8b, trainable: {parameters: [lm_head, '*.layers.31.*']}}", 8192, 0.0926),
        (GPT.removeprefix("model: ").strip()[:-1] + ", sequenceLength: 4, trainable: {share: 0.5}}", 4, 0.5),
        (
            f"{{profile: {{{SHORT_PROFILE}}}, sequenceLength: 4, trainable: {{share: 0.2}}}}",
            4,
            0.2,
        ),
    ],
    ids=["preset", "patterns", "dimensions", "profile"],
)
def test_a_length_and_what_is_trained_stand_beside_any_form_and_come_back(
    model: str, length: int, trained: float
) -> None:
    workload = read(f"model: {model}\ntraining: {{globalBatch: 8, precision: bf16}}")
    found = workload.model
    assert found.sequence_length == length
    assert found.num_trained / found.num_parameters == pytest.approx(trained, abs=0.002)
    written = text.dump(workload_document(workload, num_steps=5))
    again = to_workload(text.parse(WorkloadFile, text.load(written), "w.yaml"), TOPOLOGY).workload
    assert again.model.layers == found.layers
    assert again.digest == workload.digest


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_workload_comes_back_from_its_document(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    workload = data.draw(workloads(topology))
    written = text.dump(workload_document(workload, num_steps=5))
    found = to_workload(text.parse(WorkloadFile, text.load(written), "w.yaml"), topology)
    assert found.workload == workload
    assert found.num_steps == 5


MISTAKES = yaml.safe_load((Path(__file__).parent / "golden" / "bad-workloads.yaml").read_text())


@pytest.mark.parametrize(
    ("said", "expected"), [(entry["said"], entry["expected"]) for entry in MISTAKES], ids=[e["name"] for e in MISTAKES]
)
def test_a_mistake_is_told_with_its_place_and_figure(tmp_path: Path, said: str, expected: str) -> None:
    document = {**yaml.safe_load(HEAD + GPT + TRAINING), **yaml.load(said, yaml.SafeLoader)}
    path = tmp_path / "workload.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ValueError, match=r"workload\.yaml") as caught:
        read_workload(path, TOPOLOGY)
    assert str(caught.value).startswith(str(path))
    assert expected in str(caught.value)


def test_money_needs_prices() -> None:
    free = to_topology(
        text.parse(
            TopologyFile,
            {"apiVersion": "hulk.dev/files/v1", "kind": "Topology", "machines": [{"name": "a", "region": "eu"}]},
            "t.yaml",
        )
    ).topology
    with pytest.raises(ValueError, match="objective: the topology states no price"):
        read(GPT + TRAINING + "objective: throughputPerMoney", topology=free)


def test_machines_without_a_price_are_left_out_where_prices_decide() -> None:
    """What is free in the file would win every comparison by money, whatever else it lacks."""
    machines = [{"name": "a", "region": "eu"}, {"name": "b", "region": "eu", "pricePerHour": 2}]
    document = {"apiVersion": "hulk.dev/files/v1", "kind": "Topology", "machines": machines}
    mixed = to_topology(text.parse(TopologyFile, document, "t.yaml")).topology
    asked = GPT + TRAINING
    assert read(asked, topology=mixed).candidates == {"a": 1, "b": 1}
    for wish in ("objective: throughputPerMoney", "constraints: {maxPricePerHour: 3}"):
        assert read(asked + wish, topology=mixed).candidates == {"b": 1}
    with pytest.raises(ValueError, match=r"maxPricePerHour 1 and workers\.min exclude each other"):
        read(asked + "constraints: {maxPricePerHour: 1}", topology=mixed)


def test_a_price_that_is_just_at_its_limit_is_within_it() -> None:
    """0.1 an hour three times is 0.30000000000000004 in floating point."""
    machines = tuple(replace(machine, price_per_hour=0.1) for machine in TOPOLOGY.machines)
    said = GPT + TRAINING + "workers: {min: 3}\nconstraints: {maxPricePerHour: 0.3}"
    assert read(said, topology=replace(TOPOLOGY, machines=machines)).max_price_per_hour == 0.3


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        read(f"{TRAINING}model: {{configFile: none.json}}", tmp_path)


def test_a_checkpoint_may_be_as_large_as_models_are() -> None:
    """Of 70 thousand million parameters with AdamW's two moments, 840 GB."""
    document = text.parse(
        WorkloadFile, text.load(HEAD + GPT + TRAINING + "moving: {checkpointBytes: 840000000000}\n"), "w.yaml"
    )
    assert to_moving(document.moving).checkpoint_bytes == 840_000_000_000
