"""`tools/gpu-check` is whole, although nobody here has a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = str(Path(__file__).parents[2] / "tools" / "gpu-check")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=360)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: run tools/gpu-check")
def test_without_a_gpu_it_says_so() -> None:
    done = run()
    assert done.returncode == 2
    assert done.stderr.strip() == "no GPU: torch finds no CUDA device"


@pytest.mark.whole
@pytest.mark.timeout(400)
def test_every_row_runs_by_the_cpu() -> None:
    done = run("--device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 5
    assert not any(result.startswith("WRONG") for _, result, _ in rows)
