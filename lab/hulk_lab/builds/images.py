"""The images of a lab, made on this machine and kept by content, and what pods borrow from the machine.

    pause   a static C program
    store   the S3 server for checkpoints
    base    what a distribution's image would hold (C library, a shell, iperf3, certificates), copied from this machine
    hulk    the project's Dockerfile on the base, by buildah: the built wheels in /opt/hulk

Python and torch are not copied into six nodes: the runtime mounts the machine's own, read-only, where an image with
Python has it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hulk_lab.builds import python
from hulk_lab.builds.golang import program
from hulk_lab.builds.oci import Image, write
from hulk_lab.builds.python import Interpreter, Mount
from hulk_lab.errors import LabError
from hulk_lab.paths import CACHE, REPOSITORY

HULK_REFERENCE = "docker.io/library/hulk:0.1.0"
TARGETS = ("operator", "agent", "runtime")
"""The Dockerfile's other images."""
_DOCKERFILE = REPOSITORY / "Dockerfile"
_SCRIPTS = (REPOSITORY / "tools" / "slim_image.py", python.INSTRUMENTATION)
_PAUSE_SOURCE = REPOSITORY / "lab" / "images" / "pause.c"
_TOOLS = (
    *(f"/bin/{name}" for name in ("sh", "cat", "cp", "date", "ls", "mkdir", "mv", "rm", "sleep", "true", "uname")),
    *(f"/usr/bin/{name}" for name in ("env", "getent", "head", "id", "iperf3", "sort", "tail", "test", "timeout")),
)
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\n"
_CHOSEN = "images.json"
_USR_LINKS = ("bin", "sbin", "lib", "lib64")


def every() -> tuple[Image, ...]:
    """All images of a lab, built from the sources as they are now."""
    return pause(), store(), hulk()


def choose(state: Path, images: Iterable[Image]) -> None:
    """Record which images a lab's nodes hold, so that a node started later gets the same ones."""
    content = [{"reference": image.reference, "archive": str(image.archive)} for image in images]
    (state / _CHOSEN).write_text(json.dumps(content))


def chosen(state: Path) -> tuple[Image, ...]:
    """The recorded images of a lab; none before its first `up`."""
    record = state / _CHOSEN
    content = json.loads(record.read_text()) if record.exists() else []
    return tuple(Image(item["reference"], Path(item["archive"])) for item in content)


def chosen_archive(state: Path, reference: str) -> Path:
    """The archive of one of a lab's recorded images; KeyError when it has none of that reference."""
    return {image.reference: image.archive for image in chosen(state)}[reference]


def pause() -> Image:
    """What holds a pod's namespaces."""
    archive = CACHE / "images" / f"pause-{_digest(_PAUSE_SOURCE.read_bytes())}.tar"
    image = Image("docker.io/lab/pause:1", archive)
    if not archive.exists():
        with tempfile.TemporaryDirectory() as folder:
            command = ["gcc", "-Os", "-static", "-o", f"{folder}/pause", str(_PAUSE_SOURCE)]
            subprocess.run(command, check=True, capture_output=True)
            write(image.reference, Path(folder), {"Entrypoint": ["/pause"], "User": "65535:65535"}, archive)
    return image


def store() -> Image:
    """The checkpoint store."""
    binary = program("store")
    archive = CACHE / "images" / f"{binary.parent.name}.tar"
    image = Image("docker.io/lab/store:1", archive)
    if not archive.exists():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(binary, folder)
            write(image.reference, Path(folder), {"Entrypoint": ["/store"], "User": "65532:65532"}, archive)
    return image


@functools.cache
def base() -> Image:
    """The base of the lab's images."""
    interpreter = Interpreter.current()
    files = _closure([*map(Path, _TOOLS), *interpreter.binaries, *_torch_libraries()])
    stamps = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in sorted(files)]
    digest = _digest("\n".join([*stamps, str(interpreter)]).encode())
    archive = CACHE / "images" / f"base-{digest}.tar"
    image = Image("docker.io/lab/base:1", archive)
    if not archive.exists():
        with tempfile.TemporaryDirectory() as folder:
            _fill_base(Path(folder), files, interpreter)
            write(image.reference, Path(folder), {"Cmd": ["/bin/sh"], "Env": ["PATH=/usr/local/bin:/usr/bin"]}, archive)
    return image


def hulk() -> Image:
    """The project's image: its Dockerfile, its wheels, its dependencies' wheels, on the lab's base."""
    return _of_dockerfile(HULK_REFERENCE)


def of_target(target: str) -> Image:
    """One of the Dockerfile's other images, on the lab's base; `target` is one of TARGETS."""
    return _of_dockerfile(HULK_REFERENCE.replace("hulk:", f"hulk-{target}:"), target)


def _of_dockerfile(reference: str, target: str = "") -> Image:
    context, foundation = hulk_context(), base()
    digest = _digest(_DOCKERFILE.read_bytes(), foundation.archive.name.encode(), context.name.encode())
    archive = CACHE / "images" / f"{target or 'hulk'}-{digest}.tar"
    image = Image(reference, archive)
    if not archive.exists():
        _build_with_buildah(context, foundation, image, target)
    return image


def hulk_context() -> Path:
    """The Dockerfile's build context: requirements/, wheels/, dist/ (the project's wheels) and the scripts it runs."""
    own, dependencies = python.build_project(), python.build_wheels()
    digest = _digest(own.name.encode(), dependencies.name.encode(), *(script.read_bytes() for script in _SCRIPTS))
    context = CACHE / f"context-{digest}"
    if not context.is_dir():
        fresh = Path(tempfile.mkdtemp(dir=CACHE, prefix=".context-"))
        fresh.chmod(0o755)
        for script in _SCRIPTS:
            shutil.copy(script, fresh)
        shutil.copytree(own, fresh / "dist")
        shutil.copytree(dependencies / "requirements", fresh / "requirements")
        shutil.copytree(dependencies / "wheels", fresh / "wheels", copy_function=_link)
        fresh.rename(context)
    return context


def borrowed() -> tuple[Mount, ...]:
    """What every container of the lab gets from the machine, read-only: Python and torch, nothing else."""
    interpreter = Interpreter.current()
    return (*interpreter.mounts, Mount(python.torch_folder(), interpreter.site_packages))


@functools.cache
def runtime_spec() -> Path:
    """The file that containerd starts every container's configuration from: its default and the borrowed mounts."""
    default = subprocess.run([program("ctr"), "oci", "spec"], check=True, capture_output=True).stdout
    content = json.loads(default)
    options = ["rbind", "ro", "rprivate"]
    content["mounts"] += [
        {"destination": mount.target, "type": "bind", "source": str(mount.source), "options": options}
        for mount in borrowed()
    ]
    text = json.dumps(content, indent=1).encode()
    path = CACHE / f"runtime-spec-{_digest(text)}.json"
    if not path.exists():
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(text)
        fresh.rename(path)
    return path


def _closure(binaries: Iterable[Path]) -> set[Path]:
    """The machine's own shared libraries that these need, and those of them that belong to the machine."""
    files = list(binaries)
    listed = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    words = {Path(word) for word in listed.split() if word.startswith(("/lib", "/usr/lib"))}
    tools = {path for path in files if str(path) in _TOOLS}
    return {path for path in words if path.is_file() and path not in files} | tools


def _torch_libraries() -> list[Path]:
    folder = python.torch_folder() / "torch"
    return [*folder.glob("_C.*.so"), *(folder / "lib").glob("libtorch_*.so"), *(folder / "lib").glob("libgomp*")]


def _fill_base(root: Path, files: set[Path], interpreter: Interpreter) -> None:
    for name in _USR_LINKS:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for folder in ("etc/ssl/certs", "dev", "proc", "sys", "run", "tmp", "root", "var/tmp", "opt"):
        (root / folder).mkdir(parents=True)
    for folder in ("tmp", "var/tmp"):
        (root / folder).chmod(0o1777)
    for path in files:  # /lib and /bin are links into /usr, as on every current distribution
        target = root / (path if path.is_relative_to("/usr") else Path("/usr") / path.relative_to("/")).relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for mount in borrowed():
        target = root / mount.target.lstrip("/")
        if mount.source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch(mode=0o755)
            (target.parent / "python3").symlink_to(target.name)
    for library in interpreter.own_libraries:  # found by the loader through the mounts
        (root / "usr" / "lib" / library.name).symlink_to(f"/usr/local/lib/{library.name}")
    shutil.copy(_CERTIFICATES, root / "etc/ssl/certs")
    (root / "etc/passwd").write_text(_PASSWD)
    (root / "etc/group").write_text(_GROUP)
    (root / "etc/resolv.conf").touch()
    (root / "etc/hosts").touch()


def _build_with_buildah(context: Path, foundation: Image, image: Image, target: str) -> None:
    storage = CACHE / "buildah"
    volumes = [f"--volume={mount.source}:{mount.target}:ro" for mount in borrowed()]
    build = [
        "build",
        "--isolation=chroot",
        "--layers",
        f"--build-arg=BASE=oci-archive:{foundation.archive}",
        f"--build-arg=SLIM_BASE=oci-archive:{foundation.archive}",
        "--build-arg=INSTALL_IPERF3=false",
        "--build-arg=PIP_NO_INDEX=1",
        *volumes,
        f"--file={_DOCKERFILE}",
        *([f"--target={target}"] if target else []),
        f"--tag={image.reference}",
        str(context),
    ]
    fresh = image.archive.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    push = ["push", "--disable-compression", image.reference, f"oci-archive:{fresh}:{image.reference}"]
    failures = []
    for driver in ("overlay", "vfs"):  # vfs copies every layer, but needs nothing of the file system
        failure = _buildah(storage, driver, build) or _buildah(storage, driver, push)
        if failure is None:
            fresh.rename(image.archive)
            return
        failures.append(f"{driver}: {failure}")
    raise LabError("buildah cannot build the image\n" + "\n".join(failures))


def _buildah(storage: Path, driver: str, arguments: list[str]) -> str | None:
    """Run buildah with storage of its own and mounts that end with it; its words if it failed."""
    run = storage / "run"
    shutil.rmtree(run, ignore_errors=True)
    options = [f"--root={storage / driver}", f"--runroot={run}", f"--storage-driver={driver}"]
    command = ["unshare", "--mount", "buildah", *options, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}"[-4000:] if done.returncode else None


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def _digest(*contents: bytes) -> str:
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:16]
