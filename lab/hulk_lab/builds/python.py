"""The lab's Python: what pods borrow from the machine (interpreter, torch) and what the image brings (wheels).

Borrowed is only what a user's base image would bring: Python itself, and a folder of its own that holds torch and
torch's requirements at the versions in uv.lock. Never the project's environment, never its sources.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hulk_lab.errors import LabError
from hulk_lab.paths import CACHE, REPOSITORY
from hulk_lab.prerequisites import MissingPrerequisiteError

_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_OPERATOR, _RUNTIME = "hulk-operator", "hulk-runtime"
_NOT_IN_AGENT = ("cryptography", "fsspec", "numpy", "pydantic")
"""Of what hulk-runtime requires: what it trains with."""
INSTRUMENTATION = REPOSITORY / "tools" / "instrumentation_folder.py"
_INSTRUMENTATION_REQUIREMENTS = REPOSITORY / "tools" / "instrumentation-requirements.txt"
_SOURCES = (
    *("operator", "placement", "runtime", "pyproject.toml", "README.md", "LICENSE", "tools/hatch_native.py"),
    *("native/src", "native/Cargo.toml", "native/Cargo.lock", "native/pyproject.toml"),
)


@dataclass(frozen=True, slots=True)
class Mount:
    """A read-only bind mount of a folder or file of the machine into pods."""

    source: Path
    target: str


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The machine's Python as pods see it: Debian's where Debian has it, any other below /usr/local."""

    prefix: Path
    mounts: tuple[Mount, ...]
    site_packages: str
    """Where that Python looks for what is installed beside it (inside a pod)."""
    binaries: tuple[Path, ...]
    """Executables and libraries (on the machine) whose shared libraries the base image must hold."""

    @property
    def own_libraries(self) -> tuple[Path, ...]:
        """libpython of an interpreter below /usr/local, if it has one of its own."""
        return () if self.prefix == Path("/usr") else tuple((self.prefix / "lib").glob("libpython3.*.so.*"))

    @classmethod
    def current(cls) -> Interpreter:
        """The Python that runs the lab."""
        prefix = Path(sys.base_prefix)
        library = prefix / "lib" / _VERSION
        binaries = (prefix / "bin" / _VERSION, *sorted((library / "lib-dynload").glob("*.so")))
        if prefix != Path("/usr"):
            return cls(prefix, (Mount(prefix, "/usr/local"),), f"/usr/local/lib/{_VERSION}/site-packages", binaries)
        folders = [library, Path("/usr/bin") / _VERSION, Path("/usr/share/python-wheels")]
        mounts = tuple(Mount(path, str(path)) for path in folders if path.exists())
        return cls(prefix, mounts, f"/usr/local/lib/{_VERSION}/dist-packages", binaries)


def torch_folder() -> Path:
    """Where the base's torch is, once built: the name covers Python's version and every pinned requirement."""
    return CACHE / f"base-{_digest(_VERSION, str(sys.base_prefix), *_torch_requirements())}" / "site-packages"


def build_torch() -> Path:
    """Install torch with its requirements (hard links into uv's cache) unless it is there."""
    return _installed(torch_folder(), _torch_requirements())


def packages_folder(group: str) -> Path:
    """Where a dependency group's packages are, once built: `trainers`, or `peers`, other projects' programs."""
    return CACHE / f"{group}-{_digest(_VERSION, *_group_requirements(group))}" / "site-packages"


def build_packages(group: str) -> Path:
    """Install them beside what the base brings, unless they are there."""
    return _installed(packages_folder(group), _group_requirements(group))


def _installed(target: Path, requirements: Sequence[str]) -> Path:
    """A folder of packages, without what they require."""
    if not target.is_dir():
        with _staged(target.parent) as scratch:
            listed = scratch.parent / "requirements.txt"
            listed.write_text("\n".join(requirements))
            command = ["pip", "install", "--python", sys.executable, "--no-deps", "--compile-bytecode", "--quiet"]
            _uv(*command, "--target", str(scratch / "site-packages"), "--requirements", str(listed))
            _publish(scratch, target.parent)
    return target


def wheels_folder() -> Path:
    """Where the images' dependency wheels are, once built, with the requirements/*.txt that name them."""
    ours = [path.read_text() for path in (INSTRUMENTATION, _INSTRUMENTATION_REQUIREMENTS)]
    return CACHE / f"wheels-{_digest(_VERSION, *_image_requirements().values(), *ours)}"


def build_wheels() -> Path:
    """Download every wheel the images need, with the checksums of uv.lock, unless they are there."""
    target = wheels_folder()
    if not target.is_dir():
        with _staged(target) as scratch:
            (scratch / "requirements").mkdir()
            options: list[str | Path] = ["--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
            for name, lines in _image_requirements().items():
                requirements = scratch / "requirements" / f"{name}.txt"
                requirements.write_text(lines)
                options += ["--requirement", requirements]
            _run([*_pip(), "download", *options, "--dest", scratch / "wheels"])
            shutil.copy(_INSTRUMENTATION_REQUIREMENTS, scratch / "requirements" / "instrumentation.txt")
            _run([_pip()[0], INSTRUMENTATION, "download", _INSTRUMENTATION_REQUIREMENTS, scratch / "wheels"])
            _publish(scratch, target)
    return target


def project_folder() -> Path:
    """Where the project's own wheels are, once built; another line of source is another folder."""
    digest = hashlib.sha256()
    for source in _SOURCES:
        root = REPOSITORY / source
        files = sorted(path for path in root.rglob("*") if path.is_file()) if root.is_dir() else [root]
        for path in files:
            if "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes())
    return CACHE / f"wheel-{digest.hexdigest()[:16]}"


def build_project() -> Path:
    """Build the project's wheels, as a user would install them, unless they are there; the folder of wheels."""
    target = project_folder()
    if not target.is_dir():
        with _staged(target) as scratch:
            for package in (_OPERATOR, _RUNTIME):
                _uv("build", "--quiet", "--wheel", "--package", package, "--out-dir", str(scratch), str(REPOSITORY))
            (scratch / ".gitignore").unlink(missing_ok=True)
            _publish(scratch, target)
    return target


def _torch_requirements() -> list[str]:
    """torch and what it needs, as uv.lock pins them for this machine."""
    lines = _export(_RUNTIME, "--extra", "torch", "--no-hashes").splitlines()
    ours = set(_export(_RUNTIME, "--no-hashes").splitlines())
    return [line for line in lines if line not in ours or line.startswith("typing-extensions==")]


def _group_requirements(group: str) -> list[str]:
    """The group's packages, as uv.lock pins them, without those of the images' base."""
    there = frozenset(_torch_requirements())
    lines = _export(_OPERATOR, "--only-group", group, "--no-hashes").splitlines()
    return [line for line in lines if line not in there]


def _image_requirements() -> dict[str, str]:
    """By what a target of the Dockerfile installs: the lines of its requirements."""
    return {
        "operator": _export(_OPERATOR),
        "agent": _export(_RUNTIME, *(f"--prune={package}" for package in _NOT_IN_AGENT)),
        "runtime": _export(_RUNTIME, "--extra", "s3"),
    }


def _export(package: str, *options: str) -> str:
    fixed = ("--frozen", "--no-dev", "--no-emit-workspace", "--no-header", "--no-annotate")
    return _uv("export", *fixed, "--package", package, *options)


def _uv(*arguments: str) -> str:
    own = REPOSITORY / ".venv-tools" / "bin"
    found = os.environ.get("UV") or shutil.which("uv", path=f"{own}:{os.environ['PATH']}")
    if found is None:
        raise MissingPrerequisiteError("uv is missing", "make tools")
    return _run([found, *arguments])


def pip_folder() -> Path:
    """Where an environment of the lab's own is, once made, that has pip: the project's has none."""
    return CACHE / f"pip-{_digest(_VERSION, sys.base_prefix)}"


def _pip() -> list[str | Path]:
    tools = pip_folder()
    if not tools.is_dir():
        with _staged(tools) as scratch:
            python = Path(sys.base_prefix) / "bin" / _VERSION
            _run([python, "-m", "venv", scratch])
            _publish(scratch, tools)
    return [tools / "bin" / "python", "-m", "pip"]


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """A scratch folder beside the target, removed at the end whatever happened."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        scratch = Path(folder) / "out"
        scratch.mkdir()
        yield scratch


def _publish(scratch: Path, target: Path) -> None:
    if not target.exists():
        os.rename(scratch, target)


def _run(command: Sequence[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    if done.returncode:
        raise LabError(f"{' '.join(map(str, command))} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
