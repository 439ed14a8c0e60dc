"""Processes are found again and only they are stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hulk_lab.processes import NotReadyError, Process, ProcessTable, wait_until


@pytest.fixture
def table(tmp_path: Path) -> ProcessTable:
    return ProcessTable(tmp_path)


def test_a_started_process_is_recorded_with_its_start_time_and_stopped(table: ProcessTable) -> None:
    started = table.start("sleeper", ["sleep", "60"])

    assert ProcessTable(table.state).all() == [started]
    assert started.alive
    table.stop([started])
    assert not started.alive
    assert table.all() == []


def test_a_process_that_ignores_sigterm_is_killed(table: ProcessTable) -> None:
    stubborn = table.start("stubborn", ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    wait_until(lambda: "ready" in table.log("stubborn").read_text(), "the trap", timeout_s=60)

    table.stop([stubborn], grace_s=0.2)

    assert not stubborn.alive


def test_a_process_lives_until_its_last_thread_ends(table: ProcessTable) -> None:
    """A killed API server whose first thread was gone still held its port: the next one could not listen."""
    program = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
        "print('ready', flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    half = table.start("half", [sys.executable, "-c", program])
    wait_until(lambda: "ready" in table.log("half").read_text(), "the thread", timeout_s=60)
    stat = Path(f"/proc/{half.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "end of the first thread", timeout_s=60)

    assert half.alive
    table.kill([half])
    assert not half.alive


def test_a_reused_pid_is_left_alone(table: ProcessTable) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            table.kill([Process("old", stranger.pid, start_ticks=1)])
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_process_outlives_a_sigkill_of_its_starter_and_is_found_by_the_next(table: ProcessTable) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from hulk_lab.processes import ProcessTable; "
        "ProcessTable(Path(sys.argv[1])).start('orphan', ['sleep', '60']); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(table.state)], env=dict(os.environ), check=False)

    assert done.returncode == -signal.SIGKILL
    (orphan,) = table.all()
    assert orphan.alive
    table.stop([orphan])
    assert not orphan.alive


def test_a_second_start_under_a_running_name_is_refused_with_its_pid(table: ProcessTable) -> None:
    running = table.start("one", ["sleep", "60"])
    try:
        with pytest.raises(ValueError, match=f"runs already with pid {running.pid}"):
            table.start("one", ["sleep", "60"])
    finally:
        table.stop([running])


def test_a_condition_that_stays_false_is_reported_with_the_log(table: ProcessTable) -> None:
    failed = table.start("failing", ["/bin/sh", "-c", "echo the reason; exit 3"])
    log = table.log("failing")
    wait_until(lambda: not failed.alive, "the end", timeout_s=60)

    with pytest.raises(NotReadyError, match=r"(?s)port open: not within 0.1 s.*the reason"):
        wait_until(lambda: False, "port open", timeout_s=0.1, log=log)


def test_a_process_that_should_run_is_started_once_and_again_when_it_is_gone(table: ProcessTable) -> None:
    table.ensure("sleeper", ["sleep", "60"])
    first = table.find("sleeper")
    table.ensure("sleeper", ["sleep", "60"])
    assert table.find("sleeper") == first
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: not first.alive, "its end", timeout_s=60)
    table.ensure("sleeper", ["sleep", "60"])
    second = table.find("sleeper")
    assert second is not None
    assert second.alive
    table.kill([second])
