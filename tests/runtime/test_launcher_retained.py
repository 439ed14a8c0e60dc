"""hulk-launch in a pod that outlives an attempt: it starts the next attempt's ranks, and none of another plan."""

import json
import os
import signal
from pathlib import Path

import pytest
from hulk_runtime import names
from hulk_runtime.job import gang

LAUNCH = ("-m", "hulk_runtime.job.launcher")
# Says which attempt's plan it has read, then waits to be told; `end` holds codes by attempt to end with at once.
SCRIPT = """
import os, signal, sys, time
from hulk_runtime.plan import wire
plan = wire.load(os.environ["HULK_PLAN"])
assert plan.attempt == int(os.environ["HULK_ATTEMPT"])
who = [os.environ[key] for key in ("HULK_ATTEMPT", "HULK_WORKER", "RANK", "WORLD_SIZE", "MASTER_ADDR")]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("rank:", *who, flush=True)
codes = dict(pair.split("=") for pair in sys.argv[1:])
if os.environ["HULK_ATTEMPT"] in codes:
    sys.exit(int(codes[os.environ["HULK_ATTEMPT"]]))
time.sleep(1000)
"""


class Volume:
    """What the kubelet mounts: files behind one symbolic link."""

    def __init__(self, folder: Path, encode, make_plan) -> None:
        self.folder, self._encode, self._make_plan = folder, encode, make_plan
        self._number = 0
        folder.mkdir()

    def write(self, attempt: int, worker: int, workers: int = 2, plan_attempt: int | None = None, **more: str) -> None:
        self._number += 1
        here = self.folder / f"..{self._number}"
        here.mkdir()
        of_plan = plan_attempt or attempt
        environment = {names.ENV_ATTEMPT: str(of_plan), names.ENV_MASTER_ADDR: f"demo-{of_plan}.team.svc", **more}
        (here / names.GANG_ATTEMPT_FILE).write_text(str(attempt))
        (here / names.GANG_WORKER_FILE).write_text(str(worker))
        (here / names.GANG_ENVIRONMENT_KEY).write_text(json.dumps(environment))
        (here / names.PLAN_KEY).write_bytes(self._encode(self._make_plan((1,) * workers, attempt=of_plan)))
        (self.folder / "..new").symlink_to(here.name)
        os.replace(self.folder / "..new", self.folder / "..data")


@pytest.fixture
def volume(tmp_path: Path, encode_plan, make_plan) -> Volume:
    return Volume(tmp_path / "plan", encode_plan, make_plan)


@pytest.fixture
def launch(job, tmp_path: Path, volume: Volume):
    """launch("1=69", ...) runs the script under the launcher."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def start(*codes: str, **environment: str):
        # As the pod was made: for worker 1 of attempt 1.
        made = {"HULK_GANG": str(volume.folder), "HULK_PLAN": "none", "HULK_ATTEMPT": "1", "HULK_WORKER": "1"}
        return job.start(*LAUNCH, str(script), *codes, **made, **environment)

    return start


def test_the_ranks_of_the_next_attempt_follow_those_that_lost_a_peer(launch, volume: Volume) -> None:
    volume.write(attempt=1, worker=1)
    pod = launch("1=69", "2=0")
    pod.wait_for("waiting up to 120 s for the next one")
    volume.write(attempt=2, worker=0, workers=3)
    assert pod.wait() == 0
    assert [line for line in pod.output.splitlines() if line.startswith("rank:")] == [
        "rank: 1 1 1 2 demo-1.team.svc",
        "rank: 2 0 0 3 demo-2.team.svc",
    ]


@pytest.mark.parametrize("code", [69, 75, 143])
def test_the_wait_is_bounded_and_ends_with_the_ranks_code(launch, volume: Volume, code: int) -> None:
    volume.write(attempt=1, worker=1)
    pod = launch(f"1={code}", HULK_STAY_SECONDS="1.5")
    assert pod.wait() == code
    assert "no attempt after 1 came within 1.5 s" in pod.output


@pytest.mark.parametrize("code", [1, 64, 65, 74])
def test_a_failure_of_its_own_ends_the_pod(launch, volume: Volume, code: int) -> None:
    volume.write(attempt=1, worker=1)
    assert launch(f"1={code}").wait() == code


def test_running_ranks_are_stopped_for_a_newer_attempt(launch, volume: Volume) -> None:
    volume.write(attempt=1, worker=1)
    pod = launch("3=0")
    pod.wait_for("rank: 1 1 1 2")
    volume.write(attempt=3, worker=1)
    assert pod.wait() == 0
    assert "a newer attempt has begun: the ranks stop" in pod.output
    assert "rank: 3 1 1 2 demo-3.team.svc" in pod.output


def test_no_rank_runs_with_the_plan_of_another_attempt(launch, volume: Volume) -> None:
    """Labels and ConfigMap reach the pod one after the other, in either order; a pod left out is never relabelled."""
    volume.write(attempt=1, worker=1)
    pod = launch("1=69", "3=0")
    pod.wait_for("waiting up to")
    volume.write(attempt=1, worker=1, plan_attempt=2)  # the plan is of a gang that this pod is not in
    volume.write(attempt=3, worker=0, plan_attempt=2)
    assert gang.read(volume.folder, newer_than=1) is None
    volume.write(attempt=3, worker=0)
    assert pod.wait() == 0
    assert "rank: 2" not in pod.output


def test_ranks_keep_the_plan_they_were_started_with(job, tmp_path: Path, volume: Volume) -> None:
    """A rank may be slow to read it: the files may be of a later attempt by then."""
    script = tmp_path / "slow.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from hulk_runtime.plan import wire\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "print('begun', flush=True)\n"
        "time.sleep(0 if os.environ['HULK_ATTEMPT'] == '2' else 3)\n"
        "print('plan of', wire.load(os.environ['HULK_PLAN']).attempt, 'in', os.environ['HULK_ATTEMPT'], flush=True)\n"
    )
    volume.write(attempt=1, worker=1)
    pod = job.start(*LAUNCH, str(script), HULK_GANG=str(volume.folder))
    pod.wait_for("begun")
    volume.write(attempt=2, worker=1)
    assert pod.wait() == 0
    assert "plan of 1 in 1\n" in pod.output
    assert "plan of 2 in 2\n" in pod.output


@pytest.mark.parametrize("codes", [("1=69",), ()], ids=["while it waits", "while ranks run"])
def test_sigterm_ends_it(launch, volume: Volume, codes: tuple[str, ...]) -> None:
    volume.write(attempt=1, worker=1)
    pod = launch(*codes)
    pod.wait_for("waiting up to" if codes else "rank: 1")
    pod.popen.send_signal(signal.SIGTERM)
    assert pod.wait() == (69 if codes else 143)
    assert "rank: 2" not in pod.output


@pytest.mark.parametrize(("grace_s", "end_s"), [("0.5", None), ("1000", "0")], ids=["its grace", "nothing to save"])
def test_a_rank_that_does_not_stop_for_a_newer_attempt_is_killed(
    job, tmp_path: Path, volume: Volume, grace_s: str, end_s: str | None
) -> None:
    script = tmp_path / "deaf.py"
    script.write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('begun', flush=True)\n"
        "time.sleep(0 if os.environ['HULK_ATTEMPT'] == '2' else 1000)\n"
    )
    volume.write(attempt=1, worker=1)
    pod = job.start(*LAUNCH, str(script), HULK_GANG=str(volume.folder), HULK_GRACE_SECONDS=grace_s)
    pod.wait_for("begun")
    volume.write(attempt=2, worker=1, **({} if end_s is None else {names.ENV_END_SECONDS: end_s}))
    assert pod.wait() == 0
