"""A script on every node of a real emulated WAN: it gets what it was promised, and nothing stays."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hulk_lab import paths
from hulk_lab.wan import slots
from lab_names import lab_name

from bench.allreduce import conductor, ours, rounds

pytestmark = pytest.mark.lab

SUM = """
import json, os, sys
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
if rank == int(sys.argv[1]):
    sys.exit(3)
dist.init_process_group("gloo")
values = torch.full((1000,), float(rank + 1))
dist.all_reduce(values)
print(json.dumps([rank, os.environ["REGIONS"], len(json.loads(os.environ["LINKS"])), values[-1].item()]))
"""


REPOSITORY = Path(__file__).parents[2]
REGIONS = ((0, 1), (2, 3))
LINKS = {(0, 1): (5e7, 1e-4), (1, 0): (5e7, 1e-4)}
WAN = {**ours.method(REGIONS, LINKS, [rounds.MIB]), "port": 29791}
METHODS: dict[str, dict[str, Any]] = {
    "flat": {"kind": "flat", "order": [0, 2, 1, 3]},
    "one member": {"kind": "hierarchical", "order": [1, 0], "members": 1},
    "all members": {"kind": "hierarchical", "order": [0, 1], "members": 2},
    "wan": WAN,
}
STEPS: dict[str, dict[str, Any]] = {"gloo": {"kind": "gloo"}, "wan": {"kind": "wan", "method": {**WAN, "port": 29792}}}


@contextlib.contextmanager
def workers() -> Iterator[conductor.Conductor]:
    """Four workers in this process's own namespace, on loopback addresses."""
    leader = conductor.Conductor(lab_name("workers"))
    addresses = ",".join(f"127.0.0.{rank + 2}" for rank in range(4))
    shared = {"WORLD_SIZE": "4", "ADDRESSES": addresses, "REGIONS": "a,a,b,b", "GLOO_SOCKET_IFNAME": "lo"}
    store = {"MASTER_ADDR": "127.0.0.2", "MASTER_PORT": "29790"}
    ranks = [("/proc/self/ns/net", {**shared, **store, "RANK": str(rank)}) for rank in range(4)]
    env = {**os.environ, **leader.env, "OMP_NUM_THREADS": "1", "RANKS": json.dumps(ranks)}
    command = [sys.executable, "-m", "bench.allreduce.nursery", "bench/allreduce/worker.py"]
    with subprocess.Popen(command, cwd=REPOSITORY, env=env) as nursery:
        try:
            leader.await_ranks(4)
            yield leader
        finally:
            leader.close()
            if nursery.wait(30):
                raise RuntimeError(f"the workers ended with {nursery.returncode}")


def test_every_method_sums_and_says_how_long_it_took() -> None:
    with workers() as leader:
        for key, method in METHODS.items():
            leader.ask("make", timeout_s=60, key=key, method=method)
            leader.ask("prepare", timeout_s=60, num_bytes=rounds.MIB)
            answers = leader.ask("reduce", timeout_s=60, key=key)
            assert all(answer["end"] > leader.last_start_s and answer["cpu_s"] > 0 for answer in answers)
            rounds.verify(key, leader.ask("check", timeout_s=60))
            leader.ask("close", timeout_s=60, key=key)


def test_gradients_are_the_mean_of_all_ranks_with_gloo_and_with_the_hook() -> None:
    with workers() as leader:
        for key, steps in STEPS.items():
            whole = {"num_layers": 2, "cap_mb": 1, "order": [0, 1, 2, 3], **steps}
            leader.ask("make steps", timeout_s=60, key=key, steps=whole)
            leader.ask("step", timeout_s=60, key=key)
            rounds.verify(key, leader.ask("check steps", timeout_s=60, key=key))
            leader.ask("close steps", timeout_s=60, key=key)


def run(script: Path, failing_rank: int) -> subprocess.CompletedProcess[str]:
    """The script on three nodes of profile D."""
    name = lab_name("run-in-lab")
    options = ["--profile", "D", "--nodes", "3", "--name", name, "--timeout", "120"]
    command = [sys.executable, "-m", "bench.allreduce.run_in_lab", *options, str(script), str(failing_rank)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert slots.find(name) is None
    assert not paths.state_folder(name).exists()
    return done


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Sums over all ranks and prints; one rank may fail."""
    path = tmp_path / "sum.py"
    path.write_text(SUM)
    return path


def test_every_node_runs_the_script_and_rank_0_is_heard(script: Path) -> None:
    done = run(script, failing_rank=-1)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[0, "p,o,t", 6, 6.0]]
    assert "[2, " in done.stderr


def test_a_rank_that_fails_ends_all(script: Path) -> None:
    done = run(script, failing_rank=1)
    assert done.returncode == 1
    assert "rank 1 ended with 3" in done.stderr
    assert done.stdout == ""
