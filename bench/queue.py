"""`python -m bench queue`: five arriving jobs on six nodes, what their work is worth by GADGET, FIFO and DRF, measured.

The lab test of the queue does it; `make test` leaves it out.
"""

import subprocess
import sys

from hulk_lab import paths

TEST = "tests/lab/test_lab_fleet.py"


def run(short: bool = False) -> None:
    """Print what each policy reached; `short` leaves out the other two."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "long", TEST]
    if short:
        command += ["-k", "not worth_more"]
    if subprocess.run(command, cwd=paths.REPOSITORY, check=False).returncode:
        raise RuntimeError(f"{TEST}: not all of it holds")
