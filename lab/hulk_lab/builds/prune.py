"""Keep the cache small: every change of the sources makes a new wheel, image and unpacked copy of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from hulk_lab import paths
from hulk_lab.builds import golang, images, template
from hulk_lab.builds.oci import Image

NUM_KEPT = 2
"""Newest of each kind that stay, beside those that labs on this machine use."""
MIN_AGE_S = 3600
"""Younger ones stay too: another lab may be about to use them."""
MIN_SCRATCH_AGE_S = 24 * 3600
"""What is being built is not published for hours at worst; older scratch was left by a build that was killed."""
MAX_BUILDAH_BYTES = 2 << 30
"""buildah keeps the layers of every build; without them the next one takes some seconds more."""

_KINDS = ("wheel-*", "context-*", "containerd-*", "images/hulk-*", *(f"images/{name}-*" for name in images.TARGETS))
_HELD_KINDS = (
    *("base-*", "trainers-*", "peers-*", "wheels-*", "pip-*", "relay-*", "runtime-spec-*.json"),
    *("images/base-*", "images/pause-*", "images/store-*"),
    *(f"bin/{part.name}-*" for part in golang.PARTS),
    "bin/helm-docs-*",  # tools/chart_readme.py
)
"""What a lab uses without a record of it: programs that run, what pods mount. They go only where there is no lab."""
_SCRATCH = (".*", "bin/.*", "images/*.new", "runtime-spec-*.[0-9]*")


def prune(
    current: tuple[Image, ...],
    needed: Collection[Path] = (),
    cache: Path = paths.CACHE,
    states: Path = paths.STATES,
) -> None:
    """Remove what is old, not among the newest of its kind, neither `current` nor `needed`, and used by no lab."""
    labs = list(states.iterdir()) if states.is_dir() else []
    used = {*needed, *_made_of(current), *_used(labs)}
    for kind in (*_KINDS, *(() if labs else _HELD_KINDS)):
        found = sorted(cache.glob(kind), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in found[NUM_KEPT:]:
            if path not in used and _age_s(path) > MIN_AGE_S:
                _remove(path)
    for kind in _SCRATCH:
        for path in cache.glob(kind):
            if _age_s(path) > MIN_SCRATCH_AGE_S:
                _remove(path)
    _prune_buildah(cache / "buildah")


def _prune_buildah(storage: Path) -> None:
    """All of it or nothing: its layers build on one another."""
    try:
        stats = [path.lstat() for path in storage.rglob("*")]
    except FileNotFoundError:
        return  # somebody builds at this moment
    idle = all(time.time() - stat.st_mtime > MIN_AGE_S for stat in stats)
    if idle and sum(stat.st_size for stat in stats) > MAX_BUILDAH_BYTES:
        _remove(storage)


def _age_s(path: Path) -> float:
    return time.time() - path.lstat().st_mtime


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _used(labs: Iterable[Path]) -> Iterator[Path]:
    for state in labs:
        yield from _made_of(images.chosen(state))


def _made_of(chosen: tuple[Image, ...]) -> Iterable[Path]:
    """The archives of images that nodes hold together, and their unpacked copy."""
    return [*(image.archive for image in chosen), template.folder(chosen)] if chosen else []
