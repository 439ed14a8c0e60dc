"""Makes the folder that an init container copies into a worker: Hulk's runtime for any image with torch.

    instrumentation_folder.py download REQUIREMENTS WHEELS     the wheels for every Python, of this machine's kind
    instrumentation_folder.py make WHEELS RUNTIME_WHEEL FOLDER

In the folder are `sitecustomize.py`, which a Python with the folder on its PYTHONPATH runs first, Hulk's packages, and
`hulk_dependencies`, where only Hulk looks: no package of the image is hidden by what is in there. One native library
serves every Python, but for cffi's, whose file is named after its Python.
"""

import argparse
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
DEPENDENCIES = "hulk_dependencies"
START = "hulk_runtime/instrumentation/sitecustomize.py"
LEFT_OUT = ("cffi/",)
"""Of the native part alone there is need."""


def download(requirements: Path, wheels: Path) -> None:
    """The wheels that the requirements name, for each Python."""
    machine = platform.machine()
    for version in PYTHONS:
        fixed = ["--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:", "--implementation=cp"]
        kind = [f"--python-version={version}", f"--abi=cp{version.replace('.', '')}", "--abi=abi3"]
        where = [f"--platform=manylinux2014_{machine}", f"--dest={wheels}"]
        pip = [sys.executable, "-m", "pip", "download", *fixed, *kind, *where, f"--requirement={requirements}"]
        subprocess.run(pip, check=True)


def make(wheels: Path, runtime: Path, folder: Path) -> None:
    """Write the folder, which must not be there."""
    folder.mkdir(parents=True)
    dependencies = folder / DEPENDENCIES
    for wheel in sorted(wheels.glob("*.whl"), key=_python):
        _unpack(wheel, dependencies)
    _unpack(runtime, folder)
    for described in folder.glob("*.dist-info"):
        described.rename(dependencies / described.name)
    shutil.copy(folder / START, folder)


def _python(wheel: Path) -> int:
    """The oldest Python 3 that a wheel is for: 9 of cp39, 10 of cp310."""
    tag = wheel.stem.split("-")[-3]
    return int(tag.removeprefix("cp3"))


def _unpack(wheel: Path, folder: Path) -> None:
    """What is there stays: the library for the oldest Python is every later one's as well."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.startswith(LEFT_OUT) and not (folder / name).exists():
                archive.extract(name, folder)


def main() -> None:
    """Download, or make."""
    parser = argparse.ArgumentParser(description="Makes the folder that an init container copies into a worker.")
    commands = parser.add_subparsers(dest="command", required=True)
    fetching = commands.add_parser("download")
    fetching.add_argument("requirements", type=Path)
    fetching.add_argument("wheels", type=Path)
    making = commands.add_parser("make")
    making.add_argument("wheels", type=Path)
    making.add_argument("runtime", type=Path)
    making.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "download":
        download(options.requirements, options.wheels)
    else:
        make(options.wheels, options.runtime, options.folder)


if __name__ == "__main__":
    main()
