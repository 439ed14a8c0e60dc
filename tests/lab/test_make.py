"""What `make` says to somebody who left something out, and what it asks of a machine on which no lab is built."""

from __future__ import annotations

import subprocess
from pathlib import Path


def test_an_image_without_a_name_is_one_sentence(repository: Path) -> None:
    done = subprocess.run(["make", "image", "IMAGE="], cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "IMAGE= is missing" in done.stderr
    assert "docker" not in done.stdout
