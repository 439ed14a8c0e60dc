"""training.memory in a workload document: what it says, what excludes each other, and which keys are suggested."""

from __future__ import annotations

import pytest
from hulk_placement.files import text
from hulk_placement.files.topology import TopologyFile
from hulk_placement.files.topology_reading import to_topology
from hulk_placement.files.workload import WorkloadFile
from hulk_placement.files.workload_reading import ReadWorkload, to_workload
from hulk_placement.training_memory import TrainingMemory
from workload_writing import workload_document

HEAD = "apiVersion: hulk.dev/files/v1\n"
MODEL = "model: {transformer: {layers: 4, hidden: 16, heads: 2, sequenceLength: 8, vocabulary: 32}}\n"
PROFILE = (
    "model: {profile: {layers: [{name: x, parameters: 9, outputBytes: 1, activationBytes: 1, forwardFlops: 1}]}}\n"
)
TOPOLOGY = to_topology(
    text.parse(
        TopologyFile,
        text.load(HEAD + "kind: Topology\nmachines: [{name: a, count: 2, region: eu, accelerators: 4}]\n"),
        "topology.yaml",
    )
).topology


def read(memory: str, model: str = MODEL, more: str = "") -> ReadWorkload:
    said = f"{HEAD}kind: Workload\nname: job\n{model}training: {{globalBatch: 64, memory: {{{memory}}}}}\n{more}"
    return to_workload(text.parse(WorkloadFile, text.load(said), "w.yaml"), TOPOLOGY, None, "w.yaml")


def test_every_key_is_read_and_written() -> None:
    found = read(
        "frameworkGibibytes: 1.5, reserveShare: 0.1, weightBytes: 2, gradientBytes: 4, optimizerBytes: 12, "
        "bucketBytes: 0, sharded: optimizer, sequenceParallel: true, activationShares: [{tensor: 2, share: 0.6}]",
        more="parallelism: {data: 2}\n",
    ).workload
    assert found.memory == TrainingMemory(
        weight_bytes=2,
        gradient_bytes=4,
        optimizer_bytes=12,
        bucket_bytes=0,
        sharded="optimizer",
        is_sequence_parallel=True,
        activation_shares=((2, 0.6),),
        framework_bytes=1.5 * 2**30,
        reserve_share=0.1,
    )
    again = text.parse(WorkloadFile, text.load(text.dump(workload_document(found))), "again.yaml")
    assert to_workload(again, TOPOLOGY).workload.memory == found.memory


@pytest.mark.parametrize(("said", "parts"), [(18, (4, 4, 10, 0)), (16, (4, 4, 8, 0)), (6, (3, 3, 0, 0))])
def test_a_sum_is_divided_among_weights_gradients_and_states(said: int, parts: tuple[float, ...]) -> None:
    each = read(f"bytesPerParameter: {said}").workload.bytes_per_parameter
    assert (each.weights, each.gradients, each.optimizer, each.buckets) == parts
    assert each.total == said


def test_what_programs_keep_is_in_the_model_and_comes_back_with_it() -> None:
    plain, kept = (read(said).workload for said in ("", "dropout: true, bytesPerScore: 5, bytesPerLogit: 6"))
    assert kept.model.layers[1].activation_bytes != plain.model.layers[1].activation_bytes
    assert kept.model.layers[-1].activation_bytes == plain.model.layers[-1].activation_bytes - 2 * 8 * 32
    again = text.parse(WorkloadFile, text.load(text.dump(workload_document(kept))), "again.yaml")
    assert to_workload(again, TOPOLOGY).workload.model.layers == kept.model.layers


@pytest.mark.parametrize(
    ("memory", "model", "said"),
    [
        ("bytesPerParameter: 16, weightBytes: 2", MODEL, "bytesPerParameter is the sum of weightBytes"),
        ("frameworkBytes: 1, frameworkGibibytes: 1", MODEL, "framework memory is given more than once"),
        ("dropout: true", PROFILE, "dropout, bytesPerScore and bytesPerLogit exclude a profile"),
        ("sharded: zero", MODEL, "'zero' is none of none, optimizer, gradients, parameters"),
        (
            "activationShares: [{tensor: 2, share: 0.5}, {tensor: 2, share: 0.6}]",
            MODEL,
            "tensor degree 2 is there twice",
        ),
        ("reserveShare: 1.5", MODEL, "reserveShare: 1.5 should be less than or equal to 1"),
    ],
)
def test_mistakes_are_named(memory: str, model: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(memory, model)


def test_what_counts_whole_for_want_of_a_number_of_replicas_is_said() -> None:
    assert "until parallelism.data says how many replicas divide them" in read("sharded: optimizer").warnings[0]
    assert read("sharded: optimizer", more="parallelism: {data: 2}\n").warnings == ()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("memory: {framworkBytes: 1}", "memory.framworkBytes: no key of this document; did you mean frameworkBytes?"),
        ("memory: {activationShares: [{tensr: 2}]}", "[0].tensr: no key of this document; did you mean tensor?"),
        ("memory: {allowedRegions: 1}", "training.memory.allowedRegions: no key of this document\n"),
        ("weightBytes: 2", "training.weightBytes: no key of this document\n"),
    ],
)
def test_only_keys_of_the_place_are_suggested(document: str, said: str) -> None:
    values = text.load(f"{HEAD}kind: Workload\nname: job\n{MODEL}training: {{globalBatch: 64, {document}}}\n")
    with pytest.raises(ValueError, match="no key of this document") as caught:
        text.parse(WorkloadFile, values, "w.yaml")
    assert said in f"{caught.value}\n"
