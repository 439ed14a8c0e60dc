"""The wheels that a user installs, as the lab's image gets them."""

from __future__ import annotations

import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from hulk_lab.builds import python

OPERATOR, RUNTIME = "hulk_operator", "hulk_runtime"
PLANS_WITH = ("ortools", "highspy", "kopf", "kubernetes", "hulk-operator")


def wheel(name: str) -> Path:
    """The one of a distribution."""
    (found,) = python.build_project().glob(f"{name}-*.whl")
    return found


def metadata(name: str) -> tuple[list[str], str]:
    """What a wheel requires without extras, and the whole of its METADATA."""
    with zipfile.ZipFile(wheel(name)) as archive:
        (path,) = (path for path in archive.namelist() if path.endswith(".dist-info/METADATA"))
        text = archive.read(path).decode()
    required = Parser().parsestr(text).get_all("Requires-Dist") or []
    return [line for line in required if "extra ==" not in line], text


@pytest.mark.parametrize("name", [OPERATOR, RUNTIME])
def test_each_names_its_licence_and_carries_the_text(repository: Path, name: str) -> None:
    with zipfile.ZipFile(wheel(name)) as archive:
        (licence,) = (path for path in archive.namelist() if path.endswith(".dist-info/licenses/LICENSE"))
        text = archive.read(licence)
    assert {"License-Expression: Apache-2.0", "License-File: LICENSE"} <= set(metadata(name)[1].splitlines())
    assert text == (repository / "LICENSE").read_bytes()


@pytest.mark.parametrize(("name", "packages"), [(OPERATOR, {OPERATOR, "hulk_placement"}), (RUNTIME, {RUNTIME, "hulk"})])
def test_each_holds_its_own_packages_and_no_other(name: str, packages: set[str]) -> None:
    with zipfile.ZipFile(wheel(name)) as archive:
        folders = {path.partition("/")[0] for path in archive.namelist() if path.endswith(".py")}
    assert folders == packages


def test_an_image_with_the_runtime_gets_no_planner_and_an_operator_no_trainer() -> None:
    assert not [line for line in metadata(RUNTIME)[0] if line.startswith((*PLANS_WITH, "torch"))]
    assert not [line for line in metadata(OPERATOR)[0] if line.startswith(("torch", "hulk-runtime", "fsspec"))]


def test_both_have_one_version() -> None:
    assert wheel(OPERATOR).name.split("-")[1] == wheel(RUNTIME).name.split("-")[1]


def test_the_operators_brings_the_native_loops_for_every_python_from_3_11_on() -> None:
    built = wheel(OPERATOR)
    with zipfile.ZipFile(built) as archive:
        assert "hulk_native.abi3.so" in archive.namelist()
    _, _, interpreter, abi, platform = built.stem.split("-")
    assert (interpreter, abi) == ("cp311", "abi3")
    assert platform != "any"


def test_the_runtimes_fits_every_machine() -> None:
    assert wheel(RUNTIME).stem.split("-")[2:] == ["py3", "none", "any"]
