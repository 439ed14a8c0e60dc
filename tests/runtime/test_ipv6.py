"""Only IPv6, or both families: every server answers at both, and a gang meets in one. Real processes on ::1."""

import asyncio
import socket
import urllib.request

import pytest
from hulk_operator import metrics, worker_client
from hulk_operator.metrics import Health, Snapshot, registry
from hulk_operator.observation import Expected, ObserveError
from hulk_runtime.agent import bandwidth, http_server
from hulk_runtime.agent.echo import Echo
from hulk_runtime.agent.iperf import Transfer
from hulk_runtime.agent.orders import Address, BandwidthOrder, parse
from hulk_runtime.agent.rtt_window import MIN_SAMPLES
from hulk_runtime.training.preflight import Preflight
from hulk_runtime.training.progress_server import ProgressServer
from prometheus_client import CollectorRegistry, Gauge
from start_order import DIGEST, ORDER
from test_wan_training import wan

BOTH = ("127.0.0.1", "::1")
PEERS = """
import os
from hulk_runtime.collective import init_process_group
from hulk_runtime.job import environment
with init_process_group.connect(environment.read(os.environ)) as group:
    print("peers", *sorted(map(str, group.peers.values())))
    group.part()
"""


def url(host: str, port: int, path: str) -> str:
    return f"http://[{host}]:{port}/{path}" if ":" in host else f"http://{host}:{port}/{path}"


async def test_a_worker_answers_at_both_families() -> None:
    known = CollectorRegistry()
    Gauge("hulk_worker_step", "Last completed step.", registry=known).set(7)
    with ProgressServer(known, 3, 0, start_digest=DIGEST) as served:
        for host in BOTH:
            address = f"[{host}]:{served.port}" if ":" in host else f"{host}:{served.port}"
            assert await worker_client.answers(address)
            assert (await worker_client.metrics(address, Expected())).step == 7
            assert await worker_client.preflight(address, Expected()) is None
        served.publish_preflight(Preflight((0.5,), 0.5))
        with pytest.raises(ObserveError, match="/start answered 409"):
            await worker_client.start(address, 2, ORDER)
        await worker_client.start(address, 3, ORDER)
        assert served.wait_for_start(0)


async def test_the_operator_answers_at_both_families(unused_port) -> None:
    port = unused_port()
    runner = await metrics.serve(registry(Snapshot, Health()), lambda: True, lambda: True, port)
    try:
        for host in BOTH:
            with await asyncio.to_thread(urllib.request.urlopen, url(host, port, "healthz")) as answer:
                assert answer.status == 200
    finally:
        await runner.cleanup()


async def test_an_agent_answers_at_both_families(unused_port) -> None:
    port = unused_port()
    runner = await http_server.start(BOTH, port, lambda: http_server.Health({}, {}, 0, 0, 0, has_profile=False))
    try:
        for host in BOTH:
            with await asyncio.to_thread(urllib.request.urlopen, url(host, port, "healthz")) as answer:
                assert answer.status == 200
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("target", BOTH)
async def test_an_agent_with_both_families_echoes_with_those_that_have_one(target: str) -> None:
    both, one = Echo.open(BOTH, 0), Echo.open((target,), 0)
    try:
        both.aim({"one": Address(target, one.port)})
        async with asyncio.timeout(10):
            while both.num_samples("one") < MIN_SAMPLES:
                both.ask("one")
                await asyncio.sleep(0.01)
        assert one.counters.replied >= MIN_SAMPLES
    finally:
        both.close()
        one.close()


async def test_a_target_of_a_family_that_the_agent_lacks_is_lost_and_ends_nothing() -> None:
    echo = Echo.open(("127.0.0.1",), 0)
    echo.aim({"far": Address("fd00::1", 9403)})
    echo.ask("far")
    assert echo.counters.lost == 1
    echo.close()


def test_an_address_is_read_into_the_form_in_which_sockets_say_it() -> None:
    rows = [{"kind": "rtt", "target": name, "address": name, "port": 9403} for name in ("FD00:0::0001", "fade")]
    assert [order.address.host for order in parse({"measurements": rows}).rtt] == ["fd00::1", "fade"]


async def test_bandwidth_is_tested_over_ipv6() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as probe:
        port = probe.getsockname()[1]
    sides = [BandwidthOrder(7, role, "peer", Address("::1", port), 1, 1, 0, 0.0) for role in ("client", "server")]
    now_s = asyncio.get_running_loop().time
    result, _ = await asyncio.gather(*(bandwidth.run(side, "::1", now_s) for side in sides))
    assert isinstance(result, Transfer)
    assert result.bytes_per_s > 1_000_000


def test_a_gang_trains_over_ipv6_by_hulks_all_reduce(job, make_plan) -> None:
    first, *_ = job.run_ranks(make_plan((1, 1, 1), **wan()), MASTER_ADDR="::1")
    assert " all_reduce=wan " in first.output
    assert max(first.losses()) == 6


@pytest.mark.parametrize(
    ("first", "other", "family"), [("::1", "127.0.0.1", "::1"), ("127.0.0.1", "::1", "::ffff:7f00:1")]
)
def test_a_gang_meets_in_the_family_of_rank_0(job, make_plan, first: str, other: str, family: str) -> None:
    """Where rank 0's name has addresses of both, the others may have taken another one than it did."""
    job.write_plan(make_plan((1, 1)))
    alone = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    ranks = [
        job.fork("-c", PEERS, RANK=str(rank), HULK_WORKER=str(rank), MASTER_ADDR=host, **alone)
        for rank, host in enumerate((first, other))
    ]
    assert [rank.wait() for rank in ranks] == [0, 0], "\n".join(rank.output for rank in ranks)
    assert all(f"peers {family}\n" in rank.output for rank in ranks)
