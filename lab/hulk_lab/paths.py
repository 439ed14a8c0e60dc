"""Where the lab keeps things: what can be made again in the cache, what belongs to one lab in its state folder."""

from __future__ import annotations

import os
from pathlib import Path

from hulk_lab.spec import checked_name

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hulk"
STATES = Path("/var/lib/hulk-lab")
RUN_DIR = Path("/run/hulk-lab")
"""What a reboot forgets, as it forgets namespaces and settings: slots, the settings' former values, sockets."""
SYSTEM_PROGRAMS = "/usr/local/sbin:/usr/sbin:/sbin"
"""For PATH: where Debian has sysctl, iptables and conntrack; a root shell by `su` lacks it."""


def state_folder(lab: str) -> Path:
    """Everything one lab writes: logs, process records, keys, etcd's data, images of its nodes.

    ValueError for what is no lab's name: `down` removes this folder, and `..` would be all of /var/lib.
    """
    return STATES / checked_name("lab", lab)


def write_changed(file: Path, text: str) -> None:
    """Replace a file at once, unless it holds this already: who watches it acts on every write."""
    if not file.exists() or file.read_text() != text:
        fresh = file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(file)
