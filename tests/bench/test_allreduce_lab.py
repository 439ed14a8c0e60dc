"""A script on every node of a real emulated WAN: it gets what it was promised, and nothing stays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hulk_lab import paths
from hulk_lab.wan import slots
from lab_names import lab_name

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


def run(script: Path, failing_rank: int) -> subprocess.CompletedProcess[str]:
    """The script on three nodes of profile D."""
    name = lab_name("run-in-lab")
    options = ["--profile", "D", "--nodes", "3", "--name", name, "--timeout", "120"]
    command = [sys.executable, "-m", "bench.allreduce.run_in_lab", *options, str(script), str(failing_rank)]
    repository = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=repository)
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
