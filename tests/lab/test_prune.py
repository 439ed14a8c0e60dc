"""What the cache keeps, and what goes."""

from __future__ import annotations

import os
from pathlib import Path

from hulk_lab.builds import prune
from hulk_lab.builds.oci import Image


def test_old_images_go_but_never_the_current_one(tmp_path: Path) -> None:
    archives = [tmp_path / "images" / f"hulk-{i}.tar" for i in range(4)]
    archives[0].parent.mkdir()
    for age, archive in enumerate(reversed(archives)):
        archive.touch()
        os.utime(archive, (age, age))  # long ago; archives[3] is the oldest

    prune.prune((Image("hulk:1", archives[3]),), cache=tmp_path, states=tmp_path / "none")

    assert [archive.exists() for archive in archives] == [True, True, False, True]
