"""The example's model has the size the planner counts; its text does not depend on the rank."""

import re

import pytest
import torch
from hulk_runtime.errors import ConfigurationError, DataError
from hulk_runtime.examples import text
from hulk_runtime.examples.byte_gpt import ByteTask
from hulk_runtime.examples.gpt_model import initialized
from hulk_runtime.plan import wire
from hulk_runtime.plan.wire import Model

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("layers", "hidden", "feed_forward", "vocabulary", "sequence"), [(1, 32, 64, 256, 16), (3, 48, None, 300, 32)]
)
def test_parameters_are_counted_as_the_planner_counts_them(layers, hidden, feed_forward, vocabulary, sequence):
    f = feed_forward or 4 * hidden
    attention, mlp, norms = 4 * hidden**2 + 4 * hidden, 2 * hidden * f + f + hidden, 4 * hidden
    expected = (vocabulary + sequence) * hidden + layers * (attention + mlp + norms) + 2 * hidden
    model = Model(
        layers=layers,
        hidden=hidden,
        heads=4,
        sequence_length=sequence,
        vocabulary=vocabulary,
        feed_forward=feed_forward,
    )
    assert sum(parameter.numel() for parameter in initialized(model).parameters()) == expected


@pytest.fixture
def task_of(make_plan, encode_plan):
    def make(**changes):
        return ByteTask(
            wire.decode(encode_plan(make_plan((1, 1), **changes))), CPU, 0.1, text.standard_library_source()
        )

    return make


def test_the_loss_of_a_batch_is_the_mean_over_its_parts(task_of):
    task = task_of()
    with torch.no_grad():
        whole = task.loss(3, range(4))
        parts = 0.75 * task.loss(3, range(3)) + 0.25 * task.loss(3, range(3, 4))
    assert float(whole) == pytest.approx(float(parts), rel=1e-5)
    assert float(whole) == pytest.approx(5.5, abs=0.3)  # ln 256 = 5.55: an untrained model knows nothing


def test_steps_see_different_text_and_every_process_sees_the_same(task_of):
    losses = [[float(task_of().loss(step, range(4)).detach()) for step in (1, 2)] for _ in range(2)]
    assert losses[0] == losses[1]
    assert losses[0][0] != losses[0][1]


def test_the_standard_library_is_read_without_links_to_files_that_a_container_lacks(tmp_path):
    (tmp_path / "b.py").write_text("b")
    (tmp_path / "a.py").write_text("a")
    (tmp_path / "sitecustomize.py").symlink_to("/nowhere/sitecustomize.py")
    assert text.standard_library_source(tmp_path).tobytes() == b"ab"


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (None, "needs spec.model.transformer"),
        ({"vocabulary": 255}, "vocabulary 255 must be >= 256"),
        ({"heads": 3}, "hidden 32 a multiple of heads 3"),
    ],
)
def test_a_model_it_cannot_train_is_refused(task_of, make_plan, model, complaint):
    dimensions = None if model is None else {**make_plan()["model"], **model}
    with pytest.raises(ConfigurationError, match=complaint):
        task_of(model=dimensions)


def test_text_comes_from_the_regions_own_copy(tmp_path):
    for region in ("north", "south"):
        (tmp_path / region).mkdir()
        for name in ("b.txt", "a.txt"):
            (tmp_path / region / name).write_text(f"{region} {name};")
    assert text.fetch(f"file://{tmp_path}/{{region}}/*.txt", "south").tobytes() == b"south a.txt;south b.txt;"


@pytest.mark.parametrize("source", ["/nowhere/*.txt", "/nowhere/a.txt", "/", "nosuch://a", "gs://a/b.txt"])
def test_text_that_cannot_be_there_is_the_users_error(source):
    with pytest.raises(ConfigurationError, match=f"data {re.escape(source)}"):
        text.fetch(source, "north")


class StoreError(Exception):
    """What no reader of text knows: object stores' exceptions have no common base, botocore's are no OSError."""


@pytest.mark.parametrize("url", ["s3://a/b", "/data/a.txt"])
@pytest.mark.parametrize("failure", [StoreError("SlowDown"), TimeoutError("timed out"), OSError(5, "I/O error")])
def test_text_that_cannot_be_read_just_now_is_tried_again(monkeypatch, url, failure):
    def refuse(*_):
        raise failure

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.cat_file", refuse)
    monkeypatch.setattr("s3fs.S3FileSystem.cat_file", refuse)
    with pytest.raises(DataError, match=re.escape(f"data {url}: {type(failure).__name__}: {failure}")):
        text.fetch(url, "north")


@pytest.mark.parametrize("url", ["memory://corpus/a.txt", "memory://corpus/*.txt"])
def test_a_stores_copy_may_still_be_on_its_way(url):
    with pytest.raises(DataError, match=re.escape(f"data {url}: FileNotFoundError")):
        text.fetch(url, "north")


def test_a_learning_rate_of_nothing_is_taken_as_asked(job, make_plan):
    """The loss then only moves with the batch."""
    first, _ = job.run_ranks(make_plan((1, 1)), "-m", "hulk_runtime.examples.gpt", "--learning-rate", "0")
    losses = [float(loss) for loss in first.losses().values()]
    assert losses[-1] > losses[0] - 0.1


def test_ranks_train_on_given_text(job, make_plan, tmp_path):
    """Text of one letter is learnt at once."""
    (tmp_path / "aaa.txt").write_text("a" * 1000)
    first, _ = job.run_ranks(
        make_plan((1, 1)), "-m", "hulk_runtime.examples.gpt", "--data", f"{tmp_path}/*.txt", "--learning-rate", "0.03"
    )
    assert float(first.losses()[6]) < 0.5
