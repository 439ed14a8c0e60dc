"""What two agents measure over the emulated WAN is what the lab file says, in each direction."""

import asyncio
import sys
import time
from collections.abc import Iterator

import pytest
from hulk_lab.spec import LabSpec
from hulk_lab.wan import network, relay, slots
from hulk_lab.wan.addresses import LabNetwork, NodeNetwork
from lab_names import lab_name

pytestmark = pytest.mark.lab

TOLERANCE = 0.05
RTT_S = 0.060
MBIT_PER_S = {("us", "eu"): 30, ("eu", "us"): 15}
BUSY_S = 240.0  # of runs in which this machine was too busy to emulate the WAN
PROGRAM = """
import asyncio, sys, time
from hulk_runtime.agent import bandwidth
from hulk_runtime.agent.echo import Echo
from hulk_runtime.agent.orders import Address, BandwidthOrder

async def main(role, own, peer, start):
    echo = Echo.open((own,), 9403)
    if role == "client":
        echo.aim({"peer": Address(peer, 9403)})
        while echo.num_samples("peer") < 20:
            echo.ask("peer")
            await asyncio.sleep(0.1)
        print(echo.results()["peer"].p50_us)
    order = BandwidthOrder(1, role, "peer", Address(peer, 9404), 4, 4, 256_000_000, start)
    result = await bandwidth.run(order, own, time.time)
    if result:
        print(result.bytes_per_s)

asyncio.run(main(*sys.argv[1:4], float(sys.argv[4])))
"""


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabNetwork]:
    """Two regions of one node, directions that differ."""
    name, state = lab_name("agent-wan"), tmp_path_factory.mktemp("wan")
    links = [
        {"source": source, "target": target, "oneWayMs": RTT_S * 500, "mbitPerS": rate}
        for (source, target), rate in MBIT_PER_S.items()
    ]
    regions = [{"name": "us", "nodes": 1}, {"name": "eu", "nodes": 1}]
    slot = slots.acquire(name)
    try:
        net = LabNetwork(LabSpec.model_validate({"name": name, "regions": regions, "links": links}), slot)
        network.up(net, state)
        yield net
    finally:
        network.down(slot, state)
        slots.release(name)


async def agent(node: NodeNetwork, role: str, peer: NodeNetwork, start_s: float) -> list[str]:
    command = ["nsenter", f"--net={node.netns_path}", sys.executable, "-c", PROGRAM, role]
    addresses = [str(node.address), str(peer.address), str(start_s)]
    process = await asyncio.create_subprocess_exec(*command, *addresses, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode().split()


async def measure(source: NodeNetwork, target: NodeNetwork) -> tuple[float, float]:
    """Round-trip time in seconds and rate in Mbit/s from source to target."""
    start_s = time.time() + 5
    _, (rtt_us, bytes_per_s) = await asyncio.gather(
        agent(target, "server", source, start_s), agent(source, "client", target, start_s)
    )
    return int(rtt_us) / 1e6, int(bytes_per_s) * 8 / 1e6


@pytest.mark.parametrize("pair", list(MBIT_PER_S), ids="-".join)
async def test_agents_measure_the_wan_as_it_is(wan: LabNetwork, pair: tuple[str, str]) -> None:
    nodes = {node.region: node for node in wan.nodes}
    deadline_s = time.monotonic() + BUSY_S
    while True:
        before = relay.stats(wan)
        rtt_s, mbit_per_s = await measure(nodes[pair[0]], nodes[pair[1]])
        lateness = relay.lateness(before, relay.stats(wan))
        if lateness.is_valid or time.monotonic() > deadline_s:
            break
    assert lateness.is_valid, str(lateness)
    assert rtt_s == pytest.approx(RTT_S, rel=TOLERANCE)
    assert mbit_per_s == pytest.approx(MBIT_PER_S[pair], rel=TOLERANCE)
