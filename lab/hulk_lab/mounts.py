"""What is mounted below a folder, and taking it away."""

from __future__ import annotations

import subprocess
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")


def below(folder: Path, mountinfo: Path = MOUNTINFO) -> list[str]:
    """Mount points inside a folder, innermost first; a node's own are in its mount namespace and end with it."""
    points = [line.split()[4].replace("\\040", " ") for line in mountinfo.read_text().splitlines()]
    return sorted((point for point in points if point.startswith(f"{folder}/")), key=len, reverse=True)


def unmount_below(folder: Path) -> None:
    """Unmount everything inside a folder."""
    for point in below(folder):
        subprocess.run(["umount", "--lazy", point], check=True, capture_output=True)
