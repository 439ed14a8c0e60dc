"""Where the lab keeps things: what can be made again in the cache, what belongs to one lab in its state folder."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hulk"
STATES = Path("/var/lib/hulk-lab")
SYSTEM_PROGRAMS = "/usr/local/sbin:/usr/sbin:/sbin"
"""For PATH: where Debian has sysctl, iptables and conntrack; a root shell by `su` lacks it."""


def state_folder(lab: str) -> Path:
    """Everything one lab writes: logs, process records, keys, etcd's data, images of its nodes."""
    return STATES / lab


def kubeconfig(lab: str) -> Path:
    """The administrator's kubeconfig of a lab that is up."""
    return state_folder(lab) / "kubeconfig"


def binaries(lab: str) -> Path:
    """Links to every program of the lab: put it on PATH for kubectl and helm."""
    return state_folder(lab) / "bin"


def write_changed(file: Path, text: str) -> None:
    """Replace a file at once, unless it holds this already: who watches it acts on every write."""
    if not file.exists() or file.read_text() != text:
        fresh = file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(file)
