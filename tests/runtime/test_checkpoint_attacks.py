"""Somebody else writes to the bucket: what the job did not write is named, and never loaded."""

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hulk_runtime.checkpoints import signed_objects
from hulk_runtime.checkpoints.fenced_checkpoints import Checkpoints, Manifest
from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.checkpoints.signed_objects import MAX_SIGNED_BYTES
from hulk_runtime.checkpoints.signing import NOBODY, Owner
from hulk_runtime.errors import CheckpointError, FencedError

CONTENT = {"parameters": 1, "optimizer": "sgd", "lossScale": 1.0}
SECRET = bytes(range(32))


def owner(uid: str = "u-1", secret: bytes = SECRET, **changes: Any) -> Owner:
    return Owner.of_job("team/demo", uid, secret, **{"trusts_store": False, "committed_step": 0, **changes})


class Bucket:
    """The folder of a job whose attempts 1 and 2 have saved after steps 5 and 10, and 15 and 20."""

    def __init__(self, folder: Path, whose: Owner) -> None:
        self.folder = folder
        self.store = Store(f"file://{folder}")
        for attempt, steps in ((1, (5, 10)), (2, (15, 20))):
            checkpoints = Checkpoints(self.store, attempt, 3, whose)
            checkpoints.begin()
            for step in steps:
                checkpoints.commit(step, f"state after {step}".encode(), CONTENT)

    def resume(self, whose: Owner, attempt: int = 3) -> tuple[int, bytes] | None:
        """The step and the state that the next attempt goes on with, None from nothing."""
        self.checkpoints = Checkpoints(self.store, attempt, 3, whose)
        found = self.checkpoints.begin()
        return (found[0].step, found[1]) if found else None

    @property
    def refused(self) -> str:
        return "\n".join(self.checkpoints.signed.refused)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path / "run", owner())


LATEST, STATE = "latest-00000002", "state-00000002-0000000020"
FORGED = b"a state of the attacker's"


def forged_manifest(attempt: int, step: int, key: str, state: bytes) -> bytes:
    """As the runtime writes it, with right digests."""
    entry = {
        "attempt": attempt,
        "step": step,
        "key": key,
        "num_bytes": len(state),
        "sha256": hashlib.sha256(state).hexdigest(),
        "content": CONTENT,
    }
    made = Manifest.model_validate({"job": "team/demo", "job_uid": "u-1", "attempt": attempt, "entries": [entry]})
    return made.model_dump_json().encode()


def test_what_nobody_has_touched_is_resumed_without_a_word(bucket: Bucket, capsys) -> None:
    capsys.readouterr()
    assert bucket.resume(owner(committed_step=20)) == (20, b"state after 20")
    assert bucket.refused == capsys.readouterr().out == ""


def test_every_manifest_and_fence_is_signed_and_names_its_job(bucket: Bucket) -> None:
    signed = [key for key in bucket.store.list_keys() if not key.startswith("state")]
    assert len(signed) == 6
    for key in signed:
        assert re.search(rb',"signature":"[0-9a-f]{64}"}$', bucket.store.read(key) or b"")
    manifest = Manifest.model_validate_json(bucket.store.read(LATEST) or b"")
    assert (manifest.job, manifest.job_uid, manifest.entries[0].num_bytes) == ("team/demo", "u-1", 14)


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        (b"state after 21", r"has SHA-256 [0-9a-f]{64}, and [0-9a-f]{64} was written"),
        (b"state after 15", r"has SHA-256"),
        (b"state after", r"has 11 bytes, and 14 were written"),
        (FORGED, r"has 25 bytes, and 14 were written"),
        (None, r"is missing"),
    ],
    ids=["a changed byte", "the state of another step", "cut", "another state", "deleted"],
)
def test_a_state_that_is_not_what_was_written_is_named_and_passed_over(bucket: Bucket, capsys, state, fault) -> None:
    if state is None:
        bucket.store.delete(STATE)
    else:
        bucket.store.write(STATE, state)
    assert bucket.resume(owner(committed_step=20)) == (15, b"state after 15")
    assert re.search(rf"{STATE} {fault}", bucket.refused)
    assert "is the newest that is left, and step 20 was committed" in bucket.refused
    printed = capsys.readouterr().out
    assert all(f"checkpoint {bucket.store.url}/{line}\n" in printed for line in bucket.checkpoints.signed.refused)


def signed_with(uid: str = "u-1", secret: bytes = SECRET) -> bytes:
    made = forged_manifest(2, 99, STATE, FORGED)
    return owner(uid, secret).signed(LATEST, made)


FOREIGN = "is not signed by this job's secret"


@pytest.mark.parametrize(
    ("manifest", "fault"),
    [
        (forged_manifest(2, 99, STATE, FORGED), "has no signature"),
        (signed_with(secret=bytes(32)), FOREIGN),
        (signed_with(uid="u-2"), FOREIGN),
        (owner().signed("latest-00000001", forged_manifest(2, 99, STATE, FORGED)), FOREIGN),
        (signed_with().replace(b'"step":99', b'"step":98'), FOREIGN),
        (signed_with()[:-10] + b'0000000000"}', "has no signature"),
        (b"", "has no signature"),
    ],
    ids=["unsigned", "another key", "another job", "another name", "changed", "longer", "empty"],
)
def test_a_manifest_that_the_job_did_not_sign_is_named_and_its_state_never_read(
    bucket: Bucket, manifest, fault
) -> None:
    bucket.store.write(STATE, FORGED)
    bucket.store.write(LATEST, manifest)
    assert bucket.resume(owner(committed_step=20)) == (10, b"state after 10")
    assert f"{LATEST} {fault}" in bucket.refused
    assert "step 20 was committed" in bucket.refused


def test_a_manifest_of_another_attempt_of_the_job_does_not_pass_for_a_newer_one(bucket: Bucket) -> None:
    bucket.store.write("latest-00000009", bucket.store.read("latest-00000001") or b"")
    assert bucket.resume(owner()) == (20, b"state after 20")
    assert f"latest-00000009 {FOREIGN}" in bucket.refused


def test_a_manifest_of_another_job_that_is_copied_in_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    other = Bucket(tmp_path / "other", owner("u-2", bytes(32)))
    for key in other.store.list_keys():
        bucket.store.write(key, other.store.read(key) or b"")
    with pytest.raises(CheckpointError, match=f"no intact manifest in .*; latest-00000002 {FOREIGN}"):
        bucket.resume(owner())


def test_a_foreign_checkpoint_of_a_higher_step_and_attempt_is_not_resumed_nor_does_its_fence_stop_the_job(
    bucket: Bucket,
) -> None:
    key = "state-00000099-0000009999"
    bucket.store.write("begun-00000099", b"{}")
    bucket.store.write("latest-00000099", forged_manifest(99, 9999, key, FORGED))
    bucket.store.write(key, FORGED)
    assert bucket.resume(owner(committed_step=20)) == (20, b"state after 20")
    bucket.checkpoints.commit(25, b"state after 25", CONTENT)
    assert bucket.resume(owner(committed_step=25), attempt=4) == (25, b"state after 25")
    assert "begun-00000099 has no signature" in bucket.refused
    assert "latest-00000099 has no signature" in bucket.refused


@pytest.fixture
def read_keys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read from then on."""
    keys: list[str] = []
    read = Store.read

    def noted(self: Store, key: str) -> bytes | None:
        keys.append(key)
        return read(self, key)

    monkeypatch.setattr(Store, "read", noted)
    return keys


def test_thousands_of_made_up_fences_are_read_once_and_not_at_every_commit(
    bucket: Bucket, read_keys: list[str], capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed_objects, "MAX_REFUSED", 50)
    made_up = [f"{kind}-{attempt:08d}" for kind in ("begun", "latest") for attempt in range(3, 203)]
    for key in made_up:
        (bucket.folder / key).write_bytes(b"{}")
    capsys.readouterr()
    assert bucket.resume(owner(committed_step=20)) == (20, b"state after 20")
    foreign = set(made_up) - {"begun-00000003"}  # the attempt writes over it
    assert sorted(foreign & set(read_keys)) == sorted(key for key in read_keys if key in foreign)
    assert (len(bucket.checkpoints.signed.refused), bucket.checkpoints.signed.num_refused) == (50, len(foreign))
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 50
    assert printed[-1].endswith("; what is found from here on is only counted")
    read_keys.clear()
    bucket.checkpoints.commit(25, b"state after 25", CONTENT)
    assert read_keys == []
    newer = Checkpoints(bucket.store, 4, 3, owner())
    newer.begin()
    with pytest.raises(FencedError, match="attempt 4 has begun"):  # where a made-up fence was
        bucket.checkpoints.commit(30, b"late", CONTENT)


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("begun-00000009", "has 4194305 bytes, more than any that this job signs"),
        ("latest-00000009", "has 4194305 bytes, more than any that this job signs"),
        (STATE, "has 4194305 bytes, and 14 were written"),
    ],
)
@pytest.mark.parametrize("trusts_store", [False, True])
def test_what_is_larger_than_the_job_wrote_it_is_not_read(
    bucket: Bucket, read_keys: list[str], key: str, fault: str, trusts_store: bool
) -> None:
    """It may have more bytes than the pod has memory."""
    with (bucket.folder / key).open("ab") as file:
        file.truncate(MAX_SIGNED_BYTES + 1)
    step = 15 if key == STATE else 20
    assert bucket.resume(owner(trusts_store=trusts_store)) == (step, f"state after {step}".encode())
    assert f"{key} {fault}" in bucket.refused
    assert key not in read_keys


def test_a_fence_that_the_job_has_signed_still_stops_an_older_attempt(bucket: Bucket) -> None:
    old = Checkpoints(bucket.store, 2, 3, owner())
    old.take_over(1)
    bucket.resume(owner())
    with pytest.raises(FencedError, match="attempt 3 has begun"):
        old.commit(25, b"late", CONTENT)


def test_a_deleted_manifest_is_noticed(bucket: Bucket) -> None:
    bucket.store.delete(LATEST)
    assert bucket.resume(owner(committed_step=20)) == (10, b"state after 10")
    assert "step 20 was committed" in bucket.refused


def test_deleted_manifests_of_an_attempt_that_has_saved_are_noticed_by_its_states(bucket: Bucket) -> None:
    for kind in ("begun", "resume", "latest"):
        bucket.store.delete(f"{kind}-00000002")
    assert bucket.resume(owner()) == (10, b"state after 10")
    assert "resume-00000002 is missing, and there are states of that attempt" in bucket.refused


@pytest.mark.parametrize("committed_step", [0, 20])
def test_a_run_whose_manifests_are_all_deleted_does_not_start_again(bucket: Bucket, committed_step: int) -> None:
    for key in bucket.store.list_keys():
        if not key.startswith("state"):
            bucket.store.delete(key)
    with pytest.raises(CheckpointError, match="resume-00000001 is missing, and there are states of that attempt"):
        bucket.resume(owner(committed_step=committed_step))


def test_a_run_whose_folder_was_emptied_does_not_start_again(bucket: Bucket) -> None:
    emptied = bucket.folder.rename(bucket.folder.with_name("copy"))
    for attempt in (3, 4):
        with pytest.raises(CheckpointError, match="names a checkpoint, and step 20 was committed"):
            bucket.resume(owner(committed_step=20), attempt)
    shutil.copytree(emptied, bucket.folder, dirs_exist_ok=True)
    assert bucket.resume(owner(committed_step=20), attempt=5) == (20, b"state after 20")


def test_the_jobs_own_older_checkpoint_that_is_put_back_is_noticed_by_the_step_that_was_committed(
    bucket: Bucket, tmp_path: Path
) -> None:
    """All of it is signed: only who knows what was committed can tell."""
    shutil.copytree(bucket.folder, tmp_path / "copy")
    later = Checkpoints(bucket.store, 2, 3, owner())
    later.begin()
    later.commit(25, b"state after 25", CONTENT)
    shutil.rmtree(bucket.folder)
    shutil.copytree(tmp_path / "copy", bucket.folder)
    assert bucket.resume(owner(committed_step=25)) == (20, b"state after 20")
    assert f"{STATE} is the newest that is left, and step 25 was committed" in bucket.refused


def test_a_bucket_of_somebody_else_ends_the_attempt_with_every_object_named(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, NOBODY)
    with pytest.raises(CheckpointError) as caught:
        bucket.resume(owner())
    for attempt in (1, 2):
        for kind in ("latest", "resume"):
            assert f"; {kind}-{attempt:08d} has no signature" in str(caught.value)


def test_a_job_that_trusts_its_store_goes_on_from_it_says_so_and_signs_from_then_on(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, NOBODY)
    assert bucket.resume(owner(trusts_store=True)) == (20, b"state after 20")
    assert f"{LATEST} has no signature" in bucket.refused
    assert bucket.resume(owner(), attempt=4) == (20, b"state after 20")


def test_another_jobs_checkpoints_are_gone_on_from_as_the_guide_says(tmp_path: Path) -> None:
    """States are copied, and the newest manifest as that of attempt 0: its attempts had higher numbers."""
    other, own = Bucket(tmp_path / "other", owner("u-2", bytes(32))), tmp_path / "own"
    own.mkdir()
    for path in other.folder.glob("state-*"):
        shutil.copy(path, own)
    shutil.copy(other.folder / LATEST, own / "latest-00000000")
    store = Store(f"file://{own}")
    first = Checkpoints(store, 1, 3, owner(trusts_store=True))
    found = first.begin()
    assert found is not None
    assert found[1] == b"state after 20"
    first.commit(25, b"state after 25", CONTENT)
    second = Checkpoints(store, 2, 3, owner(committed_step=25))
    found = second.begin()
    assert found is not None
    assert (found[1], second.signed.refused) == (b"state after 25", {})


def test_damage_is_damage_to_a_job_that_trusts_its_store_too(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, NOBODY)
    bucket.store.write(STATE, b"state after 21")
    assert bucket.resume(owner(trusts_store=True)) == (15, b"state after 15")


def test_a_job_without_a_secret_asks_for_no_signature(bucket: Bucket) -> None:
    assert bucket.resume(NOBODY) == (20, b"state after 20")


def test_a_trials_checkpoint_does_not_pass_for_another_trials(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, owner().of_trial("t1"))
    with pytest.raises(CheckpointError, match=FOREIGN):
        bucket.resume(owner().of_trial("t2"))
    assert bucket.resume(owner().of_trial("t1"), attempt=4) == (20, b"state after 20")


def settings(folder: Path, **changes: str) -> dict[str, str]:
    """Of a job's pods."""
    return {
        "HULK_CHECKPOINT_URL": f"file://{folder}/kept",
        "HULK_CHECKPOINT_EVERY_STEPS": "2",
        "HULK_JOB_UID": "u-1",
        **changes,
    }


def test_a_job_whose_newest_manifest_was_swapped_for_a_foreign_one_goes_on_from_its_own(
    job, make_plan, make_training, tmp_path: Path
) -> None:
    """The attacker has a state of the same model, by a run of its own with a bucket of the same layout."""
    job.run_ranks(make_plan((1, 1), training=make_training(steps=4)), **settings(tmp_path))
    theirs = settings(tmp_path / "theirs", HULK_PEER_SECRET="")
    job.run_ranks(make_plan((1,), shares=[4], attempt=2, training=make_training(steps=6)), **theirs)
    folder, foreign = tmp_path / "kept" / "u-1", tmp_path / "theirs" / "kept" / "u-1"
    shutil.copytree(foreign, folder, dirs_exist_ok=True)
    plan = make_plan((1, 1), attempt=3, training=make_training(steps=6))
    first, _ = job.run_ranks(plan, **settings(tmp_path, HULK_CHECKPOINT_STEP="4"))
    assert list(first.losses()) == [5, 6]
    assert f"checkpoint file://{folder}/latest-00000002 has no signature\n" in first.output
    assert "state-00000001-0000000004 is the newest" not in first.output


def test_a_job_in_stages_never_reads_the_parts_of_a_list_that_it_did_not_sign(
    job, make_plan, make_training, tmp_path: Path
) -> None:
    bucket = Bucket(tmp_path / "kept" / "u-1", NOBODY)
    part = b"x" * 64
    index = f'{{"num_vectors":1,"parts":[{{"key":"part","sha256":"{hashlib.sha256(part).hexdigest()}","tensors":[]}}]}}'
    bucket.store.write("part", part)
    bucket.store.write(STATE, index.encode())
    bucket.store.write(LATEST, forged_manifest(2, 99, STATE, index.encode()).replace(b'"lossScale"', b'"stages"'))
    ranks = job.start_ranks(make_plan((1, 1), attempt=3, training=make_training()), **settings(tmp_path))
    assert ranks[0].wait() == 74
    assert "CheckpointError: no intact manifest in " in ranks[0].output
    assert "latest-00000002 has no signature" in ranks[0].output


@pytest.mark.parametrize(("trusts", "code"), [("0", 74), ("1", 0)])
def test_a_job_with_another_secret_than_its_checkpoints_goes_on_only_where_its_spec_says_so(
    job, make_plan, make_training, tmp_path: Path, trusts: str, code: int
) -> None:
    job.run_ranks(make_plan((1,), shares=[4], training=make_training(steps=2)), **settings(tmp_path))
    (tmp_path / "new-secret").write_bytes(bytes(32))
    plan = make_plan((1,), shares=[4], attempt=2, training=make_training(steps=4))
    said = settings(tmp_path, HULK_PEER_SECRET=str(tmp_path / "new-secret"), HULK_CHECKPOINT_TRUST_STORE=trusts)
    (rank,) = job.start_ranks(plan, **said)
    assert rank.wait() == code
    assert list(rank.losses()) == ([3, 4] if trusts == "1" else [])
    assert FOREIGN in rank.output
