"""All images of a lab, unpacked once: a containerd root that every node starts from as hard links.

Layers and blobs never change once written (a container's writes are copied up), so nodes can share them; only
containerd's small databases are a node's own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hulk_lab.builds.golang import program
from hulk_lab.builds.oci import Image
from hulk_lab.errors import LabError
from hulk_lab.paths import CACHE

_TIMEOUT_S = 300

# $1: containerd, $2: ctr, $3: the configuration, then the archives. In mount and process namespaces that end with it.
_UNPACK = """
set -e
mkdir -p /run/containerd && mount -t tmpfs template /run/containerd
containerd=$1 ctr=$2 config=$3; shift 3
"$containerd" --config="$config" --log-level=warn &
until "$ctr" version >/dev/null 2>&1; do sleep 0.1; done
for archive in "$@"; do "$ctr" --namespace=k8s.io images import "$archive"; done
kill $! && wait $! || true
"""


def folder(images: Sequence[Image]) -> Path:
    """Where the unpacked images are, once made."""
    names = [str(program("containerd")), *sorted(image.archive.name for image in images)]
    return CACHE / f"containerd-{hashlib.sha256(repr(names).encode()).hexdigest()[:16]}"


def build(images: Sequence[Image]) -> Path:
    """Unpack the images unless that was done."""
    target = folder(images)
    if not target.is_dir():
        with tempfile.TemporaryDirectory(prefix=".containerd-", dir=CACHE) as scratch:
            root, config = Path(scratch) / "root", Path(scratch) / "config.toml"
            earlier = _newest()
            if earlier is not None:  # then only the layers that changed are unpacked
                copy(earlier, root)
            config.write_text(f'version = 3\nroot = "{root}"\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
            limit = ["timeout", str(_TIMEOUT_S)]
            own: list[str | Path] = [*limit, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
            script = ["/bin/sh", "-c", _UNPACK, "unpack"]
            arguments = [program("containerd"), program("ctr"), config, *(image.archive for image in images)]
            done = subprocess.run([*own, *script, *arguments], capture_output=True, text=True, check=False)
            if done.returncode:
                raise LabError(f"unpacking the lab's images failed:\n{(done.stdout + done.stderr)[-3000:]}")
            if not target.exists():
                os.rename(root, target)
    return target


def _newest() -> Path | None:
    found = [path for path in CACHE.glob("containerd-*") if path.is_dir()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def copy(template: Path, root: Path) -> None:
    """Make a node's containerd root from the template, unless it has one."""
    if root.exists():
        return
    fresh = root.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    link = "--link" if template.stat().st_dev == fresh.parent.stat().st_dev else "--no-clobber"
    subprocess.run(["cp", "--archive", link, template, fresh], check=True, capture_output=True)
    for database in fresh.rglob("*.db"):
        own = database.with_suffix(".own")
        shutil.copy2(database, own)
        own.replace(database)
    fresh.rename(root)
