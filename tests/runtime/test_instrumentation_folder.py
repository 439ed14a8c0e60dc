"""The folder that an init container copies: Hulk's all-reduce in images that have nothing of Hulk, and hide nothing."""

import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hulk_lab.builds import python
from test_backend import said
from test_wan_training import TWO, wan

SCRIPT = str(Path(__file__).with_name("image_script.py"))
PYTHONS = ("310", "311", "312", "313", "314")
OLD = {"cryptography": "3.4", "_cffi_backend": "1.0", "pydantic": "1.10"}
"""What an image has that was made years ago; none of it is of use."""
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the Dockerfile makes it, from what the images' context has."""
    made, wheels = tmp_path_factory.mktemp("made") / "instrumentation", tmp_path_factory.mktemp("wheels")
    for wheel in (python.build_wheels() / "wheels").glob("c*.whl"):
        if wheel.name.startswith(("cffi-", "cryptography-")):
            (wheels / wheel.name).symlink_to(wheel)
    (runtime,) = python.build_project().glob("hulk_runtime-*.whl")
    subprocess.run([sys.executable, python.INSTRUMENTATION, "make", wheels, runtime, made], check=True)
    return made


@pytest.fixture
def image(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """image(packages) -> the Python of an environment with torch and fakes of those packages, by their versions."""

    def create(packages: dict[str, str]) -> Path:
        venv.create(tmp_path / "image", symlinks=True, with_pip=False)
        (site,) = (tmp_path / "image").glob("lib/python*/site-packages")
        (site / "torch.pth").write_text(str(python.build_torch()))
        for name, version in packages.items():
            (site / f"{name}.py").write_text(f"__version__ = {version!r}\n")
            described = site / f"{name}-{version}.dist-info"
            described.mkdir()
            (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        return tmp_path / "image" / "bin" / "python"

    return create


@pytest.mark.parametrize("packages", [{}, OLD], ids=["torch alone", "old packages"])
def test_a_program_sums_as_planned_and_finds_its_own_packages(
    folder: Path, image: Any, job: Any, make_plan: Any, packages: dict[str, str]
) -> None:
    job.python = str(image(packages))
    job.write_plan(make_plan((1, 1), **wan(2, classes=TWO)))
    variables = {"PYTHONPATH": str(folder), "HULK_INSTRUMENTATION": "auto", "LOCAL_RANK": "0"}
    ranks = [job.start(SCRIPT, RANK=str(rank), HULK_WORKER=str(rank), **variables) for rank in range(2)]
    assert [rank.wait() for rank in ranks] == [0, 0], "\n".join(rank.output for rank in ranks)
    assert said(ranks, "group") == ["group PlannedGroup"] * 2
    assert said(ranks, "shown") == ["shown [] []"] * 2
    versions = [packages.get(name, "none") for name in ("cryptography", "_cffi_backend", "numpy", "pydantic")]
    assert said(ranks, "found") == [" ".join(["found", *versions])] * 2
    assert said(ranks, "runtime") == [f"runtime {folder}/hulk_runtime/__init__.py 0.1.0"] * 2
    assert all("what was changed does not open" in rank.output for rank in ranks)


def test_it_holds_the_native_parts_for_every_python_and_nothing_that_hides_a_package(folder: Path) -> None:
    there = {path.name for path in folder.iterdir()} - {"__pycache__", "hulk"}
    assert there == {"hulk_dependencies", "hulk_runtime", "sitecustomize.py"}
    parts = [re.sub(r"\.cpython-(\d+)-.*", r" \1", path.name) for path in folder.rglob("*.so")]
    assert sorted(parts) == ["_cffi_backend " + version for version in PYTHONS] + ["_rust.abi3.so"]
    assert len(list(folder.glob("hulk_dependencies/*.dist-info/licenses/LICENSE*"))) >= 3
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 20_000_000


def test_its_packages_are_of_the_releases_that_hulk_itself_uses() -> None:
    locked = (REPOSITORY / "uv.lock").read_text()
    pinned = re.findall(r"^(\S+)==(\S+)", (REPOSITORY / "tools/instrumentation-requirements.txt").read_text(), re.M)
    assert dict(pinned).keys() == {"cffi", "cryptography"}
    for name, version in pinned:
        assert f'name = "{name}"\nversion = "{version}"\n' in locked
