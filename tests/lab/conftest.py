"""One lab with Hulk installed for all tests that train: brought up once, reset before each that asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import lab_traces
import pytest
from hulk_lab import paths, reset, spec, sysctls, up
from lab_jobs import SYSTEM_NAMESPACE, Jobs, install
from lab_names import lab_name

SPEC = Path(__file__).with_name("cluster.yaml")
LIMITS_RECORD = paths.RUN_DIR / "sysctls.json"
REUSED = "HULK_TEST_LAB"  # the name of a lab of SPEC that is up already and stays up: for writing tests


@pytest.fixture(scope="session")
def installed(repository: Path) -> Iterator[up.Lab]:
    """The lab, Hulk installed as the demo does it, every region pair measured; removed at the end, however that is."""
    reused = os.environ.get(REUSED)
    wanted = spec.load(SPEC, reused or lab_name("tests"))
    limits = {limit: limit.read_text() for limit in sysctls.LIMITS}
    alone = not LIMITS_RECORD.exists()
    try:
        lab = up.up(wanted)
        slot = lab.net.slot
        traces = lab_traces.of(wanted.name, slot)
        assert all(traces[kind] for kind in ("processes", "namespaces", "interfaces", "groups")), traces
        install(lab, repository)
        yield lab
    finally:
        if reused is None:
            up.down(wanted.name)
    if reused is None:
        assert not any(lab_traces.of(wanted.name, slot).values())
        if alone and not LIMITS_RECORD.exists():
            assert {limit: limit.read_text() for limit in sysctls.LIMITS} == limits


@pytest.fixture(scope="module")
def jobs(installed: up.Lab, request: pytest.FixtureRequest) -> Jobs:
    """A namespace for a module's jobs in a lab that is as it was after the installation."""
    reset.reset(installed, keep={SYSTEM_NAMESPACE})
    name = request.module.__name__.rpartition(".")[2].replace("_", "-")
    made = Jobs(installed, name)
    made.make_namespace()
    return made
