"""What a training takes of an accelerator: every term that is stated or assumed only adds, and plans keep within it."""

from __future__ import annotations

import csv
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest
from hulk_placement.accelerators.framework_memory import NO_FRAMEWORK, framework_memory
from hulk_placement.cost.memory import cell_memory
from hulk_placement.model import Model, Transformer
from hulk_placement.model.architecture import AS_COUNTED, Kept
from hulk_placement.model.presets import preset
from hulk_placement.model.transformer import architecture
from hulk_placement.nccl import Nccl
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.search.problem import build
from hulk_placement.solution import Unplaced
from hulk_placement.topology import Machine, Topology
from hulk_placement.training_memory import SHARDED, TrainingMemory
from hulk_placement.workload import Workload
from hypothesis import given
from hypothesis import strategies as st

SHAPE = Transformer(layers=4, hidden=64, heads=4, sequence_length=32, vocabulary=96)
V100, H100 = framework_memory("Tesla-V100-SXM2-16GB"), framework_memory("NVIDIA-H100-80GB-HBM3")
AMOUNTS = st.floats(0, 64)


NOTHING_STATED = TrainingMemory()


def job(memory: TrainingMemory = NOTHING_STATED, kept: Kept = AS_COUNTED, **changes: Any) -> Workload:
    model = Model.of(replace(architecture(SHAPE), kept=kept), changes.get("precision", "fp32"))
    return Workload("t/job", model, 16, {"m": 8}, max_workers=8, memory=memory, **changes)


def total(asked: Workload, tensor: int = 2, recompute: bool = False, framework: Any = H100) -> float:
    """Bytes of a first stage of two, with two replicas."""
    plan = Plan(
        asked.key,
        1,
        tuple(WorkerSlot("m", "r", tensor) for _ in range(4)),
        (8, 8),
        2,
        1,
        NOT_PREDICTED,
        Layout(2, 2, tensor),
        stages=(0, 3),
        recompute=recompute,
    )
    return cell_memory(plan, asked, 0, 0, framework).total


@given(
    name=st.sampled_from(["weight_bytes", "gradient_bytes", "optimizer_bytes", "bucket_bytes", "framework_bytes"]),
    stated=AMOUNTS,
    more=AMOUNTS,
    tensor=st.sampled_from([1, 2, 4]),
    recompute=st.booleans(),
    precision=st.sampled_from(["fp32", "bf16"]),
)
def test_stating_more_never_counts_less(
    name: str, stated: float, more: float, tensor: int, recompute: bool, precision: str
) -> None:
    memories = (replace(NOTHING_STATED, **{name: amount}) for amount in (stated, stated + more))  # type: ignore[arg-type]
    few, many = (job(memory, precision=precision) for memory in memories)
    assert total(few, tensor, recompute) <= total(many, tensor, recompute)
    reserved = replace(many, memory=replace(many.memory, reserve_share=0.5))
    assert total(replace(many, memory=replace(many.memory, reserve_share=0.0)), tensor) <= total(reserved, tensor)


@given(
    kept=st.builds(Kept, score_bytes=st.none() | AMOUNTS, logit_bytes=AMOUNTS),
    tensor=st.sampled_from([1, 2, 4]),
    recompute=st.booleans(),
    precision=st.sampled_from(["fp32", "bf16"]),
)
def test_what_programs_keep_only_adds(kept: Kept, tensor: int, recompute: bool, precision: str) -> None:
    def bytes_of(changed: Kept) -> float:
        return total(job(kept=changed, precision=precision), tensor, recompute)

    plain = bytes_of(kept)
    assert plain <= bytes_of(replace(kept, has_dropout=True))
    assert plain <= bytes_of(replace(kept, logit_bytes=kept.logit_bytes + 4))
    if kept.score_bytes:
        assert plain <= bytes_of(replace(kept, score_bytes=kept.score_bytes + 1))


@given(st.sampled_from([1, 2, 4]), st.booleans())
def test_dividing_never_adds(tensor: int, recompute: bool) -> None:
    whole = total(job(), tensor, recompute)
    divided = [total(job(TrainingMemory(sharded=sharded)), tensor, recompute) for sharded in SHARDED]
    assert divided[0] == whole
    assert divided == sorted(divided, reverse=True)
    assert total(job(TrainingMemory(is_sequence_parallel=True)), tensor, recompute) <= whole


def test_replicas_that_are_not_counted_yet_divide_nothing() -> None:
    memory = TrainingMemory(sharded="parameters")
    assert job(memory).replica_bytes(1) == job().replica_bytes(1)
    eight = job(memory, data=8).bytes_per_parameter
    assert (eight.weights, eight.gradients, eight.optimizer, eight.buckets) == (0.5, 0.5, 1.0, 4)


def test_a_measured_share_of_activations_stands_before_what_is_counted() -> None:
    layer = job().model.layers[1]
    memory = TrainingMemory(activation_shares=((2, 0.75),))
    assert memory.kept_bytes(layer, 2) == 0.75 * layer.activation_bytes
    assert memory.kept_bytes(layer, 4) == TrainingMemory().kept_bytes(layer, 4)


@pytest.mark.parametrize(
    ("optimizer", "each"),
    [
        ("adamw", 8),
        ("adam", 8),
        ("sgd", 0),
        ("sgd-momentum", 4),
        ("adamw-bf16", 4),
        ("adamw-8bit", 2),
        ("adafactor", 0),
    ],
)
def test_optimizers_keep_their_states(optimizer: str, each: int) -> None:
    assert job(optimizer=optimizer).bytes_per_parameter.optimizer == each


def test_autocast_keeps_a_copy_of_weights() -> None:
    assert [job(precision=precision).bytes_per_parameter.weights for precision in ("fp32", "bf16", "fp16")] == [4, 6, 6]


def test_processors_and_unknown_products_have_no_framework() -> None:
    for product in ("unknown", "cpu", "x", "emulated", "small"):
        assert framework_memory(product) is NO_FRAMEWORK
    assert job().room_bytes(Machine("m", "r", memory_bytes=123)) == 123


def test_every_product_of_the_table_has_a_framework() -> None:
    table = resources.files("hulk_placement.accelerators").joinpath("products.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(table.splitlines()):
        found = framework_memory(row["product"])
        assert 300 << 20 <= found.context_bytes <= 700 << 20, row["product"]
        assert found.channel_bytes * found.inside_channels > 0
    assert framework_memory("NVIDIA-TITAN-RTX").context_bytes == framework_memory("Tesla-T4").context_bytes
    assert V100.context_bytes < H100.context_bytes


def test_what_is_left_for_tensors_and_the_framework_are_all_there_is() -> None:
    machine = Machine("m", "r", product="NVIDIA-H100-80GB-HBM3", memory_bytes=80 * 10**9)
    asked = job()
    for tensor in (1, 2):
        room = asked.room_bytes(machine, tensor)
        assert asked.overhead(H100, tensor).total(room) == pytest.approx(machine.memory_bytes)
        assert room < machine.memory_bytes
    over_nccl = replace(asked, stage_transport="nccl")
    alone = replace(over_nccl, max_workers=1)
    assert over_nccl.room_bytes(machine) < alone.room_bytes(machine) == asked.room_bytes(machine) < machine.memory_bytes


@pytest.mark.parametrize(
    ("algorithm", "stage_transport", "tensor", "num_channels"),
    [
        ("ring", None, 1, 0),
        ("ring", None, 2, 16),
        ("nccl", None, 1, 64),
        ("nccl", "nccl", 2, 80),
        ("ring", "nccl", 1, 64),
        ("nccl", "gloo", 1, 64),
        ("wan", "gloo", 1, 0),
    ],
)
def test_nccl_has_buffers_of_the_stated_channels_where_it_runs(
    algorithm: str, stage_transport: str | None, tensor: int, num_channels: int
) -> None:
    """10 MiB each; 16 channels inside a machine with NVLink, 64 stated between machines, none of gloo."""
    asked = replace(job(), nccl=Nccl(num_channels=64), stage_transport=stage_transport)
    without = H100.context_bytes + H100.workspace_bytes
    assert asked.overhead(H100, tensor, algorithm).fixed_bytes - without == num_channels * 10 << 20


@pytest.mark.parametrize(("product", "fits"), [("unknown", True), ("NVIDIA-A100-SXM4-40GB", False)])
def test_a_machine_whose_framework_leaves_too_little_is_refused(product: str, fits: bool) -> None:
    asked = job()
    machine = Machine("m", "r", num_accelerators=8, product=product, memory_bytes=asked.replica_bytes(1))
    found = build(asked, Topology((machine,)))
    assert isinstance(found, Unplaced) != fits
    if isinstance(found, Unplaced):
        assert found.reason == "NoMemory"
        assert "0.45 GiB of them the framework's and its allocator's" in found.message


def test_activations_of_a_block_follow_the_published_formula() -> None:
    """Korthikanti et al. 2022, equations 2 and 4: sbh (10 + 24/t) and sbh 34/t, here with fused attention."""
    described = replace(preset("gpt2", 1024), kept=Kept(has_dropout=True, score_bytes=0))
    block = Model.of(described, "bf16").layers[1]
    sbh = 1024 * 768
    scale = 1024 * 12 * 4  # one number a query and head
    for tensor in (1, 2, 4):
        plain = TrainingMemory().kept_bytes(block, tensor)
        assert plain == pytest.approx(sbh * (10 + 24 / tensor) + scale / tensor)
        divided = TrainingMemory(is_sequence_parallel=True).kept_bytes(block, tensor)
        assert divided == pytest.approx((sbh * 34 + scale) / tensor)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"weight_bytes": -1}, "weight_bytes -1 must be >= 0"),
        ({"sharded": "all"}, "sharded 'all' must be one of none, optimizer, gradients, parameters"),
        ({"reserve_share": 2}, "reserve, 2, must be between 0 and 1"),
        ({"activation_shares": ((2, 1.5),)}, "share 1.5 of activations at tensor degree 2"),
    ],
)
def test_what_cannot_be_is_refused(stated: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        TrainingMemory(**stated)
