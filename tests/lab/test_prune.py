"""What the cache keeps, and what goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
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


def aged(path: Path, age_s: float, content: str = "") -> Path:
    """A file or, without a suffix, a folder with one file, that was last changed so long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix:
        path.write_text(content)
    else:
        path.mkdir()
        (path / "file").write_text(content)
    for each in (*path.glob("*"), path):
        os.utime(each, (time.time() - age_s,) * 2)
    return path


@pytest.mark.parametrize(
    "kind", ["base-%d", "wheels-%d", "pip-%d", "relay-%d", "runtime-spec-%d.json", "bin/kubernetes-%d"]
)
def test_what_labs_hold_goes_when_there_is_none_but_never_what_is_needed(tmp_path: Path, kind: str) -> None:
    made = [aged(tmp_path / (kind % i), (i + 2) * prune.MIN_AGE_S) for i in range(4)]
    lab = tmp_path / "states" / "lab"
    lab.mkdir(parents=True)

    prune.prune((), {made[3]}, cache=tmp_path, states=tmp_path / "states")
    assert all(path.exists() for path in made)
    lab.rmdir()
    prune.prune((), {made[3]}, cache=tmp_path, states=tmp_path / "states")

    assert [path.exists() for path in made] == [True, True, False, True]


def test_scratch_goes_when_whoever_made_it_must_be_dead(tmp_path: Path) -> None:
    names = (".wheel-1-x", ".containerd-y", "bin/.helm-z", "images/hulk-1.new", "runtime-spec-1.77")
    old = [aged(tmp_path / name, 2 * prune.MIN_SCRATCH_AGE_S) for name in names]
    new = [aged(tmp_path / f"{name}2", prune.MIN_SCRATCH_AGE_S / 2) for name in names]
    lock = aged(tmp_path / "build.lock", 9 * prune.MIN_SCRATCH_AGE_S)

    prune.prune((), cache=tmp_path, states=tmp_path / "none")

    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in (*new, lock))


def test_buildahs_layers_go_when_they_are_many_and_nobody_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = aged(tmp_path / "buildah" / "overlay" / "layer.tar", 2 * prune.MIN_AGE_S, content="x" * 1000)
    os.utime(layer.parent, (0, 0))

    prune.prune((), cache=tmp_path, states=tmp_path / "none")
    assert layer.exists()
    monkeypatch.setattr(prune, "MAX_BUILDAH_BYTES", 999)
    os.utime(layer)
    prune.prune((), cache=tmp_path, states=tmp_path / "none")
    assert layer.exists()
    os.utime(layer, (0, 0))
    prune.prune((), cache=tmp_path, states=tmp_path / "none")

    assert not (tmp_path / "buildah").exists()
