"""The interface by which a pod reaches rank 0, in network namespaces with the interfaces that pods have."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest
from hulk_runtime.job import interface

ASKS = (
    "import json, os, sys; from hulk_runtime.job import interface; environ = json.loads(sys.argv[1]); "
    "interface.choose(environ, 0.0); print(json.dumps(environ, sort_keys=True))"
)


@dataclass(frozen=True)
class Pod:
    """A network namespace."""

    name: str

    def add(self, link: str, *addresses: str) -> None:
        """An interface with a cable to nobody: the other end has no address."""
        peer = f"{link}-end"
        for line in (f"link add {link} type veth peer name {peer}", f"link set {link} up", f"link set {peer} up"):
            subprocess.run(["ip", "-n", self.name, *line.split()], check=True)
        for address in addresses:
            nodad = ["nodad"] if ":" in address else []
            subprocess.run(["ip", "-n", self.name, "address", "add", address, "dev", link, *nodad], check=True)

    def chooses(self, master: str, **environ: str) -> dict[str, str]:
        given = json.dumps({"MASTER_ADDR": master, **environ})
        command = ["ip", "netns", "exec", self.name, sys.executable, "-c", ASKS, given]
        found: dict[str, str] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return {key: value for key, value in found.items() if key.endswith("IFNAME")}


@pytest.fixture
def netns() -> Iterator[Pod]:
    name = f"hulk-if-{uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield Pod(name)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def both(name: str) -> dict[str, str]:
    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}


def test_the_only_interface_is_it_whatever_its_name_and_no_name_is_looked_up(netns: Pod) -> None:
    netns.add("ens1f0", "10.9.0.2/24")
    assert netns.chooses("demo-1.lab.svc") == both("ens1f0")


def test_of_several_it_is_the_one_of_the_route(netns: Pod) -> None:
    netns.add("cni0", "10.9.0.2/24")
    netns.add("ib0", "10.8.0.2/24", "fd00:8::2/64")
    assert netns.chooses("10.8.0.7") == both("ib0")
    assert netns.chooses("10.9.0.7") == both("cni0")
    assert netns.chooses("fd00:8::7") == both("ib0")
    assert netns.chooses("10.8.0.2") == both("ib0")  # rank 0 itself


def test_it_is_left_to_torch_where_rank_0_is_not_found(netns: Pod) -> None:
    netns.add("cni0", "10.9.0.2/24")
    netns.add("ib0", "10.8.0.2/24")
    assert netns.chooses("demo-1.lab.svc.") == {}


def test_the_users_own_is_kept(netns: Pod) -> None:
    netns.add("cni0", "10.9.0.2/24")
    assert netns.chooses("10.9.0.7", GLOO_SOCKET_IFNAME="ib7") == both("ib7")
    own = {"GLOO_SOCKET_IFNAME": "cni0", "NCCL_SOCKET_IFNAME": "ib7"}
    assert netns.chooses("10.9.0.7", NCCL_SOCKET_IFNAME="ib7") == own


def test_a_run_on_this_machine_talks_over_loopback() -> None:
    assert interface.toward("127.0.0.1", 0.0) == "lo"
