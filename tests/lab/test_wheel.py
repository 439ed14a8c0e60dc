"""The wheel that a user installs, as the lab's image gets it."""

from __future__ import annotations

import zipfile
from pathlib import Path

from hulk_lab.builds import python


def test_it_names_its_licence_and_carries_the_text(repository: Path) -> None:
    with zipfile.ZipFile(python.build_project()) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        said = wheel.read(metadata).decode().splitlines()
        text = wheel.read(metadata.replace("METADATA", "licenses/LICENSE"))
    assert {"License-Expression: Apache-2.0", "License-File: LICENSE"} <= set(said)
    assert text == (repository / "LICENSE").read_bytes()


def test_it_brings_the_native_loops_for_every_python_from_3_11_on() -> None:
    built = python.build_project()
    with zipfile.ZipFile(built) as wheel:
        assert "hulk_native.abi3.so" in wheel.namelist()
    _, _, interpreter, abi, platform = built.stem.split("-")
    assert (interpreter, abi) == ("cp311", "abi3")
    assert platform != "any"
