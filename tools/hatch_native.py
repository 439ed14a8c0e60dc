"""Hatchling's build hook: native/, the Rust crate, becomes `hulk_native.abi3.so` at the top of hulk-operator's wheel.

maturin builds a wheel of the crate alone; the library and the wheel's tag are taken from it. The tag says which Pythons
(`cp311-abi3`: every CPython from 3.11 on) and which C libraries the library runs with. An editable install gets the
library too, where its `.pth` file lies.

Cargo keeps what it compiled in native/target, so that another build of the same checkout takes seconds. A checkout that
cannot be written to is built in a temporary folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "hulk_native.abi3.so"
FIX = "apt-get install -y rustc-web cargo-web (Debian 12 and newer), or Rust's own installer, https://rustup.rs"


class NativeBuildHook(BuildHookInterface):
    """Compiles the crate before the files of a wheel are gathered."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        crate = Path(self.root) / "native"
        problem = cargo_problem(crate / "Cargo.toml")
        if problem:
            self.app.abort(f"hulk: {problem}\n      fix: {FIX}")
        self.scratch = tempfile.TemporaryDirectory(prefix="hulk-native-")
        scratch = Path(self.scratch.name)
        if build(crate, scratch) != 0:
            self.app.abort("hulk: the Rust crate in native/ could not be built; what cargo said is above")
        (wheel,) = scratch.glob("*.whl")
        build_data["pure_python"] = False
        build_data["tag"] = wheel.stem.split("-", 2)[2]
        files = {str(extracted(wheel, scratch)): LIBRARY}
        build_data["force_include"].update(files)
        build_data["force_include_editable"].update(files)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self.scratch.cleanup()


def cargo_problem(manifest: Path) -> str | None:
    """Why the crate cannot be built on this machine: no cargo, or one older than the crate's `rust-version`."""
    needed = tomllib.loads(manifest.read_text())["package"]["rust-version"]
    if shutil.which("cargo") is None:
        return f"Rust {needed} or newer is needed to build native/, and cargo is missing"
    said = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    found = re.match(r"cargo (\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < tuple(map(int, needed.split("."))):
        return f"Rust {needed} or newer is needed to build native/, this is {said or 'a cargo that does not run'}"
    return None


def build(crate: Path, scratch: Path) -> int:
    """Put a wheel of the crate into `scratch`; maturin's exit status."""
    kept = crate / "target"
    try:
        kept.mkdir(exist_ok=True)
        target = kept if os.access(kept, os.W_OK) else scratch / "target"
    except OSError:
        target = scratch / "target"
    # The same interpreter in every build: that of the build's own environment is another file each time, and cargo
    # then compiles PyO3 anew.
    interpreter = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    beside = os.path.dirname(sys.executable)  # where it is in an environment that nobody activated
    maturin = shutil.which("maturin") or shutil.which("maturin", path=beside) or "maturin"
    command = [
        *(maturin, "build", "--release", "--locked"),
        *("--manifest-path", str(crate / "Cargo.toml"), "--target-dir", str(target), "--out", str(scratch)),
        *("--interpreter", str(interpreter if interpreter.exists() else sys.executable)),
    ]
    return subprocess.run(command, check=False).returncode


def extracted(wheel: Path, folder: Path) -> Path:
    """The library in a wheel of maturin's, beside it."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".abi3.so"))
        return Path(archive.extract(name, folder))
