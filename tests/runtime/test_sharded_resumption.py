"""What a rank takes from a sharded checkpoint: nothing that runs, only what fits, and from whom it is."""

import json
import os
import pickle
import signal
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import hulk
import pytest
import torch
from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.checkpoints.sharded import METADATA, folder_name
from hulk_runtime.errors import CheckpointError, ConfigurationError, PeerLostError
from hulk_runtime.sharded_checkpoints import safe_pickle
from test_sharded_layouts import forked, plan

SCRIPT = str(Path(__file__).with_name("sharded_resumption_script.py"))


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a run by hand, without a secret, keeps its checkpoints."""
    monkeypatch.chdir(tmp_path)
    return f"file://{tmp_path}/store"


class Other:
    """Something with a state of its own."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


class Malice:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("malice",)


@pytest.mark.parametrize("where", ["index", "optimizer", "others"])
@pytest.mark.parametrize("trusted", [False, True], ids=["by hand", "trustStore"])
def test_code_in_a_checkpoint_that_nobody_signed_does_not_run(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, trusted: bool
) -> None:
    forge(url, tmp_path, monkeypatch, where)
    monkeypatch.setenv("HULK_ATTEMPT", "2")
    if trusted:
        (tmp_path / "secret").write_bytes(bytes(range(32)))
        monkeypatch.setenv("HULK_PEER_SECRET", str(tmp_path / "secret"))
        monkeypatch.setenv("HULK_CHECKPOINT_TRUST_STORE", "1")
        monkeypatch.setenv("HULK_CHECKPOINT_URL", url)
    named = {"index": "names posix.mkdir", "optimizer": "lr has posix.mkdir", "others": "loader has posix.mkdir"}
    with pytest.raises(CheckpointError, match=named[where]):
        made(url).resume()
    assert not (tmp_path / "malice").exists()


def made(url: str) -> hulk.Checkpointer:
    net = torch.nn.Linear(3, 3)
    return hulk.Checkpointer(net, torch.optim.AdamW(net.parameters()), url=url, loader=Other({"at": 1}))


def forge(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A checkpoint as Hulk writes it, with code in it, and without a signature."""
    checkpointer = made(url)
    state = {**checkpointer._state.trained(), **checkpointer._state.others()}
    if where == "optimizer":
        state["optimizer"]["param_groups.weight.lr"] = Malice()
    if where == "others":
        torch.save(Malice(), tmp_path / "state")
        state["others"]["loader"] = (tmp_path / "state").read_bytes()
    monkeypatch.setattr(checkpointer._state, "trained", lambda: {each: state[each] for each in ("model", "optimizer")})
    monkeypatch.setattr(checkpointer._state, "others", lambda: {"others": state["others"]})
    checkpointer.save()
    checkpointer.wait()
    if where == "index":
        store, name, evil = Store(url), folder_name(1, 0, 0), pickle.dumps(Malice())
        manifest = json.loads(store.read(f"{name}.json") or b"")
        manifest |= {each: len(evil) for each in manifest if each == "numMetadataBytes"}
        manifest["metadataSha256"] = sha256(evil).hexdigest()
        store.write(f"{name}.json", json.dumps(manifest).encode())
        store.folder(name).write(METADATA, evil)


def test_what_could_not_be_read_again_is_refused_as_it_is_saved(url: str) -> None:
    checkpointer = hulk.Checkpointer(torch.nn.Linear(3, 3), url=url, loader=Other({"path": Path("x")}))
    with pytest.raises(ConfigurationError, match=r"state of loader has pathlib.*Path.*add_safe_globals"):
        checkpointer.save()


def test_an_index_is_one() -> None:
    with pytest.raises(CheckpointError, match="an index is a dict"):
        safe_pickle.metadata(pickle.dumps({}))


class Branches(torch.nn.Module):
    """Of which the second one is used from the seventh step on."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def forward(self, rows: torch.Tensor, step: int) -> torch.Tensor:
        return self.used(rows) + (self.unused(rows) if step > 6 else 0)


def values_of(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    states = [each for state in optimizer.state.values() for _, each in sorted(state.items())]
    return torch.cat([each.detach().flatten() for each in (*net.parameters(), *states)]).tolist()


def trained(url: str | None, attempt: int, last: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[float], int]:
    """Where it began, the values in the end, and of how many parameters the optimizer has a state where it began."""
    monkeypatch.setenv("HULK_ATTEMPT", str(attempt))
    torch.manual_seed(attempt if url else 1)
    net = Branches()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    checkpointer = hulk.Checkpointer(net, optimizer, url=url or "file:///nowhere", every=99)
    first = checkpointer.resume() if url else 0
    num_states = len(optimizer.state)
    for step in range(first, last):
        optimizer.zero_grad()
        net(torch.ones(2, 3), step + 1).square().sum().backward()
        optimizer.step()
        checkpointer.step(step + 1)
    if url:
        checkpointer.save()
        checkpointer.wait()
    return first, values_of(net, optimizer), num_states


def test_a_parameter_that_had_no_gradient_yet_is_resumed_as_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(url, 1, 5, monkeypatch)
    first, values, num_states = trained(url, 2, 9, monkeypatch)
    assert (first, num_states) == (5, 2)
    assert values == trained(None, 1, 9, monkeypatch)[1]


def test_an_optimizer_trains_one_part_of_the_model(url: str) -> None:
    one, two = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
    both = torch.optim.AdamW([*one.parameters(), *two.parameters()])
    with pytest.raises(
        ConfigurationError, match=r"AdamW trains 4 parameters, of which the model's parts have \[2, 2\]"
    ):
        hulk.Checkpointer([one, two], both, url=url)
    with pytest.raises(ConfigurationError, match=r"AdamW trains 4 parameters, of which the model's parts have \[2\]"):
        hulk.Checkpointer(one, both, url=url)
    with pytest.raises(ConfigurationError, match="SGD trains none of the model's parameters"):
        hulk.Checkpointer(one, torch.optim.SGD(two.parameters()), url=url)
    hulk.Checkpointer([one, two], [torch.optim.SGD(one.parameters()), torch.optim.SGD(two.parameters())], url=url)


def ranks_of(job: Any, make_plan: Any, case: str, num: int, attempt: int = 1, regions: Sequence[str] = ()) -> list[Any]:
    """A run that saves the state of step 3 times its attempt."""
    job.make_plan = make_plan
    document = plan(job, (num, 1, 1), regions, attempt)
    return forked(job, document, (SCRIPT, case, str(3 * attempt)), 3, ("eu", "us") if regions else ())


def outcome(processes: Sequence[Any]) -> tuple[list[int], str]:
    """How they ended, and what they printed."""
    return [process.wait() for process in processes], "\n".join(process.output for process in processes)


def test_a_rank_that_is_lost_while_others_save_or_resume_is_a_lost_peer(job: Any, make_plan: Any) -> None:
    codes, output = outcome(ranks_of(job, make_plan, "gone", 2))
    assert codes == [PeerLostError.exit_code, 0], output
    assert "PeerLostError: " in output
    arguments = (str(Path(SCRIPT).with_name("sharded_script.py")), "1", "2", "1", "3", "kill=1:3")
    codes, output = outcome(forked(job, plan(job, (1, 2, 1), (), 2), arguments, 3, ()))
    assert codes == [PeerLostError.exit_code, -signal.SIGKILL], output
    assert "PeerLostError: ranks [0, 1] do not all answer: " in output


def test_what_one_rank_cannot_load_ends_all_with_its_words(job: Any, make_plan: Any) -> None:
    codes, output = outcome(ranks_of(job, make_plan, "plain", 2))
    assert codes == [0, 0], output
    codes, output = outcome(ranks_of(job, make_plan, "loader", 2, attempt=2))
    assert codes == [CheckpointError.exit_code] * 2, output
    words = "checkpoint of step 3 cannot be loaded: rank 1: RuntimeError: no file of {'at': 1}"
    assert output.count(words) == 2
    assert "in load_state_dict" in output


def test_a_model_of_another_type_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpointer = hulk.Checkpointer(torch.nn.Linear(3, 3).double(), url=url)
    checkpointer.save()
    checkpointer.wait()
    monkeypatch.setenv("HULK_ATTEMPT", "2")
    net = torch.nn.Linear(3, 3).bfloat16()
    before = net.weight.detach().clone()
    with pytest.raises(ConfigurationError, match=r"model\.\w+ is torch\.bfloat16 here and torch\.float64 there"):
        hulk.Checkpointer(net, url=url).resume()
    assert torch.equal(net.weight, before)


def test_a_replica_that_begins_as_another_is_said(job: Any, make_plan: Any) -> None:
    codes, output = outcome(ranks_of(job, make_plan, "apart", 2))
    assert codes == [0, 0], output
    codes, output = outcome(ranks_of(job, make_plan, "apart", 2, attempt=2))
    assert codes == [0, 0], output
    assert "begins as" not in output
    (job.folder / "all" / "u" / f"{folder_name(2, 6, 1)}.json").unlink()
    codes, output = outcome(ranks_of(job, make_plan, "apart", 3, attempt=3))
    assert codes == [0, 0, 0], output
    assert "hulk: replica 1 begins as replica 0\nhulk: replica 2 begins as replica 0\n" in output
