"""Keep the cache small: every change of the sources makes a new wheel, image and unpacked copy of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from hulk_lab import paths
from hulk_lab.builds import images, template
from hulk_lab.builds.oci import Image

NUM_KEPT = 2
"""Newest of each kind that stay, beside those that labs on this machine use."""
MIN_AGE_S = 3600
"""Younger ones stay too: another lab may be about to use them."""

_KINDS = ("wheel-*", "context-*", "containerd-*", "images/hulk-*")


def prune(current: tuple[Image, ...], cache: Path = paths.CACHE, states: Path = paths.STATES) -> None:
    """Remove what is old, not among the newest of its kind, not `current` and used by no lab."""
    used = {*_made_of(current), *_used(states)}
    oldest_s = time.time() - MIN_AGE_S
    for kind in _KINDS:
        found = sorted(cache.glob(kind), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in found[NUM_KEPT:]:
            if path not in used and path.stat().st_mtime < oldest_s:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _used(states: Path) -> Iterator[Path]:
    for state in states.iterdir() if states.is_dir() else ():
        yield from _made_of(images.chosen(state))


def _made_of(chosen: tuple[Image, ...]) -> Iterable[Path]:
    """The archives of images that nodes hold together, and their unpacked copy."""
    return [*(image.archive for image in chosen), template.folder(chosen)] if chosen else []
