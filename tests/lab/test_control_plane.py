"""Labs of a control plane alone: two at once, a SIGKILL in the middle, nothing left behind."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import lab_traces
import pytest
from hulk_lab import control_plane, paths, up
from hulk_lab.api import Api, ApiError
from hulk_lab.certificates import write_kubeconfig
from hulk_lab.processes import ProcessTable, wait_until
from hulk_lab.spec import KwokSpec, LabSpec
from hulk_lab.wan import slots
from lab_names import lab_name

pytestmark = pytest.mark.controlplane


@pytest.fixture
def names() -> Iterator[tuple[str, str]]:
    both = (lab_name("one"), lab_name("two"))
    yield both
    for name in both:
        up.down(name)


def test_two_labs_are_up_at_once_and_leave_nothing(names: tuple[str, str]) -> None:
    specs = [LabSpec(name=name, kwok=KwokSpec(nodes=2 + i)) for i, name in enumerate(names)]
    with ThreadPoolExecutor(2) as pool:
        labs = list(pool.map(up.up, specs))

    nodes = [len(lab.control.api().get("/api/v1/nodes")["items"]) for lab in labs]
    assert nodes == [2, 3]
    up.down(names[0])
    assert not any(lab_traces.of(names[0], labs[0].net.slot).values())
    assert labs[1].control.api().ready()
    assert len(lab_traces.of(names[1], labs[1].net.slot)["processes"]) >= 5
    up.down(names[1])
    assert not any(lab_traces.of(names[1], labs[1].net.slot).values())


def test_down_cleans_up_after_a_sigkill_in_the_middle_of_up(names: tuple[str, str]) -> None:
    name = names[0]
    command = [sys.executable, "-m", "hulk_lab.cli", "up", "--control-plane-only", "--lab", name]
    starting = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    table = ProcessTable(paths.state_folder(name))
    wait_until(lambda: len(table.all()) >= 2, "etcd and API server", timeout_s=240, interval_s=0.01)
    starting.send_signal(signal.SIGKILL)
    starting.wait()
    slot = slots.find(name)
    assert slot is not None
    assert len(lab_traces.of(name, slot)["processes"]) >= 2

    up.down(name)

    assert not any(lab_traces.of(name, slot).values())
    assert slots.find(name) is None
    up.down(name)  # a second time changes nothing


def test_the_api_server_comes_back_after_a_crash_with_what_it_knew(control_plane_lab: up.Lab) -> None:
    control = control_plane_lab.control
    before = control.table.find("control-apiserver")
    version = control.api().get("/api/v1/namespaces/default")["metadata"]["uid"]

    control_plane.restart_apiserver(control, kill=True)

    assert control.table.find("control-apiserver") != before
    assert control.api().get("/api/v1/namespaces/default")["metadata"]["uid"] == version


def test_nobody_is_anonymous_and_a_stranger_has_no_rights(control_plane_lab: up.Lab) -> None:
    control = control_plane_lab.control
    trusting = ssl._create_unverified_context()  # the question is who may ask, not who answers
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{control.server}/version", context=trusting)

    pair = control.authority.issue("stranger", "stranger")
    kubeconfig = write_kubeconfig(
        control.state / "pki" / "stranger.kubeconfig", control.server, control.authority, pair, "lab"
    )
    with pytest.raises(ApiError, match="403") as refused:
        Api(kubeconfig).get("/api/v1/nodes")
    assert 'User "stranger" cannot list' in str(refused.value)
