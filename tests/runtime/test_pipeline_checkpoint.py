"""A checkpoint of one layout is resumed on others, and a job whose rank died goes on from its newest one."""

import io
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from hulk_placement.schedule.shapes import SHAPES
from hulk_runtime.errors import CheckpointError, PeerLostError
from hulk_runtime.examples.gpt_model import initialized
from hulk_runtime.examples.gpt_stages import gpt_layers, num_layers
from hulk_runtime.pipeline import checkpoint
from hulk_runtime.pipeline.stages import Layers
from pipeline_cases import give
from pipeline_gpt_ranks import MODEL, NUM_STEPS, batch, saved_apart
from pipeline_model import Momentum
from pipeline_schedules import backward_first, written

SCRIPT = str(Path(__file__).with_name("pipeline_gpt_ranks.py"))
NUM_RANKS = 4
KEPT = 1
"""Steps before the loss of a rank: two follow, so that the velocity counts as well."""


def case(shape, num_devices, **more):
    return {"schedule": written(SHAPES[shape](num_devices, 1.0, 2.0), 3, backward_first), "kind": "function", **more}


FIRST = {"4 stages": case("v", 4, saved="first")}
OTHERS = {
    "2 stages, 2 replicas": case("v", 2, replicas=2, saved="replicas"),
    "tensor 2": case("v", 2, tensor=2, saved="tensor"),
    "both directions": case("x", 4, saved="x"),
}


def start(job, make_plan, cases, **environment):
    give(job.folder, cases)
    return job.start_ranks(make_plan((1,) * NUM_RANKS), SCRIPT, str(job.folder), **environment)


def in_one_process(saved, step):
    """Losses from a checkpoint on, or from the first step, in this process."""
    model = Layers(gpt_layers(initialized(MODEL).double()), range(num_layers(MODEL)))
    optimizer = Momentum(model.parameters())
    slots = {"velocity": optimizer.velocities}
    if step:
        checkpoint.load(saved, step, model.named_parameters(), slots, saved_apart)
    front, back = model.layers[0].token.weight, model.layers[num_layers(MODEL) - 1].weight
    losses = []
    for number in range(step, NUM_STEPS):
        model.zero_grad()
        of = batch(number)
        loss = of.mean_loss(model(of.data)[0], of.targets)
        loss.backward()
        front.grad = back.grad = front.grad + back.grad
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.whole  # in short: such jobs with fenced checkpoints, in test_pipeline_training
def test_a_job_whose_rank_died_goes_on_and_other_layouts_do_the_same(job, make_plan):
    ranks = start(job, make_plan, FIRST, DIES_AT=str(KEPT))  # all of them: whoever comes first
    codes = [rank.wait() for rank in ranks]
    assert set(codes) <= {-9, PeerLostError.exit_code}
    assert -9 in codes
    saved = job.folder / "first"
    assert checkpoint.newest(saved) == KEPT
    (saved / "step-0000000099").mkdir()  # begun and not completed
    for other in OTHERS.values():
        shutil.copytree(saved, job.folder / other["saved"])
    expected = in_one_process(saved, KEPT)
    assert expected == pytest.approx(in_one_process(saved, 0)[KEPT:], rel=1e-13)

    cases = FIRST | OTHERS
    ranks = start(job, make_plan, cases)
    assert [rank.wait() for rank in ranks] == [0] * NUM_RANKS, "\n".join(rank.output for rank in ranks)
    found = [torch.load(job.folder / f"found-{rank}.pt", weights_only=False) for rank in range(NUM_RANKS)]
    for name in cases:
        for own in found:
            assert list(own[name]["losses"]) == list(range(KEPT, NUM_STEPS))
            assert list(own[name]["losses"].values()) == pytest.approx(expected, rel=1e-13), name


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    layer = torch.nn.Linear(2, 3)
    assert checkpoint.newest(tmp_path) is None
    checkpoint.save(tmp_path, 7, layer.named_parameters(), {})
    assert checkpoint.newest(tmp_path) == 7
    with pytest.raises(CheckpointError, match=r"cannot read .*step-0000000007: .*velocity"):
        checkpoint.load(tmp_path, 7, layer.named_parameters(), {"velocity": list(layer.parameters())})
    with pytest.raises(CheckpointError, match=r"cannot read .*weight"):
        checkpoint.load(tmp_path, 7, torch.nn.Linear(4, 3).named_parameters(), {})


class Attack:
    """What makes a directory when it is read."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_an_index_that_runs_code_is_refused(tmp_path):
    layer = torch.nn.Linear(2, 3)
    place = checkpoint.save(tmp_path, 7, layer.named_parameters(), {})
    (place / ".metadata").write_bytes(pickle.dumps(Attack(tmp_path / "made")))
    with pytest.raises(CheckpointError, match=r"cannot read .*: .metadata names posix.mkdir, which no index of"):
        checkpoint.load(tmp_path, 7, layer.named_parameters(), {})
    assert not (tmp_path / "made").exists()


def test_an_index_that_says_of_a_tensor_that_it_is_a_pickle_is_refused(tmp_path):
    """Torch reads such an entry as a pickle, whatever the model has under that name."""
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata

    layer = torch.nn.Linear(2, 3)
    place = checkpoint.save(tmp_path, 7, layer.named_parameters(), {})
    index = pickle.loads((place / ".metadata").read_bytes())
    content = io.BytesIO()
    torch.save(Attack(tmp_path / "made"), content)
    (file,) = place.glob("*.distcp")
    for number, (key, stored) in enumerate(list(index.storage_data.items())):
        index.state_dict_metadata[key.fqn] = BytesStorageMetadata()
        del index.storage_data[key]
        stored.offset, stored.length = 0, content.tell()
        index.storage_data[type(key)(key.fqn)] = stored
        assert number < 2
    file.write_bytes(content.getvalue())
    (place / ".metadata").write_bytes(pickle.dumps(index))
    with pytest.raises(CheckpointError, match=r"BytesStorageMetadata, which no index of tensors has"):
        checkpoint.load(tmp_path, 7, layer.named_parameters(), {})
    assert not (tmp_path / "made").exists()
