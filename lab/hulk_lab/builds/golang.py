"""lab/go (go.mod, go.sum, the main.go of some programs) -> a part's programs in ~/.cache/hulk/bin/PART-HASH.

All parts but two are of one module: a library that several of them use is compiled once. runc is linked against C, and
Kueue wants other versions of Kubernetes' libraries; it takes long to build, so only who asks for it has it built.
The hash covers everything that decides the result, so a folder that exists is never built again. Nothing is downloaded
but Go modules at the versions and checksums that go.sum pins.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from hulk_lab.paths import CACHE, REPOSITORY
from hulk_lab.prerequisites import MissingPrerequisiteError, check_go

KUBERNETES_VERSION = "v1.36.3"
KUEUE_VERSION = "v0.17.0"
GO_FOLDER = REPOSITORY / "lab" / "go"


@dataclass(frozen=True)
class Part:
    """Programs of the lab that are built together.

    packages: what to build, each with the name its program gets; folder: where their go.mod is; copied_module: a module
    whose `copied_folder` is kept beside the programs (kwok's stage files). optional: not every lab needs it.
    """

    name: str
    packages: tuple[tuple[str, str], ...]
    folder: Path = GO_FOLDER
    tags: str = ""
    cgo: bool = False
    ldflags: str = "-s -w"
    copied_module: str = ""
    copied_folder: str = ""
    optional: bool = False

    @functools.cached_property
    def output(self) -> Path:
        """Where its programs are once built; another source, flag or Go version is another folder."""
        own = (self.folder / package for package, _ in self.packages if package.startswith("./"))
        sources = sorted([*self.folder.glob("go.*"), *chain.from_iterable(package.glob("*.go") for package in own)])
        digest = hashlib.sha256()
        digest.update(
            json.dumps([go_version(), self.packages, self.tags, self.cgo, self.ldflags, self.copied_folder]).encode()
        )
        for source in sources:
            digest.update(f"{source.relative_to(self.folder)}\0".encode() + source.read_bytes())
        return CACHE / "bin" / f"{self.name}-{digest.hexdigest()[:16]}"

    @property
    def built(self) -> bool:
        return self.output.is_dir()


_KUBERNETES = [
    f"k8s.io/kubernetes/cmd/{program}"
    for program in (
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "kubectl",
    )
]
_CONTAINERD = [
    f"github.com/containerd/containerd/v2/cmd/{program}" for program in ("containerd", "containerd-shim-runc-v2", "ctr")
]


def _named(packages: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((package, package.rpartition("/")[2]) for package in packages)


PARTS = (
    Part(
        "kubernetes",
        (("go.etcd.io/etcd/server/v3", "etcd"), *_named(_KUBERNETES)),
        ldflags=f"-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}",
    ),
    Part(
        "kwok",
        _named(["sigs.k8s.io/kwok/cmd/kwok"]),
        copied_module="sigs.k8s.io/kwok",
        copied_folder="kustomize/stage",
    ),
    Part("containerd", _named(_CONTAINERD), tags="no_btrfs no_zfs no_aufs no_devmapper"),
    Part("runc", _named(["github.com/opencontainers/runc"]), GO_FOLDER / "runc", tags="seccomp", cgo=True),
    Part("helm", _named(["helm.sh/helm/v3/cmd/helm"])),
    Part("coredns", (("./coredns", "coredns"),)),
    Part("store", (("./store", "store"),)),
    Part(
        "kueue",
        _named(["sigs.k8s.io/kueue/cmd/kueue"]),
        GO_FOLDER / "kueue",
        ldflags=f"-s -w -X sigs.k8s.io/kueue/pkg/version.GitVersion={KUEUE_VERSION}",
        copied_module="sigs.k8s.io/kueue",
        copied_folder="config/components",
        optional=True,
    ),
)


@functools.cache
def go_version() -> str:
    """`go1.26.8`; MissingPrerequisiteError when there is no Go or an old one."""
    return check_go()


def build(part: Part, report: Callable[[str], None] = lambda words: None) -> Path:
    """Build a part unless it is there; its folder appears whole or not at all. `report` is told what is at work."""
    if part.built:
        return part.output
    report("waits for another build")
    with _one_build_at_a_time():
        if not part.built:  # another lab may have built it while this one waited
            part.output.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{part.name}-", dir=part.output.parent) as scratch:
                staged = Path(scratch) / "out"
                staged.mkdir()
                _compile(part, staged, report)
                if part.copied_module:
                    shutil.copytree(_module_folder(part) / part.copied_folder, staged / "share", copy_function=_copy)
                os.rename(staged, part.output)
    return part.output


def program(name: str) -> Path:
    """The path of a built program."""
    for part in PARTS:
        if name in dict(map(reversed, part.packages)):  # type: ignore[arg-type]
            return part.output / name
    raise ValueError(f"no part of the lab builds {name!r}")


def share(name: str) -> Path:
    """The files kept beside a part's programs."""
    return next(part for part in PARTS if part.name == name).output / "share"


def link_programs(folder: Path) -> None:
    """Fill a folder with links to every program that is built."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        for _, name in part.packages:
            link = folder / name
            if part.built and (not link.is_symlink() or link.readlink() != part.output / name):
                link.unlink(missing_ok=True)
                link.symlink_to(part.output / name)


def _compile(part: Part, output: Path, report: Callable[[str], None]) -> None:
    for i, (package, name) in enumerate(part.packages):
        report(f"{name} ({i + 1} of {len(part.packages)})")
        flags = ["-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags", part.ldflags]
        tags = ["-tags", part.tags] if part.tags else []
        _go(part, "build", *flags, *tags, "-o", str(output / name), package)


def _module_folder(part: Part) -> Path:
    return Path(_go(part, "list", "-m", "-f", "{{.Dir}}", part.copied_module).strip())


def _go(part: Part, *arguments: str) -> str:
    env = {**os.environ, "CGO_ENABLED": "1" if part.cgo else "0", "GOWORK": "off", "GOTOOLCHAIN": "local"}
    done = subprocess.run(["go", *arguments], cwd=part.folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingPrerequisiteError(
            f"go {' '.join(arguments)} failed in {part.folder}:\n{done.stderr[-3000:]}",
            f"cd {part.folder} && go mod download",
        )
    return done.stdout


def _copy(source: str, target: str) -> None:
    shutil.copyfile(source, target)  # without the module cache's read-only mode, so that the cache can be removed


@contextmanager
def _one_build_at_a_time() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
