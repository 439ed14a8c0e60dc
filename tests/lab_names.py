"""What the tests call their labs: after their process, and as the run wishes that takes down what a killed one left."""

from __future__ import annotations

import os


def lab_name(kind: str) -> str:
    """A name that no other process gives; `.ci/run` sets HULK_TEST_LABS, the beginning of them all."""
    return f"{os.environ.get('HULK_TEST_LABS', '')}{kind}-{os.getpid()}"
