"""hulk-launch and torchrun: the right ranks, signals passed on, the first failure's code kept."""

import re
import signal
from pathlib import Path

import pytest
from hulk_runtime import names
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.job import launcher

LAUNCH = ("-m", "hulk_runtime.job.launcher")
PLAIN = str(Path(__file__).resolve().parents[2] / "examples" / "plain_ddp.py")


@pytest.fixture
def write_script(tmp_path: Path):
    """write_script(text) -> path of a script that the ranks run."""

    def write(text: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return write


def test_a_worker_takes_its_slice_of_the_plan(job, make_plan):
    job.write_plan(make_plan((2, 1, 3)))
    slices = [launcher.slice_of({"HULK_PLAN": job.environment["HULK_PLAN"], "HULK_WORKER": str(w)}) for w in range(3)]
    assert [list(s.ranks) for s in slices] == [[0, 1], [2], [3, 4, 5]]
    assert {s.world_size for s in slices} == {6}


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"RANK": "one"}, "RANK='one' is not a whole number"),
        ({"PET_NNODES": "2", "PET_NPROC_PER_NODE": "gpu"}, "PET_NPROC_PER_NODE='gpu' is not a whole number"),
        ({"PET_NNODES": "1", "PET_NPROC_PER_NODE": "0"}, "PET_NPROC_PER_NODE=0 ranks: there is no such worker"),
        ({"PET_NNODES": "2", "PET_NODE_RANK": "7"}, "PET_NODE_RANK=7 of PET_NNODES=2 workers"),
        ({"PET_NNODES": "0"}, "PET_NODE_RANK=0 of PET_NNODES=0 workers"),
        ({"RANK": "5", "WORLD_SIZE": "2"}, "RANK=5 is not in a world of WORLD_SIZE=2"),
        ({"RANK": "-1"}, "RANK=-1 is not in a world of WORLD_SIZE=1"),
    ],
)
def test_a_wrong_variable_is_named(environ, complaint):
    with pytest.raises(ConfigurationError, match=re.escape(complaint)):
        launcher.slice_of(environ)


@pytest.mark.parametrize(("arguments", "code"), [(("--help",), 0), (("-h",), 0), ((), 65)])
def test_help_is_no_error_and_no_script_is_one(job, arguments, code):
    worker = job.start(*LAUNCH, *arguments)
    assert worker.wait() == code
    assert launcher.USAGE in worker.output


def test_a_worker_the_plan_does_not_have_is_refused(job, make_plan):
    job.write_plan(make_plan((1, 1)))
    worker = job.start(*LAUNCH, "script.py", HULK_WORKER="2")
    assert worker.wait() == 65
    assert "HULK_WORKER=2, the plan has 2 workers" in worker.output


def test_ranks_get_what_torchrun_would_give_them(job, make_plan, write_script):
    script = write_script(
        "import os, sys\n"
        "keys = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'GROUP_RANK', 'NODE_RANK', 'MASTER_ADDR')\n"
        "line = ' '.join([*(os.environ[k] for k in keys), *sys.argv[1:]])\n"
        "os.write(1, f'{line}\\n'.encode())  # at once: another rank writes too\n"
    )
    job.write_plan(make_plan((1, 2)))
    worker = job.start(*LAUNCH, script, "--flag", HULK_WORKER="1")
    assert worker.wait() == 0
    assert sorted(worker.output.splitlines()) == ["1 0 3 2 1 1 127.0.0.1 --flag", "2 1 3 2 1 1 127.0.0.1 --flag"]


def test_threads_are_shared_between_the_ranks_of_a_worker(monkeypatch):
    monkeypatch.setattr(launcher.cpu_threads, "quota_cores", lambda: 6.0)
    two = launcher.Slice(worker=0, ranks=range(2), world_size=2)
    assert {v[names.ENV_OMP_THREADS] for v in launcher.rank_variables(two, {})} == {"3"}
    assert {v[names.ENV_OMP_THREADS] for v in launcher.rank_variables(two, {names.ENV_OMP_THREADS: "5"})} == {"5"}


def test_the_first_failure_ends_the_others_and_keeps_its_code(job, make_plan, write_script):
    script = write_script("import os, sys, time\nsys.exit(7) if os.environ['RANK'] == '1' else time.sleep(1000)\n")
    job.write_plan(make_plan((3,)))
    worker = job.start(*LAUNCH, script)
    assert worker.wait() == 7


def test_a_rank_that_ignores_sigterm_is_killed(job, make_plan, write_script):
    script = write_script(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.kill(os.getpid(), signal.SIGKILL) if os.environ['RANK'] == '1' else time.sleep(1000)\n"
    )
    job.write_plan(make_plan((2,)))
    hurried = "from hulk_runtime.job import launcher; launcher.GRACE_S = 0.2; launcher.main()"
    worker = job.start("-c", hurried, script)
    assert worker.wait() == 128 + signal.SIGKILL


def test_signals_reach_the_ranks_and_stopping_is_no_failure(job, make_plan, write_script):
    script = write_script(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "os.write(1, b'ready\\n')  # whole, beside the other rank's\n"
        "time.sleep(1000)\n"
    )
    job.write_plan(make_plan((2,)))
    worker = job.start(*LAUNCH, script)
    worker.wait_for("ready\nready\n")
    worker.popen.send_signal(signal.SIGTERM)
    assert worker.wait() == 143


def test_two_workers_with_two_ranks_each_train(job, make_plan, make_training):
    """Four ranks by two launchers; then the same by one rank per worker: the same training."""
    document = make_plan((2, 2), training=make_training(4, steps=4))
    job.write_plan(document)
    workers = [job.start(*LAUNCH, "-m", "hulk_runtime.examples.gpt", HULK_WORKER=str(w)) for w in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    apart = job.run_ranks(make_plan((1, 1), shares=[4, 4], training=make_training(4, steps=4)))
    together = [float(loss) for loss in workers[0].losses().values()]
    assert together == pytest.approx([float(loss) for loss in apart[0].losses().values()], abs=2e-4)
    assert not workers[1].losses()


def test_a_plain_script_runs_in_the_planned_order_with_one_rank_per_worker(job, make_plan):
    """No launcher, no Hulk import: RANK decides, and the operator gave rank r to worker r of the plan."""
    first = job.run_ranks(make_plan((1, 1)), PLAIN)[0]
    losses = [float(loss) for loss in first.losses().values()]
    assert losses[-1] < 0.5 * losses[0]
    assert "ring by worker: 0 -> 1\n" in first.output


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(LAUNCH, id="hulk-launch"),
        pytest.param(("-m", "torch.distributed.run"), id="torchrun", marks=pytest.mark.whole),  # in short: in the lab
    ],
)
def test_a_plain_script_runs_in_the_planned_order_with_several_ranks_per_worker(job, make_plan, write_script, command):
    script = write_script(
        "import os, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "ring = [''] * dist.get_world_size()\n"
        "dist.all_gather_object(ring, os.environ['HULK_WORKER'] + '.' + os.environ['LOCAL_RANK'])\n"
        "os.write(1, f\"{dist.get_rank()} ring {' '.join(ring)}\\n\".encode())  # whole: two ranks write to one file\n"
        "dist.destroy_process_group()\n"
    )
    job.write_plan(make_plan((2, 2)))
    job.environment.pop("WORLD_SIZE")
    slices = [{"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": w, "HULK_WORKER": w} for w in "01"]
    workers = [job.start(*command, script, **variables) for variables in slices]
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].output + workers[1].output
    for rank in range(4):
        assert f"{rank} ring 0.0 0.1 1.0 1.1\n" in workers[rank // 2].output


def test_the_launcher_does_not_import_torch(job, make_plan, write_script):
    script = write_script("")
    job.write_plan(make_plan((1,)))
    program = "import os, sys; from hulk_runtime.job import launcher; launcher.launch(sys.argv[1:], os.environ)"
    worker = job.start("-c", program + "; sys.exit('torch' in sys.modules)", script)
    assert worker.wait() == 0, worker.output
