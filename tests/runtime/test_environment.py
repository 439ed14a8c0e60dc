"""Variables, quotas, URLs and errors at the edge of a pod."""

import pytest
from hulk_operator.pods import Exit, WorkerPod
from hulk_operator.pods.termination_record import Farewell, farewell
from hulk_operator.pods.worker import LONG_AGO
from hulk_runtime import errors, names
from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.job import cpu_threads, environment
from hulk_runtime.job.environment import Checkpointing


def test_a_pods_variables_become_one_value():
    read = environment.read(
        {
            "RANK": "3",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "demo-2-0.demo-2.team.svc",
            "HULK_JOB": "team/demo",
            "HULK_ATTEMPT": "2",
            "HULK_CHECKPOINT_URL": "s3://bucket/path",
            "HULK_CHECKPOINT_EVERY_STEPS": "10",
            "HULK_CHECKPOINT_KEEP": "2",
        }
    )
    assert (read.rank, read.local_rank, read.attempt, read.master_port) == (3, 1, 2, names.MASTER_PORT)
    assert read.checkpointing == Checkpointing("s3://bucket/path", 10, 2)


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"HULK_ATTEMPT": "x"}, "HULK_ATTEMPT='x' is not a whole number"),
        ({"HULK_RENDEZVOUS_SECONDS": "soon"}, "HULK_RENDEZVOUS_SECONDS='soon' is not a number"),
        ({"HULK_RENDEZVOUS_SECONDS": "nan"}, "HULK_RENDEZVOUS_SECONDS='nan' must be >= 0 and finite"),
        ({"HULK_START_SECONDS": "inf"}, "HULK_START_SECONDS='inf' must be >= 0 and finite"),
        ({"HULK_SILENCE_SECONDS": "-5"}, "HULK_SILENCE_SECONDS='-5' must be >= 0 and finite"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "rank 2 is not in a world of 2"),
        ({"HULK_CHECKPOINT_URL": "file:///c", "HULK_CHECKPOINT_KEEP": "0"}, "keep 0: both must be > 0"),
    ],
)
def test_a_wrong_variable_is_named(environ, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        environment.read(environ)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "1500 10000"}, 0.15),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, 2.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_a_cpu_quota_is_read_from_both_cgroup_versions(tmp_path, files, cores):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cpu_threads.quota_cores(tmp_path) == cores


@pytest.mark.parametrize(
    ("quota", "user", "expected"),
    [("1500 10000", None, "1"), ("35000 10000", None, "3"), ("1500 10000", "8", "8"), ("max 10000", None, None)],
)
def test_threads_follow_the_quota_unless_the_user_chose(tmp_path, monkeypatch, quota, user, expected):
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.delenv(names.ENV_OMP_THREADS, raising=False)
    if user:
        monkeypatch.setenv(names.ENV_OMP_THREADS, user)
    cpu_threads.limit_threads(tmp_path)
    import os

    assert os.environ.get(names.ENV_OMP_THREADS) == expected


def test_an_error_leaves_its_last_words_for_kubernetes(tmp_path, capsys):
    log = tmp_path / "termination-log"
    log.touch()
    code = errors.report(errors.PlanError("x" * 5000 + " the end"), str(log))
    assert code == 64
    assert len(log.read_bytes()) == errors.TERMINATION_LOG_BYTES
    assert log.read_bytes().endswith(b"the end")
    assert capsys.readouterr().err.startswith("PlanError: x")


@pytest.mark.parametrize("loss", [2.87912345, 1e-7, -3e20, 0.0, float("nan"), float("inf")])
def test_the_operator_reads_what_a_run_says_of_its_last_step(tmp_path, loss):
    log = tmp_path / "termination-log"
    errors.write_termination_message(errors.termination_record(2, 40, loss, 1000), str(log))
    assert not log.exists()  # outside a pod
    log.touch()
    errors.write_termination_message(errors.termination_record(2, 40, loss, 1000), str(log))
    last = Exit(errors.EXIT_STOPPED, "Error", log.read_text(), LONG_AGO)
    assert farewell(WorkerPod("demo-2-0", "p", "j", attempt=2, worker=0, exit=last)) == Farewell(
        2, 40, f"{loss:.6g}", 1000
    )


def test_the_operator_reads_which_regions_were_left_out_and_where_the_checkpoint_is(tmp_path):
    words = errors.termination_record(2, 40, 2.5, 9, 2, ["ap", "us-1"], "s3://eu/u")
    last = Exit(0, "Completed", words, LONG_AGO)
    said = farewell(WorkerPod("demo-2-2", "p", "j", attempt=2, worker=2, exit=last))
    assert said == Farewell(2, 40, "2.5", 9, epoch=2, without=("ap", "us-1"), where="s3://eu/u")


def test_every_error_has_the_exit_code_the_tree_says():
    tree = {
        "PlanError": 64,
        "ConfigurationError": 65,
        "DataError": 66,
        "PeerLostError": 69,
        "BackgroundError": 70,
        "PortError": 71,
        "CheckpointError": 74,
        "FencedError": 75,
    }
    assert {kind.__name__: kind.exit_code for kind in errors.HulkError.__subclasses__()} == tree
    for name, code in tree.items():
        assert any(name in line and str(code) in line for line in (errors.__doc__ or "").splitlines())


def test_an_unknown_store_is_the_users_error():
    with pytest.raises(ConfigurationError, match="checkpoint URL nosuch://x"):
        Store("nosuch://x/y")
