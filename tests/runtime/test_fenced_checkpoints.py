"""Checkpoints are whole or absent, old attempts are fenced, damage is noticed."""

import os
from importlib.util import find_spec

import pytest
from hulk_operator.api.hulkjob import STORES
from hulk_runtime.checkpoints.fenced_checkpoints import Checkpoints
from hulk_runtime.checkpoints.object_store import PACKAGES, Store
from hulk_runtime.checkpoints.signing import NOBODY
from hulk_runtime.errors import CheckpointError, ConfigurationError, FencedError

CONTENT = {"parameters": 1, "optimizer": "sgd", "lossScale": 1.0}


@pytest.fixture(params=["file", "s3"])
def store(request, tmp_path) -> Store:
    """Every rule holds on a file system and on a real S3 server."""
    if request.param == "file":
        return Store(f"file://{tmp_path}/run")
    request.getfixturevalue("s3_environment")
    return Store(f"s3://checkpoints/{tmp_path.name}")


def attempt(store: Store, number: int, num_kept: int = 2) -> Checkpoints:
    return Checkpoints(store, number, num_kept, NOBODY)


def states(store: Store) -> list[str]:
    return [key for key in store.list_keys() if key.startswith("state")]


def test_a_first_attempt_finds_nothing(store):
    assert attempt(store, 1).begin() is None


def test_the_newest_complete_checkpoint_is_resumed(store):
    first = attempt(store, 1)
    first.begin()
    for step in (5, 10, 15):
        first.commit(step, f"state {step}".encode(), CONTENT)
    entry, state = attempt(store, 2).begin()
    assert (entry.step, entry.attempt, state, entry.num_bytes) == (15, 1, b"state 15", 8)
    assert entry.content == CONTENT


def test_only_the_newest_are_kept_across_attempts(store):
    first = attempt(store, 1)
    first.begin()
    for step in (5, 10, 15):
        first.commit(step, b"s", CONTENT)
    assert states(store) == ["state-00000001-0000000010", "state-00000001-0000000015"]
    second = attempt(store, 2)
    second.begin()
    second.commit(20, b"s", CONTENT)
    assert states(store) == ["state-00000001-0000000015", "state-00000002-0000000020"]


def test_an_older_attempt_cannot_commit_after_a_newer_has_begun(store):
    old = attempt(store, 1)
    old.begin()
    old.commit(5, b"five", CONTENT)
    new = attempt(store, 2)
    new.begin()
    with pytest.raises(FencedError, match="attempt 2 has begun"):
        old.commit(10, b"ten", CONTENT)
    with pytest.raises(FencedError):
        attempt(store, 1).begin()
    entry, state = attempt(store, 3).begin()
    assert (entry.step, state) == (5, b"five")


class Interrupted(Store):
    """Runs `between` once, right after the object whose key starts with `after` was written."""

    def __init__(self, url, after, between):
        super().__init__(url)
        self._after = after
        self._between = between

    def write(self, key, content):
        super().write(key, content)
        if self._between and key.startswith(self._after):
            between, self._between = self._between, None
            between()


@pytest.mark.parametrize(("after", "expected_step"), [("state-", 5), ("latest-", 10)])
def test_what_a_newer_attempt_resumed_from_stays_whatever_the_older_one_still_writes(store, after, expected_step):
    """Attempt 2 begins between two writes of attempt 1's commit: before its manifest, then after it."""
    first = attempt(store, 1, num_kept=1)
    first.begin()
    first.commit(5, b"five", CONTENT)
    resumed = []
    overtaken = Interrupted(store.url, after, lambda: resumed.append(attempt(store, 2).begin()[0].step))
    late = attempt(overtaken, 1, num_kept=1)
    late.begin()
    with pytest.raises(FencedError):
        late.commit(10, b"ten", CONTENT)
    assert resumed == [expected_step]
    assert attempt(store, 3).begin()[0].step == expected_step


def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(store, capsys):
    first = attempt(store, 1)
    first.begin()
    first.commit(5, b"five", CONTENT)
    first.commit(10, b"ten", CONTENT)
    store.write("state-00000001-0000000010", b"te")
    entry, state = attempt(store, 2).begin()
    assert (entry.step, state) == (5, b"five")
    assert "has 2 bytes, and 3 were written" in capsys.readouterr().out


def test_a_run_whose_checkpoints_are_all_damaged_does_not_start_again_in_silence(store):
    first = attempt(store, 1)
    first.begin()
    first.commit(5, b"five", CONTENT)
    store.delete("state-00000001-0000000005")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* is intact: step 5 of attempt 1"):
        attempt(store, 2).begin()


def test_without_an_older_checkpoint_a_damaged_manifest_does_not_start_the_run_again_in_silence(store):
    attempt(store, 1).begin()
    store.write("latest-00000001", b"{")
    with pytest.raises(CheckpointError, match=r"no intact manifest in .*; latest-00000001 is damaged: Invalid JSON"):
        attempt(store, 2).begin()


@pytest.mark.parametrize("damaged", [["latest"], ["latest", "resume"]])
@pytest.mark.parametrize("content", [b"", b"{", bytes(100)], ids=["empty", "cut", "zeros"])
def test_a_damaged_manifest_is_passed_over_for_an_older_one(store, capsys, damaged, content):
    first = attempt(store, 1)
    first.begin()
    first.commit(5, b"five", CONTENT)
    first.commit(10, b"ten", CONTENT)
    second = attempt(store, 2)
    second.begin()
    second.commit(15, b"fifteen", CONTENT)
    for kind in damaged:
        store.write(f"{kind}-00000002", content)
    entry, state = attempt(store, 3).begin()
    assert (entry.step, state) == (10, b"ten")
    printed = capsys.readouterr().out
    assert all(f"{kind}-00000002 is damaged" in printed for kind in damaged)
    assert attempt(store, 4).begin()[0].step == 10


def test_an_unfinished_write_is_not_seen(tmp_path):
    store = Store(f"file://{tmp_path}/run")
    attempt(store, 1).begin()
    (tmp_path / "run" / "latest-00000001.tmp").write_bytes(b"half")
    assert attempt(store, 2).begin() is None


def test_a_file_has_reached_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    synced = []

    def fsync(number):
        synced.append((os.fstat(number).st_size, sorted(os.listdir(tmp_path))))

    monkeypatch.setattr(os, "fsync", fsync)
    Store(f"file://{tmp_path}").write("key", b"whole")
    assert synced == [(5, ["key.tmp"])]
    assert os.listdir(tmp_path) == ["key"]


def test_what_killed_and_failed_writes_leave_is_removed_by_whoever_writes_next(tmp_path):
    store = Store(f"file://{tmp_path}")
    left = {number: tmp_path / f"state-{number:08d}-0000000005.tmp" for number in (1, 2, 3)}

    def leave():
        for path in left.values():
            path.write_bytes(b"half")

    leave()
    second = attempt(store, 2)
    second.begin()
    assert store.list_unfinished() == [left[3].name]  # a newer attempt may be at it
    leave()
    second.commit(10, b"ten", CONTENT)
    assert store.list_unfinished() == [left[3].name]


def test_a_store_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot list file://.*/file/run"):
        attempt(Store(f"file://{tmp_path}/file/run"), 1).begin()


LACKING = sorted(scheme for scheme, package in PACKAGES.items() if find_spec(package) is None)


@pytest.mark.parametrize("scheme", LACKING)
def test_a_store_whose_package_the_image_lacks_ends_the_job_with_its_name(scheme):
    with pytest.raises(ConfigurationError) as caught:
        Store(f"{scheme}://bucket/run")
    package = PACKAGES[scheme]
    assert f"the worker's image lacks the Python package {package}, which {scheme}:// needs" in str(caught.value)
    assert f"pip install {package}" in str(caught.value)


def test_every_scheme_that_a_job_may_name_has_its_package_and_the_image_ships_that_of_s3():
    assert PACKAGES.keys() == set(STORES)
    assert "gs" in LACKING
    assert not {"s3", "s3a", "webhdfs"} & set(LACKING)


def test_a_stores_host_comes_from_its_url_and_other_mistakes_are_named():
    assert Store("webhdfs://namenode:9870/run")._files.url == "http://namenode:9870/webhdfs/v1"
    with pytest.raises(ConfigurationError, match="checkpoint URL nosuch://a/b: ValueError: Protocol not known"):
        Store("nosuch://a/b")


def test_a_bucket_that_is_not_there_and_wrong_keys_are_named(s3_environment, monkeypatch):
    with pytest.raises(CheckpointError, match=r"cannot write s3://nosuch/run/begun-00000001.*bucket does not exist"):
        attempt(Store("s3://nosuch/run"), 1).begin()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(CheckpointError, match="cannot list s3://checkpoints/wrong/: PermissionError"):
        attempt(Store("s3://checkpoints/wrong"), 1).begin()


def test_a_job_resumes_from_an_object_store(job, make_plan, make_training, s3_environment):
    settings = {"HULK_CHECKPOINT_URL": "s3://checkpoints/job", "HULK_JOB_UID": "u-1"}
    job.run_ranks(make_plan((1, 1), training=make_training(steps=2)), **settings)
    first, _ = job.run_ranks(make_plan((1, 1), attempt=2, training=make_training(steps=3)), **settings)
    assert list(first.losses()) == [3]
    assert "where=s3://checkpoints/job/u-1/state-00000002-0000000003" in first.output
