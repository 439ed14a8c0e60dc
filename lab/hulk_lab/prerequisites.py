"""What must be on the machine before anything can be built, each with the one command that puts it there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from hulk_lab.errors import LabError
from hulk_lab.paths import REPOSITORY

_DEBIAN_PACKAGES = REPOSITORY / "tools" / "debian-packages"
"""One line per package: its name and a file that shows it is there."""
_GO_MINIMUM = REPOSITORY / "tools" / "go-minimum"
"""Go's oldest minor version that builds the pinned modules, and the command that installs it."""


class MissingPrerequisiteError(LabError):
    """Something the lab cannot make itself is missing; `fix` is the command that helps."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}\n      fix: {fix}")


def check_machine() -> None:
    """Root and every Debian package, or MissingPrerequisiteError naming all that is missing at once."""
    if os.geteuid() != 0:
        raise MissingPrerequisiteError(
            "the lab makes network namespaces and mounts, which needs root", "sudo -E make demo"
        )
    wanted = (line.split() for line in _DEBIAN_PACKAGES.read_text().splitlines())
    missing = [package for package, file in wanted if not Path(file).exists()]
    if missing:
        raise MissingPrerequisiteError(
            f"Debian packages are missing: {', '.join(missing)}", f"apt-get install -y {' '.join(missing)}"
        )


def check_go() -> str:
    """Go's version; MissingPrerequisiteError when it is absent or older than the pinned modules need."""
    minimum, fix = _GO_MINIMUM.read_text().strip().split(maxsplit=1)
    if shutil.which("go") is None:
        raise MissingPrerequisiteError(f"Go 1.{minimum} or newer is missing", fix)
    version = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    found = re.match(r"go1\.(\d+)", version)
    if found is None or int(found[1]) < int(minimum):
        raise MissingPrerequisiteError(f"Go 1.{minimum} or newer is needed, this is {version}", fix)
    return version
