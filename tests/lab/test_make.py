"""What `make` says to somebody who left something out, and what the demo asks of a cluster of the user's own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hulk_lab import demo
from hulk_lab.kube import Kube

CONFIG = {"current-context": "production", "clusters": [{"cluster": {"server": "https://10.1.2.3:6443"}}]}


def test_an_image_without_a_name_is_one_sentence(repository: Path) -> None:
    done = subprocess.run(["make", "image", "IMAGE="], cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "IMAGE= is missing" in done.stderr
    assert "docker" not in done.stdout


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Commands of a user who is not root, on a cluster whose one node has no accelerator; `called` lists the calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    nodes = {"items": [{"status": {"allocatable": {"cpu": "4"}}}]}
    scripts = {
        "id": "echo 1000",
        "helm": f"echo helm $* >> {tmp_path}/called",
        "kubectl": f"""case $1 in config) echo '{json.dumps(CONFIG)}';; *) echo '{json.dumps(nodes)}';; esac""",
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("kubeconfig", "demanded"),
    [
        pytest.param("/home/me/.kube/config", False, id="a cluster of the user's own"),
        pytest.param("/var/lib/hulk-lab/hulk/kubeconfig", True, id="the lab's"),
        pytest.param("", True, id="none: the lab is built"),
    ],
)
def test_only_who_builds_a_lab_must_be_root(kubeconfig: str, demanded: bool, programs: Path, repository: Path) -> None:
    environment = {"HULK_GOAL": "demo", "KUBECONFIG": kubeconfig, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = [repository / "tools" / "prerequisites"]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert ("needs root" in done.stderr) is demanded
    assert done.returncode == int(demanded)


def test_the_demo_names_the_cluster_and_leaves_one_without_accelerators_alone(
    programs: Path, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = demo.Target(Kube(tmp_path / "config", str(programs)), "registry.example/hulk:1")
    assert demo.run(target, repository, demo.Story()) == 1
    told = capsys.readouterr().out
    assert "context production, https://10.1.2.3:6443" in told
    assert "no node of this cluster offers nvidia.com/gpu" in told
    assert not (tmp_path / "called").exists()
