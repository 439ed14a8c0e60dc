"""Sharded checkpoints of one rank: whole or absent, written beside training, fenced, and believed only where signed."""

import json
import os
import pickle
import queue
import shutil
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hulk
import pytest
import torch
from hulk_runtime.checkpoints import sharded
from hulk_runtime.checkpoints.object_store import PACKAGES, Store
from hulk_runtime.checkpoints.sharded import METADATA, folder_name
from hulk_runtime.checkpoints.signed_objects import MAX_SIGNED_BYTES
from hulk_runtime.checkpoints.signing import Owner
from hulk_runtime.collective import planned_sums
from hulk_runtime.errors import CheckpointError, ConfigurationError, FencedError, PeerLostError, RankLostError
from hulk_runtime.job import step_record
from hulk_runtime.sharded_checkpoints import checkpointer
from hulk_runtime.sharded_checkpoints.copies import copies
from hulk_runtime.sharded_checkpoints.copy_writer import CopyWatcher, CopyWriter
from hulk_runtime.sharded_checkpoints.ranks import Ranks
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

SECRET = bytes(range(32))


class Training:
    """A model whose every step is another one, and the checkpoints of one attempt."""

    def __init__(self, seed: int = 1, width: int = 4, **settings: Any) -> None:
        torch.manual_seed(seed)
        self.net = torch.nn.Linear(3, width)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.9)
        self.checkpointer = hulk.Checkpointer(self.net, self.optimizer, scheduler=self.scheduler, **settings)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.net(torch.ones(2, 3)).square().sum().backward()
        self.optimizer.step()
        self.scheduler.step()

    def train(self, first: int, last: int) -> None:
        """Steps first + 1 to last, with checkpoints as they are due."""
        for step in range(first, last):
            self.step()
            self.checkpointer.step(step + 1)

    @property
    def values(self) -> list[float]:
        states = self.optimizer.state.values()
        moments = [value for state in states for value in (state["exp_avg"], state["exp_avg_sq"], state["step"])]
        return [
            *torch.cat([each.detach().flatten() for each in (*self.net.parameters(), *moments)]).tolist(),
            *self.scheduler.get_last_lr(),
        ]


@pytest.fixture
def at(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Where attempt 1 of a job with a secret keeps its checkpoints: two of them, every 5 steps."""
    url = f"file://{tmp_path}/store"
    if getattr(request, "param", "file") == "s3":
        request.getfixturevalue("s3_environment")
        url = f"s3://checkpoints/{tmp_path.name}"
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    variables = {"URL": url, "EVERY_STEPS": "5", "KEEP": "2"}
    for name, value in variables.items():
        monkeypatch.setenv(f"HULK_CHECKPOINT_{name}", value)
    attempt(monkeypatch, 1)
    monkeypatch.setenv("HULK_PEER_SECRET", str(secret))
    monkeypatch.setenv("HULK_JOB_UID", "u-1")
    monkeypatch.setenv("HULK_PLAN", str(tmp_path / "none"))
    return Store(f"{url}/u-1")


def attempt(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setenv("HULK_ATTEMPT", str(number))


def trained(last: int) -> list[float]:
    """The values after so many steps."""
    found = Training(url="file:///nowhere")
    for _ in range(last):
        found.step()
    return found.values


def ran(last: int) -> Training:
    """An attempt that has trained so far, and ended."""
    found = Training()
    with found.checkpointer:
        found.train(found.checkpointer.resume(), last)
    return found


def complete(store: Store) -> list[str]:
    return [key for key in store.list_keys() if key.endswith(".json")]


@pytest.mark.parametrize("at", ["file", "s3"], indirect=True)
def test_the_newest_state_is_resumed_and_old_ones_are_deleted(at: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(17)
    assert [key for key in at.list_keys() if key.startswith("sharded")] == [
        name for step in (15, 17) for name in (folder_name(1, step, 0), f"{folder_name(1, step, 0)}.json")
    ]
    attempt(monkeypatch, 2)
    other = Training(seed=2)
    assert other.checkpointer.resume() == 17
    assert other.values == trained(17)
    with other.checkpointer:
        other.train(17, 20)
    assert other.values == trained(20)
    assert complete(at) == [f"{folder_name(1, 17, 0)}.json", f"{folder_name(2, 20, 0)}.json"]


def test_torch_alone_reads_what_was_written(at: Store, tmp_path: Path) -> None:
    written = ran(5)
    found = {"model": {name: torch.zeros_like(value) for name, value in written.net.state_dict().items()}}
    reader = FileSystemReader(tmp_path / "store" / "u-1" / folder_name(1, 5, 0))
    _load_state_dict(found, reader, no_dist=True, planner=DefaultLoadPlanner())
    assert all(torch.equal(found["model"][name], value) for name, value in written.net.state_dict().items())


def held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Writing waits: it has begun, it may go on."""
    begun, may_go_on = threading.Event(), threading.Event()
    prepare = sharded.ShardedCheckpoints.prepare

    def waiting(*arguments: Any) -> Any:
        begun.set()
        assert may_go_on.wait(60)
        return prepare(*arguments)

    monkeypatch.setattr(sharded.ShardedCheckpoints, "prepare", waiting)
    return begun, may_go_on


def test_training_goes_on_while_the_state_is_written_as_it_was(at: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go_on = held_up(monkeypatch)
    found = Training()
    found.checkpointer.resume()
    found.train(0, 9)
    assert begun.wait(60)
    assert complete(at) == []
    may_go_on.set()
    found.checkpointer.wait()
    assert complete(at) == [f"{folder_name(1, 5, 0)}.json"]
    attempt(monkeypatch, 2)
    other = Training(seed=2)
    assert other.checkpointer.resume() == 5
    assert other.values == trained(5)


def test_a_second_checkpoint_waits_for_the_first_and_so_does_the_end(
    at: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = held_up(monkeypatch)
    over = threading.Event()

    def run() -> None:
        ran(12)
        over.set()

    running = threading.Thread(target=run)
    running.start()
    assert begun.wait(60)
    assert not over.wait(0.2)
    may_go_on.set()
    running.join(60)
    assert complete(at) == [f"{folder_name(1, step, 0)}.json" for step in (10, 12)]


@pytest.mark.parametrize("is_written", [False, True])
def test_a_rank_that_is_lost_in_silence_is_not_waited_for(
    at: Store, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """The save's own group would wait for hours; what the others can write without the lost rank counts."""
    begun, may_go_on = held_up(monkeypatch)
    monkeypatch.setenv("HULK_SILENCE_SECONDS", "60" if is_written else "0")
    found = Training()
    found.checkpointer.resume()
    found.train(0, 5)
    assert begun.wait(60)

    def lost() -> PeerLostError:
        if is_written:
            may_go_on.set()
        return RankLostError(1, "silence")

    monkeypatch.setattr(planned_sums, "loss", lost)
    if is_written:
        found.checkpointer.wait()
        assert complete(at) == [f"{folder_name(1, 5, 0)}.json"]
    else:
        with pytest.raises(PeerLostError, match="rank 1 was lost: silence"):
            found.checkpointer.wait()
    may_go_on.set()


@pytest.mark.parametrize("at", ["file", "s3"], indirect=True)
def test_half_a_checkpoint_is_none_and_is_deleted(at: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rank leaves that is killed before the manifest, and one that is killed while it writes."""
    ran(5)
    at.delete(f"{folder_name(1, 5, 0)}.json")
    at.folder(folder_name(1, 9, 0)).write("__1_0.distcp", b"half")
    attempt(monkeypatch, 2)
    assert ran(0).checkpointer.resume() == 0
    assert [key for key in at.list_keys() if key.startswith("sharded")] == []


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "metadata", "manifest"])
def test_what_is_damaged_is_passed_over_for_an_older_state(
    at: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    ran(10)
    name = folder_name(1, 10, 0)
    folder = at.folder(name)
    content = folder.read("__0_0.distcp")
    assert content
    match damage:
        case "cut":
            folder.write("__0_0.distcp", content[:-1000])
        case "changed":
            folder.write("__0_0.distcp", content.replace(b"\x3f", b"\x40"))
        case "missing":
            folder.delete("__0_0.distcp")
        case "metadata":
            folder.write(METADATA, (folder.read(METADATA) or b"")[:-1])
        case "manifest":
            at.write(f"{name}.json", (at.read(f"{name}.json") or b"")[:-1])
    attempt(monkeypatch, 2)
    other = Training(seed=2)
    assert other.checkpointer.resume() == 5
    assert other.values == trained(5)
    assert name in capsys.readouterr().out


class Malice:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("malice",)


@pytest.mark.parametrize("secret", [b"", bytes(32)], ids=["unsigned", "another secret"])
def test_what_somebody_else_wrote_is_not_even_unpickled(
    at: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, secret: bytes
) -> None:
    ran(5)
    monkeypatch.chdir(tmp_path)
    name = folder_name(1, 90, 0)
    shutil.copytree(tmp_path / "store/u-1" / folder_name(1, 5, 0), tmp_path / "store/u-1" / name)
    evil = pickle.dumps(Malice())
    at.folder(name).write(METADATA, evil)
    body = sharded.Manifest(
        job="local/local", attempt=1, step=90, copy=0, num_copies=1, num_bytes=1, metadata_sha256="0" * 64
    )
    owner = Owner.of_job("local/local", "u-1", secret, trusts_store=False, committed_step=0)
    forging = sharded.ShardedCheckpoints(at, 1, 9, owner)
    forging.commit(body)
    at.write("begun-00000099", owner.signed("begun-00000099", b'{"format":1}'))
    at.folder(folder_name(1, 5, 0)).write(METADATA, evil)
    attempt(monkeypatch, 2)
    with pytest.raises(CheckpointError, match=r"is intact; .*0090-0000\.json .*; rank 0: .*metadata is not as it was"):
        Training().checkpointer.resume()
    assert not (tmp_path / "malice").exists()


def test_names_that_somebody_made_up_delete_nothing(at: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests of a later attempt, as many as are kept: what is written afterwards is not older than they."""
    ran(5)
    for step in (1, 2):
        at.write(f"{folder_name(9, step, 0)}.json", b"{}")
    attempt(monkeypatch, 2)
    ran(12)
    assert [name for name in complete(at) if "-00000009-" not in name] == [
        f"{folder_name(2, step, 0)}.json" for step in (10, 12)
    ]
    attempt(monkeypatch, 3)
    assert Training(seed=2).checkpointer.resume() == 12


def test_a_run_that_has_not_resumed_is_refused_where_something_newer_is_there(at: Store) -> None:
    ran(50)
    there = at.list_keys()
    other = Training()
    with pytest.raises(ConfigurationError, match=r"step 50 of attempt 1 is in .*call resume\(\) before training"):
        other.train(0, 12)
    assert at.list_keys() == there


@pytest.mark.parametrize("at", ["file", "s3"], indirect=True)
def test_an_older_attempt_commits_nothing_any_more(at: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old = ran(5)
    attempt(monkeypatch, 2)
    assert Training(seed=2).checkpointer.resume() == 5
    old.train(5, 10)
    with pytest.raises(FencedError, match="attempt 2 has begun"):
        old.checkpointer.wait()
    attempt(monkeypatch, 1)
    with pytest.raises(FencedError):
        Training().checkpointer.resume()
    attempt(monkeypatch, 3)
    assert Training(seed=2).checkpointer.resume() == 5


def test_a_store_that_fails_costs_a_checkpoint_and_not_the_training(
    at: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Training()
    found.checkpointer.resume()
    away = tmp_path / "away"
    (tmp_path / "store").rename(away)
    (tmp_path / "store").write_text("no folder")
    found.train(0, 6)
    found.checkpointer.wait()
    assert "checkpoint of step 5 not written, training goes on: rank 0: cannot " in capsys.readouterr().out
    (tmp_path / "store").unlink()
    away.rename(tmp_path / "store")
    with found.checkpointer:
        found.train(6, 10)
    assert complete(at) == [f"{folder_name(1, 10, 0)}.json"]
    (tmp_path / "store").rename(away)
    (tmp_path / "store").write_text("no folder")
    with pytest.raises(CheckpointError, match="rank 0: cannot"), found.checkpointer:
        found.train(10, 11)


def test_a_store_that_cannot_be_opened_costs_a_checkpoint_and_not_the_training(
    at: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some connect as they are opened."""

    def failing(url: str) -> Store:
        raise CheckpointError(f"cannot open {url}: ConnectionError")

    found = Training()
    with monkeypatch.context() as patched:
        patched.setattr(checkpointer, "Store", failing)
        found.train(0, 6)
        found.checkpointer.wait()
    assert "checkpoint of step 5 not written, training goes on: rank 0: cannot open" in capsys.readouterr().out
    with found.checkpointer:
        found.train(6, 10)
    assert complete(at) == [f"{folder_name(1, 10, 0)}.json"]


def test_a_last_checkpoint_that_failed_is_tried_again_at_the_end(at: Store, tmp_path: Path) -> None:
    """Also where the script has waited for it: its last state is saved, or the run does not end well."""
    found = Training()
    found.checkpointer.resume()
    away = tmp_path / "away"
    (tmp_path / "store").rename(away)
    (tmp_path / "store").write_text("no folder")
    found.train(0, 5)
    found.checkpointer.wait()
    with pytest.raises(CheckpointError, match="rank 0: cannot"), found.checkpointer:
        found.checkpointer.wait()
    with found.checkpointer:
        (tmp_path / "store").unlink()
        away.rename(tmp_path / "store")
    assert complete(at) == [f"{folder_name(1, 5, 0)}.json"]


def test_a_run_that_has_lost_its_checkpoints_does_not_begin_again_in_silence(
    at: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HULK_CHECKPOINT_STEP", "40")
    with pytest.raises(CheckpointError, match="is intact, and step 40 was committed"):
        Training().checkpointer.resume()
    monkeypatch.setenv("HULK_CHECKPOINT_TRUST_STORE", "1")
    assert Training().checkpointer.resume() == 0


@pytest.mark.parametrize("loss", ["damaged", "foreign", "deleted", "deleted with the fence"])
def test_a_run_whose_manifests_are_all_gone_does_not_begin_again(
    at: Store, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """No committed step is known, as soon after the first checkpoint."""
    ran(5 if loss == "deleted with the fence" else 10)
    for key in complete(at):
        content = at.read(key) or b""
        match loss:
            case "damaged":
                at.write(key, content[:-1])
            case "foreign":
                at.write(key, content.replace(b'"signature":"', b'"signature":"f')[:-3] + b'"}')
            case _:
                at.delete(key)
    if loss == "deleted with the fence":
        at.delete("begun-00000001")
    states = [key for key in at.list_keys() if key.startswith("sharded")]
    attempt(monkeypatch, 2)
    faults = {"damaged": "has no signature", "foreign": "is not signed by this job's secret"}
    with pytest.raises(CheckpointError, match=f"is intact; .*{faults.get(loss, 'has lost its manifest')}"):
        ran(15)
    assert [key for key in at.list_keys() if key.startswith("sharded")] == states
    monkeypatch.setenv("HULK_CHECKPOINT_TRUST_STORE", "1")
    assert Training().checkpointer.resume() == (10 if loss == "foreign" else 0)


def test_a_store_that_does_not_answer_once_is_no_empty_one(at: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is trusted: nothing is known of it, and what is written next would delete what it has."""
    ran(10)
    there = at.list_keys()
    attempt(monkeypatch, 2)
    monkeypatch.setenv("HULK_CHECKPOINT_TRUST_STORE", "1")
    list_objects, answers = Store.list_objects, iter([False])

    def failing_once(store: Store) -> Any:
        if not next(answers, True):
            raise CheckpointError("cannot list: 503 slow down")
        return list_objects(store)

    monkeypatch.setattr(Store, "list_objects", failing_once)
    with pytest.raises(CheckpointError, match="is intact; cannot list: 503 slow down"):
        Training().checkpointer.resume()
    assert at.list_keys() == there
    assert Training(seed=2).checkpointer.resume() == 10


def of_attempt(store: Store, number: int) -> sharded.ShardedCheckpoints:
    owner = Owner.of_job("local/local", "u-1", SECRET, trusts_store=False, committed_step=0)
    return sharded.ShardedCheckpoints(store, number, 1, owner)


def test_older_copies_stay_until_all_stores_of_a_copy_have_its_manifest(at: Store, tmp_path: Path) -> None:
    """A shard in each of two stores; the second one fails between the manifests."""
    eu, us = (of_attempt(Store(f"file://{tmp_path}/{region}"), 1) for region in ("eu", "us"))
    writer = CopyWriter(0, 1, [0, 1], ["eu", "us"], {"eu": eu, "us": us}.__getitem__, Ranks())
    writer.write(1, {"model": {"a": torch.ones(3)}})
    (tmp_path / "us" / f"{folder_name(1, 2, 0)}.json").mkdir()
    us.prepare = lambda step, copy: us.folder(step, copy)  # type: ignore[method-assign]
    with pytest.raises(CheckpointError, match=r"cannot write .*/us/"):
        writer.write(2, {"model": {"a": torch.ones(3)}})
    assert complete(eu.store) == [f"{folder_name(1, step, 0)}.json" for step in (1, 2)]
    (tmp_path / "us" / f"{folder_name(1, 2, 0)}.json").rmdir()
    writer.write(3, {"model": {"a": torch.ones(3)}})
    assert complete(eu.store) == complete(us.store) == [f"{folder_name(1, 3, 0)}.json"]


class Pair(Ranks):
    """Ranks 0 and 1 are threads of one process."""

    def __init__(self) -> None:
        self.sent: queue.Queue[Any] = queue.Queue()

    def send(self, rank: int, message: object) -> None:
        assert rank == 0
        self.sent.put(message)

    def receive(self, rank: int) -> Any:
        assert rank == 1
        return self.sent.get(timeout=60)


def test_rank_0_without_a_part_learns_what_became_of_each_save(
    at: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that has failed: or it would take the next one for it, and not save again at the end."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, step_record.NUM_BYTES)
    pair, us = Pair(), of_attempt(Store(f"file://{tmp_path}/us"), 1)
    writer = CopyWriter(0, 1, [1], ["us"], lambda url: us, Ranks(), pair)
    state = {"model": {"a": torch.ones(3)}}
    (tmp_path / "us" / f"{folder_name(1, 1, 0)}.json").mkdir(parents=True)
    monkeypatch.setattr(us, "prepare", lambda step, copy: us.folder(step, copy))

    def write() -> None:
        with pytest.raises(CheckpointError, match=r"cannot write .*/us/"):
            writer.write(1, state)
        writer.write(2, state)

    writing = threading.Thread(target=write)
    writing.start()
    with pytest.raises(CheckpointError, match=r"cannot write .*/us/"):
        CopyWatcher(1, pair).write(1, {})
    monkeypatch.setattr(step_record, "own", step_record.StepRecord(descriptor))
    CopyWatcher(1, pair).write(2, {})
    writing.join(60)
    assert step_record.own is not None
    found = step_record.own.read()
    assert (found.checkpoint_step, found.checkpoint_where) == (2, f"file://{tmp_path}/us/{folder_name(1, 2, 0)}")


def test_a_folder_whose_manifest_is_in_another_store_is_not_deleted(
    at: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a copy over two stores is whose first rank was lost between their manifests, and which is resumed from."""
    monkeypatch.setenv("HULK_CHECKPOINT_STORES", f'{{"eu": "file://{tmp_path}/eu"}}')
    ran(5)
    eu, name = Store(f"file://{tmp_path}/eu/u-1"), folder_name(1, 5, 0)
    found = json.loads(at.read(f"{name}.json") or b"")
    written = sharded.Manifest(
        job="local/local",
        attempt=1,
        step=5,
        copy=0,
        num_copies=1,
        num_bytes=found["numBytes"],
        metadata_sha256=found["metadataSha256"],
        files=(("__0_0.distcp", at.url),),
    )
    of_attempt(eu, 1).commit(written)
    eu.folder(name).write(METADATA, at.folder(name).read(METADATA) or b"")
    at.delete(f"{name}.json")
    for number in (2, 3):
        attempt(monkeypatch, number)
        other = Training(seed=2)
        assert other.checkpointer.resume() == 5
        assert other.values == trained(5)


def test_what_is_too_large_is_not_read_and_what_is_foreign_only_once(
    at: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(5)
    folder, manifest = tmp_path / "store" / "u-1", f"{folder_name(1, 90, 0)}.json"
    for name in ("begun-00000099", manifest):
        with (folder / name).open("wb") as file:
            file.truncate(MAX_SIGNED_BYTES + 1)
    at.write("begun-00000098", b"{}")
    metadata = folder / folder_name(1, 5, 0) / METADATA
    with metadata.open("ab") as file:
        file.truncate(1 << 30)
    numbers_read: dict[str, int] = {}
    read, read_range = Store.read, Store.read_range

    def counted(store: Store, key: str, *span: int) -> Any:
        content = read_range(store, key, *span) if span else read(store, key)
        numbers_read[key] = numbers_read.get(key, 0) + 1
        assert len(content or b"") <= MAX_SIGNED_BYTES
        return content

    monkeypatch.setattr(Store, "read", counted)
    monkeypatch.setattr(Store, "read_range", counted)
    attempt(monkeypatch, 2)
    with pytest.raises(CheckpointError, match="metadata is not as it was written"):
        Training().checkpointer.resume()
    assert "0090-0000.json has 4194305 bytes" in capsys.readouterr().out
    assert numbers_read["begun-00000098"] == 1
    assert not {"begun-00000099", manifest} & numbers_read.keys()
    found = of_attempt(at, 2)
    for _ in range(2):
        found.signed.require_newest("00000002")
    assert numbers_read["begun-00000098"] == 2
    assert "begun-00000099" not in numbers_read
    assert capsys.readouterr().out.count("begun-00000098") == 1


def test_the_job_learns_how_far_it_is_and_what_is_saved(at: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch makes an optimizer's states by a step: that is none of the training's."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, step_record.NUM_BYTES)
    record = step_record.StepRecord(descriptor)
    monkeypatch.setattr(step_record, "own", record)
    ran(7)
    found = record.read()
    assert (found.step, found.checkpoint_step) == (7, 7)
    assert found.checkpoint_bytes > 1000
    assert found.checkpoint_where == f"{at.url}/{folder_name(1, 7, 0)}"
    os.ftruncate(descriptor, 0)
    os.ftruncate(descriptor, step_record.NUM_BYTES)
    attempt(monkeypatch, 2)
    other = Training(seed=2)
    other.optimizer.register_step_post_hook(lambda optimizer, *_: record.optimizer_stepped(id(optimizer)) and None)
    assert other.checkpointer.resume() == 7
    assert (record.read().step, record.read().durations_s) == (7, ())


def test_another_model_is_refused(at: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(5)
    attempt(monkeypatch, 2)
    with pytest.raises(ConfigurationError, match=r"checkpoint of step 5 does not fit: .*another model.*weight"):
        Training(width=5).checkpointer.resume()


@pytest.mark.parametrize(("before", "held"), [((), ""), (("loader", "sampler"), ", loader, sampler")])
def test_an_object_whose_state_no_checkpoint_has_is_refused_by_its_name(
    at: Store, monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...], held: str
) -> None:
    net = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    first = hulk.Checkpointer(net, optimizer, **dict.fromkeys(before, scheduler))
    first.step(5)
    first.wait()
    attempt(monkeypatch, 2)
    words = (
        f"step 5 does not fit: rank 0: it has no state of scheduler, only of model, optimizer{held}: to resume from it"
    )
    with pytest.raises(ConfigurationError, match=words):
        hulk.Checkpointer(net, optimizer, **dict.fromkeys((*before, "scheduler"), scheduler)).resume()
    assert hulk.Checkpointer(net, optimizer).resume() == 5


def test_what_cannot_be_is_said_in_words(at: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = next(scheme for scheme, package in PACKAGES.items() if find_spec(package) is None)
    told: list[str] = []
    tell = Ranks.all
    monkeypatch.setattr(Ranks, "all", lambda ranks, mine: told.append(str(mine)) or tell(ranks, mine))
    with pytest.raises(ConfigurationError, match=rf"lacks the Python package {PACKAGES[lacking]}, .*pip install"):
        Training(url=f"{lacking}://bucket/run").checkpointer.resume()
    assert "lacks the Python package" in told[-1], "other ranks wait for this one"
    with pytest.raises(ConfigurationError, match="lacks the Python package"):
        Training(url=f"{lacking}://bucket/run").checkpointer.save()
    for settings, words in (
        ({"every": 0}, "checkpoint every 0 steps"),
        ({"every": 0.5}, r"every 0\.5 must be a whole number"),
        ({"every": "10"}, "every '10' must be a whole number"),
        ({"keep": 1.5}, r"keep 1\.5 must be a whole number"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            Training(**settings)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigurationError, match=r"WORLD_SIZE=2, and torch\.distributed is not initialized"):
        Training()
    monkeypatch.delenv("HULK_CHECKPOINT_URL")
    with pytest.raises(ConfigurationError, match=r"no store for checkpoints: set spec\.checkpoint"):
        Training()


@pytest.mark.parametrize(
    ("stores", "held", "expected"),
    [
        ("eeuu", "1212", [[0, 1], [2, 3]]),
        ("eueu", "1122", [[0, 2], [1, 3]]),
        ("eeuu", "1122", [[0, 1, 2, 3]]),
        ("eeuua", "12123", [[0, 1, 2, 3, 4]]),
        ("eeua", "1212", [[0, 1], [2, 3]]),
        ("eeu", "121", [[0, 1]]),
    ],
    ids=["a replica each", "mixed", "stages", "all are needed", "one and two regions", "a part of one"],
)
def test_a_copy_is_of_one_store_where_its_ranks_hold_everything(
    stores: str, held: str, expected: list[list[int]]
) -> None:
    assert copies(list(stores), [{int(part)} for part in held]) == expected
