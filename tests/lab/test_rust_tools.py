"""`tools/rust`: a cargo that is new enough is taken, else Debian's is installed, else what to run is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

OLD, NEW = "echo cargo 1.63.0", 'case "$1" in --version) echo cargo 1.85.1;; esac'
NO_CLIPPY = 'case "$1" in --version) echo cargo 1.96.0;; clippy) exit 101;; esac'
ALL = "apt-get install -y --no-install-recommends rustc-web cargo-web"


def rust(repository: Path, folder: Path, *arguments: str, **scripts: str) -> subprocess.CompletedProcess[str]:
    """Run it where these programs come first in PATH; `apt-get` prints how it is called and installs nothing."""
    folder.mkdir()
    for name, script in {"apt-get": "echo apt-get $* >&2", "id": "echo 0", "cc": ":", **scripts}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    command = [repository / "tools" / "rust", *arguments]
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("checks",)])
def test_a_cargo_that_is_new_enough_is_taken(arguments: tuple[str, ...], repository: Path, tmp_path: Path) -> None:
    done = rust(repository, tmp_path / "bin", *arguments, cargo=NEW)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("cargo", [OLD, "exit 127"], ids=["old", "missing"])
def test_root_gets_debians(cargo: str, repository: Path, tmp_path: Path) -> None:
    done = rust(repository, tmp_path / "bin", cargo=cargo)
    assert "installing 2 Debian packages: rustc-web cargo-web" in done.stdout
    assert f"{ALL} -qq" in done.stderr
    assert done.returncode == 1  # nothing was installed in truth
    assert "native/ needs Rust 1.85 or newer and a C compiler" in done.stderr


def test_lints_are_installed_for_the_goals_that_use_them(repository: Path, tmp_path: Path) -> None:
    done = rust(repository, tmp_path / "bin", "checks", cargo=NO_CLIPPY)
    assert "installing 1 Debian packages: rust-web-clippy" in done.stdout
    assert rust(repository, tmp_path / "other", cargo=NO_CLIPPY).stdout == ""


def test_who_is_not_root_is_told_what_to_run(repository: Path, tmp_path: Path) -> None:
    done = rust(repository, tmp_path / "bin", cargo="exit 127", id="echo 1000")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"fix: sudo {ALL} (Debian 12 or newer), or Rust's own installer, https://rustup.rs" in done.stderr


def test_a_toolchain_of_rustup_is_brought_up_to_date_by_rustup(repository: Path, tmp_path: Path) -> None:
    done = rust(repository, tmp_path / "bin", cargo=OLD, rustup=":")
    assert (done.returncode, done.stdout) == (1, "")
    assert "fix: rustup default stable" in done.stderr
