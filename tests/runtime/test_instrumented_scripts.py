"""Programs that know nothing of Hulk: their own process groups sum as planned, whatever starts them."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import hulk_runtime
import pytest
from hulk_lab.builds import python
from test_backend import said, two_regions
from test_wan_training import TWO, wan

SCRIPT = str(Path(__file__).with_name("plain_torch.py"))
INSTRUMENTED = ("-m", "hulk_runtime.instrumentation")
FOLDER = Path(hulk_runtime.__file__).parent / "instrumentation"
AUTO = {"HULK_INSTRUMENTATION": "auto"}
SAID = "hulk: 4 ranks in region-0, region-1: sums between regions go as planned"


def path(*folders: Path) -> str:
    """PYTHONPATH with some folders first."""
    return os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])


def start(job: Any, document: Any, *command: str, **environment: str) -> list[Any]:
    """A process for each rank, as in pods of one accelerator."""
    job.write_plan(document)
    return [
        job.start(
            *command, RANK=str(rank), HULK_WORKER=str(rank), LOCAL_RANK="0", PYTHONPATH=path(FOLDER), **environment
        )
        for rank in range(len(document["workers"]))
    ]


def figures(line: str) -> list[float]:
    return [float(value) for value in line.split()[1:3]]


@pytest.fixture(scope="module")
def trained(module_job: Any, make_plan: Any) -> dict[str, list[Any]]:
    """The ranks of the script, as planned and by torch."""
    found = {}
    for instrumentation in ("auto", "none"):
        ranks = start(module_job, two_regions(make_plan), SCRIPT, "gloo", HULK_INSTRUMENTATION=instrumentation)
        assert [rank.wait() for rank in ranks] == [0] * 4, "\n".join(rank.output for rank in ranks)
        found[instrumentation] = ranks
    return found


@pytest.mark.parametrize("kind", ["ddp", "hsdp"])
def test_a_model_becomes_what_it_becomes_by_torch(trained: dict[str, list[Any]], kind: str) -> None:
    planned, by_torch = said(trained["auto"], kind), said(trained["none"], kind)
    assert planned == [planned[0]] * 4
    assert figures(planned[0]) == pytest.approx(figures(by_torch[0]), rel=1e-5)


def test_torch_says_of_its_groups_what_it_said(trained: dict[str, list[Any]]) -> None:
    assert said(trained["auto"], "backend") == ["backend gloo of PlannedGroup"] * 4
    assert said(trained["none"], "backend") == ["backend gloo of pybind11_object"] * 4


def test_rank_0_says_so_in_one_line(trained: dict[str, list[Any]]) -> None:
    lines = [line for rank in trained["auto"] for line in rank.output.splitlines() if "hulk" in line]
    assert len(lines) == 1
    assert lines[0].startswith(SAID)
    assert lines[0] in trained["auto"][0].output
    assert not any("hulk" in rank.output for rank in trained["none"])


def test_an_environments_own_sitecustomize_runs_as_well(tmp_path: Path, job: Any) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the environment speaks')")
    python = job.start("-c", "print('so does the program')", PYTHONPATH=path(FOLDER, tmp_path))
    assert python.wait() == 0
    assert python.output.splitlines() == ["the environment speaks", "so does the program"]


def test_two_of_hulks_folders_hide_nothing(tmp_path: Path, job: Any) -> None:
    """An image's own start may bring one in beside the init container's."""
    other, hidden = tmp_path / "other", tmp_path / "hidden"
    shutil.copytree(FOLDER, other)
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("print('the environment speaks')")
    python = job.start("-c", "print('so does the program')", PYTHONPATH=path(FOLDER, other, hidden))
    assert python.wait() == 0
    assert python.output.splitlines() == ["the environment speaks", "so does the program"]


def test_a_start_without_torch_imports_nothing_of_it(job: Any) -> None:
    program = "import sys; print([name for name in ('torch', 'numpy', 'pydantic') if name in sys.modules])"
    python = job.start("-c", program, PYTHONPATH=path(FOLDER), HULK_INSTRUMENTATION="auto")
    assert python.wait() == 0
    assert python.output.splitlines() == ["[]"]


@pytest.mark.parametrize(("last", "error"), [("sum", "RankLostError: rank 3 was lost"), ("barrier", "PeerLostError: ")])
def test_a_lost_rank_has_one_name_and_one_exit_code(job: Any, make_plan: Any, last: str, error: str) -> None:
    """Whether it is missed in a planned sum, or in a collective of torch's own."""
    ranks = job.start_ranks(two_regions(make_plan), *INSTRUMENTED, SCRIPT, "gloo", **AUTO, LEAVES="3", LAST=last)
    assert [rank.wait() for rank in ranks] == [69, 69, 69, 3]
    assert all(error in rank.output for rank in ranks[:3]), ranks[0].output


def test_nobody_waits_in_torchs_own_collective_for_a_rank_that_is_lost(job: Any, make_plan: Any) -> None:
    """Its connections stand, as where its node has no power, so torch would wait for half an hour."""
    ranks = job.start_ranks(two_regions(make_plan), *INSTRUMENTED, SCRIPT, "gloo", **AUTO, STOPS="3", LAST="barrier")
    assert [rank.wait() for rank in ranks[:3]] == [69] * 3
    assert all("RankLostError: rank 3 was lost" in rank.output for rank in ranks[:3]), ranks[0].output


@pytest.mark.parametrize(
    "trainer", ["accelerate", *(pytest.param(name, marks=pytest.mark.whole) for name in ("hf", "lightning"))]
)
def test_so_it_has_in_every_trainer(job: Any, make_plan: Any, trainer: str) -> None:
    """One rank is killed in the midst of its training."""
    ranks = start_trainer(job, make_plan((1, 1, 1), **wan()), trainer, STEPS="1000000")
    for rank in ranks:
        rank.wait_for("step 3 ended")
    os.kill(ranks[2].popen.pid, signal.SIGKILL)
    assert [rank.wait() for rank in ranks] == [69, 69, -signal.SIGKILL], ranks[0].output
    assert all("RankLostError: rank 2 was lost" in rank.output for rank in ranks[:2]), ranks[0].output


@pytest.mark.parametrize("launcher", ["torchrun", "hulk-launch"])
def test_a_launcher_changes_nothing(job: Any, make_plan: Any, launcher: str) -> None:
    """Two workers of two ranks each; what the launcher leaves with is what its ranks leave with."""
    workers = [{"node": f"node-{i}", "region": f"region-{i}", "accelerators": 2} for i in range(2)]
    job.write_plan(make_plan((2, 2), workers=workers, **wan(2, classes=TWO)))
    module = {"torchrun": "torch.distributed.run", "hulk-launch": "hulk_runtime.job.launcher"}[launcher]
    variables = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_RDZV_BACKEND": "static"}
    variables |= {"HULK_INSTRUMENTATION": "auto", "LEAVES": "3", "LAST": "sum"}
    if launcher == "torchrun":
        variables["PYTHONPATH"] = path(FOLDER)
    variables["PET_RDZV_ENDPOINT"] = f"127.0.0.1:{job.environment['MASTER_PORT']}"
    ranks = [
        job.start("-m", module, SCRIPT, "gloo", PET_NODE_RANK=str(worker), HULK_WORKER=str(worker), **variables)
        for worker in range(2)
    ]
    codes = [worker.wait() for worker in ranks]
    assert SAID in ranks[0].output
    assert "backend gloo of PlannedGroup" in ranks[0].output
    assert codes[0] == 69, ranks[0].output


def start_trainer(job: Any, document: Any, trainer: str, **environment: str) -> list[Any]:
    """Ranks of a trainer's script that knows nothing of Hulk."""
    command = (str(Path(__file__).with_name("trainers_apart.py")), str(python.build_packages("trainers")), trainer)
    found: list[Any] = job.start_ranks(document, *INSTRUMENTED, *command, **AUTO, **environment)
    return found


def train_apart(job: Any, make_plan: Any, trainer: str, **plan: Any) -> list[Any]:
    """In rounds of four steps."""
    found = start_trainer(job, make_plan((1, 1), sync={"mode": "local", "innerSteps": 4}, **plan), trainer)
    assert [rank.wait() for rank in found] == [0, 0], "\n".join(rank.output for rank in found)
    assert "Trainer trains by DiLoCo in rounds of 4 steps" in found[0].output
    assert "trains by DiLoCo" not in found[1].output
    return found


@pytest.mark.whole
@pytest.mark.parametrize("trainer", ["hf", "lightning", "pytorch_lightning"])
def test_a_trainer_trains_apart_by_itself(job: Any, make_plan: Any, trainer: str) -> None:
    """The job's rounds are of four steps: the replicas are the same after the fourth and the eighth, and only then."""
    ranks = train_apart(job, make_plan, trainer, **wan(2, classes=TWO))
    rounds = 2 * [False, False, False, True]
    assert said(ranks, "same") == [f"same True within {rounds}"] * 2
    assert "replicas are to train apart for 4 steps" in ranks[0].output


@pytest.mark.whole
@pytest.mark.parametrize("trainer", ["hf", "lightning"])
def test_so_it_does_in_one_region_where_no_sums_are_planned(job: Any, make_plan: Any, trainer: str) -> None:
    """The region's ranks sum gradients in every step, and take the rounds' outer steps together."""
    workers = [{"node": f"node-{i}", "region": "region-0", "accelerators": 1} for i in range(2)]
    ranks = train_apart(job, make_plan, trainer, workers=workers)
    assert said(ranks, "same") == [f"same True within {8 * [True]}"] * 2


def test_ranks_that_a_script_spawns_sum_as_planned(job: Any, make_plan: Any) -> None:
    """They have their parent's environment, whose ranks are the worker's."""
    workers = [{"node": f"node-{i}", "region": f"region-{i}", "accelerators": 2} for i in range(2)]
    job.write_plan(make_plan((2, 2), workers=workers, **wan(2, classes=TWO)))
    script = str(Path(__file__).with_name("spawning_script.py"))
    parents = [
        job.start(script, HULK_WORKER=str(worker), RANK=str(worker), LOCAL_RANK="0", PYTHONPATH=path(FOLDER), **AUTO)
        for worker in range(2)
    ]
    assert [parent.wait() for parent in parents] == [0, 0], "\n".join(parent.output for parent in parents)
    found = sorted(line for parent in parents for line in parent.output.splitlines() if line.startswith("sum "))
    assert found == [f"sum 6.0 on {rank} of PlannedGroup" for rank in range(4)]


@pytest.mark.parametrize(("codes", "code"), [([69, -15], 69), ([69, -9, 69], 69), ([1, -15], 1), ([69, 3], 1)])
def test_torchrun_leaves_as_the_ranks_do_that_it_did_not_end_itself(codes: list[int], code: int, job: Any) -> None:
    program = f"""
from types import SimpleNamespace
from hulk_runtime.instrumentation import torchrun
class ChildFailedError(Exception):
    failures = {{rank: SimpleNamespace(exitcode=code) for rank, code in enumerate({codes})}}
torchrun.leave_as_ranks_do(SimpleNamespace(ChildFailedError=ChildFailedError))
raise ChildFailedError
"""
    assert job.start("-c", program).wait() == code
