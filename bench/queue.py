"""`python -m bench queue`: five arriving jobs on six nodes, what their work is worth by GADGET, FIFO and DRF, measured.

The run is the lab test's of the queue; here it goes on with the other two policies.
"""

import subprocess
import sys

from hulk_lab import paths

TEST = "tests/lab/test_lab_fleet.py"


def run(short: bool = False) -> None:
    """Print what each policy reached; `short` only the moves of the first, which `make test` also shows."""
    chosen = "not long" if short else "long"
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", chosen, TEST]
    if subprocess.run(command, cwd=paths.REPOSITORY, check=False).returncode:
        raise RuntimeError(f"{TEST}: not all of it holds")
