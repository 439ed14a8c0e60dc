"""Real namespaces, a real relay, real packets: is the WAN what the lab file says, and does nothing of it stay?"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hulk_lab import paths
from hulk_lab.prerequisites import MissingPrerequisiteError
from hulk_lab.processes import ProcessTable, wait_until
from hulk_lab.spec import KwokSpec, LabSpec, dump
from hulk_lab.wan import check, network, relay, slots
from hulk_lab.wan.addresses import LabNetwork, NodeNetwork, netns_path
from lab_names import lab_name

pytestmark = pytest.mark.lab  # its figures want no other WAN beside it

Figure = TypeVar("Figure")
BUSY_S = 240.0
"""How long other programs may keep the machine from emulating a WAN before a test gives up."""


def description(name: str) -> LabSpec:
    """Two regions, three nodes, directions that differ."""
    return LabSpec.model_validate(
        {
            "name": name,
            "regions": [{"name": "us", "nodes": 2}, {"name": "eu", "nodes": 1}],
            "links": [
                {"source": "us", "target": "eu", "oneWayMs": 20, "mbitPerS": 30},
                {"source": "eu", "target": "us", "oneWayMs": 40, "mbitPerS": 15},
            ],
        }
    )


@contextlib.contextmanager
def state_of(name: str) -> Iterator[Path]:
    """A lab's state folder, where `hulk-lab down` looks if these tests are killed."""
    folder = paths.state_folder(name)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def running(state: Path) -> Iterator[LabNetwork]:
    """The network of the lab with this state folder, up; removed whatever happens."""
    name = state.name
    slot = slots.acquire(name)
    try:
        net = LabNetwork(description(name), slot)
        network.up(net, state)
        yield net
    finally:
        network.down(slot, state)
        slots.release(name)


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    with state_of(lab_name("wan")) as folder:
        yield folder


@pytest.fixture(scope="module")
def net(state: Path) -> Iterator[LabNetwork]:
    """One lab for all tests of this file; a test that changes it changes it back."""
    with running(state) as net:
        yield net


def inside(netns: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a namespace."""
    return subprocess.run(["nsenter", f"--net={netns_path(netns)}", *command], capture_output=True, text=True)


def answers(node: NodeNetwork, address: str) -> bool:
    """Whether one of three quick pings comes back."""
    return inside(node.netns, "ping", "-n", "-c", "3", "-i", "0.05", "-W", "1", address).returncode == 0


def python_inside(node: NodeNetwork, program: str) -> subprocess.Popen[str]:
    """Start a Python program in a node's namespace."""
    command = ["nsenter", f"--net={node.netns_path}", sys.executable, "-u", "-c", program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_the_bridge_filter_is_on_in_every_node(net: LabNetwork) -> None:
    for node in net.nodes:
        assert inside(node.netns, "sysctl", "-n", "net.bridge.bridge-nf-call-iptables").stdout.strip() == "1"


def test_without_the_bridge_filter_the_message_has_the_command(tmp_path: Path) -> None:
    with pytest.raises(MissingPrerequisiteError, match=r"br_netfilter is not loaded.*\n.*fix: .*modprobe br_netfilter"):
        network.require_bridge_filter(tmp_path / "absent")


SERVE_ONCE = """
import socket
with socket.create_server(("{address}", 7777)) as server:
    server.settimeout(10)
    print("listening")
    print(server.accept()[1][0])
"""

CONNECT = """
import socket
socket.create_connection(("{target}", 7777), timeout=5, source_address=("{source}", 0)).close()
"""


@pytest.fixture(scope="module")
def pods(net: LabNetwork) -> list[str]:
    """One pod address on the first and on the last node, on a device that takes the place of a CNI bridge."""
    addresses = []
    for node in (net.nodes[0], net.nodes[-1]):
        address = node.pod_cidr.replace(".0/24", ".5")
        subprocess.run(["ip", "-n", node.netns, "link", "add", "cni0", "up", "type", "bridge"], check=True)
        subprocess.run(["ip", "-n", node.netns, "addr", "add", f"{address}/24", "dev", "cni0"], check=True)
        addresses.append(address)
    return addresses


def measured(net: LabNetwork, measure: Callable[[], Figure]) -> Figure:
    """Measured again while runs are invalid, which says nothing about the WAN; wrong figures of a valid run stay."""
    deadline_s = time.monotonic() + BUSY_S
    while True:
        before = relay.stats(net)
        found = measure()
        lateness = relay.lateness(before, relay.stats(net))
        if lateness.is_valid:
            return found
        assert time.monotonic() < deadline_s, str(lateness)


def test_every_pair_is_what_the_file_says(net: LabNetwork) -> None:
    report = measured(net, lambda: check.check(net, seconds=4, omitted_seconds=2))
    assert [pair for pair in report.pairs if not (pair.rtt_ok and pair.rate_ok)] == []
    assert all(pair.loaded_rtt_s > pair.rtt_s for pair in report.pairs)
    assert check.table(report).row_count == 2


def test_pods_see_each_others_addresses_across_regions(net: LabNetwork, pods: list[str]) -> None:
    first, last = net.nodes[0], net.nodes[-1]
    with python_inside(last, SERVE_ONCE.format(address=pods[1])) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        connected = python_inside(first, CONNECT.format(source=pods[0], target=pods[1])).wait(10)
        assert connected == 0
        assert server.stdout.readline() == f"{pods[0]}\n"


@pytest.fixture
def neighbours(net: LabNetwork, pods: list[str]) -> Iterator[dict[str, str]]:
    """Address -> namespace of two more pods on the first node's bridge."""
    node, gateway = net.nodes[0], pods[0]
    made = {gateway.removesuffix("5") + end: f"{node.netns}-pod-{end}" for end in ("11", "12")}
    try:
        for address, netns in made.items():
            subprocess.run(["ip", "netns", "add", netns], check=True)
            link = f"link add {netns[-6:]} master cni0 up type veth peer name eth0 netns {netns}"
            subprocess.run(["ip", "-n", node.netns, *link.split()], check=True)
            for line in ("link set eth0 up", f"addr add {address}/24 dev eth0", f"route add default via {gateway}"):
                subprocess.run(["ip", "-n", netns, *line.split()], check=True)
        yield made
    finally:
        for netns in made.values():
            subprocess.run(["ip", "netns", "del", netns], check=False)


def test_a_pod_reaches_another_pod_of_its_node_through_a_service_address(
    net: LabNetwork, neighbours: dict[str, str]
) -> None:
    """The answer passes nothing but the node's bridge, and must be given the service's address again all the same."""
    (asking_address, asking), (address, serving) = neighbours.items()
    service = net.dns_address
    rule = ["-d", service, "-p", "tcp", "--dport", "7777", "-j", "DNAT", "--to-destination", f"{address}:7777"]
    added = inside(net.nodes[0].netns, "iptables", "-t", "nat", "-A", "PREROUTING", *rule)
    assert added.returncode == 0, added.stderr
    serve = ["nsenter", f"--net={netns_path(serving)}", sys.executable, "-u", "-c", SERVE_ONCE.format(address=address)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        asked = inside(asking, sys.executable, "-c", CONNECT.format(target=service, source=asking_address))
        assert asked.returncode == 0, asked.stderr
        assert server.stdout.readline() == f"{asking_address}\n"


def test_the_machine_reaches_pods_and_pods_reach_the_machine(net: LabNetwork, pods: list[str]) -> None:
    assert subprocess.run(["ping", "-c", "1", "-W", "2", pods[1]], capture_output=True).returncode == 0
    assert inside(net.nodes[-1].netns, "ping", "-c", "1", "-W", "2", "-I", pods[1], net.control_address).returncode == 0


def test_nodes_meet_inside_a_region_but_never_over_management(net: LabNetwork) -> None:
    first, second = net.nodes_of("us")
    relay.cut(net, "us", "eu")
    try:
        assert answers(first, second.address)
    finally:
        relay.heal(net, "us", "eu")
    assert not answers(first, second.management_address)


def test_the_lab_file_decides_the_congestion_control(net: LabNetwork) -> None:
    name = "net.ipv4.tcp_congestion_control"
    assert inside(net.nodes[0].netns, "sysctl", "-n", name).stdout.strip() == net.spec.congestion_control


def test_a_cut_link_loses_everything_until_it_is_healed(net: LabNetwork) -> None:
    near, far = net.nodes[0], net.nodes[-1]
    relay.cut(net, "us", "eu")
    try:
        assert not answers(near, far.address)
        with pytest.raises(check.CheckError, match="iperf3 us-0 -> eu-0 measured nothing"):
            check.measure_rate(net, "us", "eu")
        with pytest.raises(check.CheckError, match=r"ping ..-0 -> ..-0 got no answer"):
            check.measure_rtts(net, num_pings=1)
        link = next(link for link in relay.stats(net).links if link.source == "us")
        assert link.is_cut
        assert link.num_cut >= 3
    finally:
        relay.heal(net, "us", "eu")
    assert answers(near, far.address)


def test_a_slowed_link_is_slow_until_it_is_healed(net: LabNetwork) -> None:
    relay.slow(net, "us", "eu", mbit_per_s=8, one_way_ms=100)
    try:
        rtts, rate = measured(
            net,
            lambda: (
                check.measure_rtts(net, num_pings=5),
                check.measure_rate(net, "us", "eu", seconds=8, omitted_seconds=3),
            ),
        )
        assert rtts["us", "eu"] == pytest.approx(0.140, rel=check.TOLERANCE)
        assert rate == pytest.approx(8, rel=check.TOLERANCE)
    finally:
        relay.heal(net, "us", "eu")
    rtts = measured(net, lambda: check.measure_rtts(net, num_pings=5))
    assert rtts["us", "eu"] == pytest.approx(0.060, rel=check.TOLERANCE)


def test_a_loss_strikes_its_share_until_it_is_healed(net: LabNetwork) -> None:
    def losses() -> int:
        return next(link.num_random for link in relay.stats(net).links if link.source == "us")

    near, far = net.nodes[0], net.nodes[-1]
    relay.lose(net, "us", "eu", 0.2, seed=1)
    try:
        sent = inside(near.netns, "ping", "-q", "-c", "400", "-i", "0.002", far.address).stdout
        lost = losses()
        assert f"{400 - lost} received" in sent
        assert 40 < lost < 120
        assert relay.stats(net).num_lost == 0
    finally:
        relay.heal(net, "us", "eu")
    assert answers(near, far.address)
    assert losses() == lost
    with pytest.raises(relay.RelayError, match=r"loss 1\.5 must be from 0 to 1"):
        relay.lose(net, "us", "eu", 1.5)


def test_links_and_figures_that_cannot_be_are_refused(net: LabNetwork) -> None:
    for change in (relay.slow, relay.cut, relay.heal):
        with pytest.raises(ValueError, match="no link us->moon: the regions are us, eu"):
            change(net, "us", "moon")
    with pytest.raises(ValueError, match=r"greater than 0.*input_value=-3"):
        relay.slow(net, "us", "eu", mbit_per_s=-3)


def test_packets_delivered_late_are_counted_and_make_a_run_invalid(net: LabNetwork, state: Path) -> None:
    """The relay is stopped for 50 ms, again and again, under a flow of pings."""
    process = ProcessTable(state).find(relay.PROCESS_NAME)
    assert process is not None
    before = relay.stats(net)
    pings = [f"--net={net.nodes[0].netns_path}", "ping", "-q", "-c", "200", "-i", "0.002", net.nodes[-1].address]
    with subprocess.Popen(["nsenter", *pings], stdout=subprocess.DEVNULL) as flow:
        while flow.poll() is None:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(0.05)  # the length of the stall is what is tested
            os.kill(process.pid, signal.SIGCONT)
    after = relay.stats(net)
    verdict = relay.lateness(before, after)
    assert verdict.num_late > 0.01 * verdict.num_packets > 0
    assert not verdict.is_valid
    assert max(link.max_late_s for link in after.links) > 0.02


def test_a_killed_relay_is_started_again_and_nothing_else_is_touched(net: LabNetwork, state: Path) -> None:
    process = ProcessTable(state).find(relay.PROCESS_NAME)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not process.alive, "end of the relay", timeout_s=5)
    assert not answers(net.nodes[0], net.nodes[-1].address)
    network.up(net, state)
    assert answers(net.nodes[0], net.nodes[-1].address)


def test_another_lab_file_is_refused_while_the_lab_is_up(net: LabNetwork, state: Path) -> None:
    more = net.spec.model_copy(update={"kwok": KwokSpec(nodes=7)})
    network.up(LabNetwork(more, net.slot), state)
    slower = net.spec.model_copy(update={"router_buffer_ms": 10.0})
    with pytest.raises(ValueError, match="is up with another lab file: take it down first"):
        network.up(LabNetwork(slower, net.slot), state)


def test_two_labs_at_once(net: LabNetwork) -> None:
    with state_of(lab_name("second")) as state, running(state) as second:
        assert second.slot != net.slot
        relay.cut(second, "us", "eu")
        assert not answers(second.nodes[0], second.nodes[-1].address)
        assert answers(net.nodes[0], net.nodes[-1].address)
    assert network.num_existing(second.slot) == 0
    assert answers(net.nodes[0], net.nodes[-1].address)


BUILD_AND_DIE = """
import os, signal, sys
from pathlib import Path
from hulk_lab import spec
from hulk_lab.wan import network
from hulk_lab.wan.addresses import LabNetwork
steps = []
def count_then_die(inner):
    def step(*args):
        if len(steps) == int(sys.argv[4]):
            os.kill(os.getpid(), signal.SIGKILL)
        steps.append(args)
        return inner(*args)
    return step
network._ip, network._sysctl = count_then_die(network._ip), count_then_die(network._sysctl)
network._start_relay = count_then_die(network._start_relay)
network.up(LabNetwork(spec.load(Path(sys.argv[1])), int(sys.argv[2])), Path(sys.argv[3]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("num_steps", [3, 4, 7, 13, 99], ids=lambda n: f"after-{n}-steps")
def test_nothing_stays_of_a_lab_whose_builder_was_killed(num_steps: int, tmp_path: Path) -> None:
    file, name = tmp_path / "lab.yaml", lab_name("killed")
    file.write_text(dump(description(name)))
    with state_of(name) as state:
        slot = slots.acquire(name)
        try:
            command = [sys.executable, "-c", BUILD_AND_DIE, str(file), str(slot), str(state), str(num_steps)]
            assert subprocess.run(command).returncode == -signal.SIGKILL
            assert network.num_existing(slot) > 0
            process = ProcessTable(state).find(relay.PROCESS_NAME)
            network.down(slot, state)
            assert network.num_existing(slot) == 0
            assert process is None or not process.alive
            assert not relay.socket_path(slot).exists()
        finally:
            network.down(slot, state)
            slots.release(name)
