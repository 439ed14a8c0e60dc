"""Is the emulated WAN what the lab's file says? Ping and iperf3 between real nodes, every directed region pair.

Measured from node namespaces, that is through the same routers, devices and relay as the pods' traffic.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from rich.table import Table

from hulk_lab.errors import LabError
from hulk_lab.spec import LinkSpec
from hulk_lab.wan import relay
from hulk_lab.wan.addresses import LabNetwork, NodeNetwork

TOLERANCE = 0.05
RTT_FLOOR_S = 0.001
"""Below 20 ms the emulation's own half tick and the machine's scheduling exceed 5 %: that much is always allowed."""
MAX_ROUND_MBIT_PER_S = 200
"""Tests run side by side up to this sum: more would measure the machine."""
_NUM_STREAMS = 4
"""After a loss one cubic stream needs many round trips to fill a long, fast link again: that would measure TCP."""
_FIRST_PORT = 5300


class CheckError(LabError):
    """A measurement did not run at all."""


@dataclass(frozen=True, slots=True)
class PairCheck:
    """One directed region pair, what the file says and what was measured."""

    source: str
    target: str
    target_rtt_s: float
    rtt_s: float
    loaded_rtt_s: float
    """While iperf3 keeps the link's router buffer full."""
    target_mbit_per_s: float
    mbit_per_s: float

    @property
    def rtt_ok(self) -> bool:
        return abs(self.rtt_s - self.target_rtt_s) <= max(TOLERANCE * self.target_rtt_s, RTT_FLOOR_S)

    @property
    def rate_ok(self) -> bool:
        return abs(self.mbit_per_s / self.target_mbit_per_s - 1) <= TOLERANCE


@dataclass(frozen=True, slots=True)
class Report:
    """All pairs, and whether the machine kept up while they were measured."""

    pairs: tuple[PairCheck, ...]
    lateness: relay.Lateness
    relay_cpu_s: float
    carried_mbit: float
    """All packets of all links during the check."""

    @property
    def ok(self) -> bool:
        return self.lateness.is_valid and all(pair.rtt_ok and pair.rate_ok for pair in self.pairs)


def check(net: LabNetwork, *, seconds: int = 6, omitted_seconds: int = 3) -> Report:
    """Measure every directed pair: RTT idle, then TCP payload rate after slow start, and RTT meanwhile."""
    before = relay.stats(net)
    measured = asyncio.run(_measure(net, seconds, omitted_seconds))
    after = relay.stats(net)
    carried_mbit = (after.num_bytes - before.num_bytes) * 8 / 1e6
    return Report(measured, relay.lateness(before, after), after.cpu_s - before.cpu_s, carried_mbit)


def measure_rtts(net: LabNetwork, *, num_pings: int = 10) -> dict[tuple[str, str], float]:
    """Median round trip in seconds of every directed region pair now, under whatever load there is."""
    return asyncio.run(_rtts(net, num_pings))


def measure_rate(net: LabNetwork, source: str, target: str, *, seconds: int = 6, omitted_seconds: int = 3) -> float:
    """TCP payload rate of one directed region pair now, Mbit/s, after slow start."""
    return asyncio.run(_rate(net, net.spec.link(source, target), seconds, omitted_seconds))


def table(report: Report) -> Table:
    """Target beside measured, for a terminal."""
    rows = Table(title="Emulated WAN: lab file / measured", title_justify="left")
    for column in ("link", "RTT ms", "measured", "under load", "Mbit/s", "measured", "within 5 %"):
        rows.add_column(column, justify="left" if column == "link" else "right")
    for pair in report.pairs:
        rows.add_row(
            f"{pair.source} -> {pair.target}",
            f"{pair.target_rtt_s * 1e3:.1f}",
            f"{pair.rtt_s * 1e3:.1f}",
            f"{pair.loaded_rtt_s * 1e3:.1f}",
            f"{pair.target_mbit_per_s:.1f}",
            f"{pair.mbit_per_s:.1f}",
            "yes" if pair.rtt_ok and pair.rate_ok else "NO",
        )
    per_100_mbit = 100 * report.relay_cpu_s / report.carried_mbit
    rows.caption = (
        f"{report.lateness}\nrelay: {report.relay_cpu_s:.2f} s of CPU for {report.carried_mbit:.0f} Mbit,"
        f" {per_100_mbit:.2f} s per 100 Mbit"
    )
    rows.caption_justify = "left"
    return rows


def rounds(links: Sequence[LinkSpec], max_mbit_per_s: float = MAX_ROUND_MBIT_PER_S) -> list[list[LinkSpec]]:
    """Split links so that none is tested beside its reverse (which carries its acknowledgements) nor above the sum.

    a->b 40, b->a 40, b->c 90, c->a 90 Mbit/s with at most 200 become [a->b, b->c] and [b->a, c->a].
    """
    result: list[list[LinkSpec]] = []
    for link in links:
        for chosen in result:
            pairs = {(other.target, other.source) for other in chosen}
            total = sum(other.mbit_per_s for other in chosen) + link.mbit_per_s
            if (link.source, link.target) not in pairs and total <= max_mbit_per_s:
                chosen.append(link)
                break
        else:
            result.append([link])
    return result


async def _measure(net: LabNetwork, seconds: int, omitted_seconds: int) -> tuple[PairCheck, ...]:
    idle = await _rtts(net, 10)
    rates: dict[tuple[str, str], float] = {}
    loaded: dict[tuple[str, str], float] = {}
    for chosen in rounds(net.spec.links):
        tests = [_rate(net, link, seconds, omitted_seconds) for link in chosen]
        pings = [_ping(net, link, 5 * seconds, delay_s=omitted_seconds) for link in chosen]
        done = await _all([*tests, *pings])
        for link, rate, rtt in zip(chosen, done[: len(chosen)], done[len(chosen) :], strict=True):
            rates[link.source, link.target] = rate
            loaded[link.source, link.target] = rtt
    return tuple(
        PairCheck(
            source=link.source,
            target=link.target,
            target_rtt_s=net.spec.rtt_ms(link.source, link.target) / 1e3,
            rtt_s=idle[link.source, link.target],
            loaded_rtt_s=loaded[link.source, link.target],
            target_mbit_per_s=link.mbit_per_s,
            mbit_per_s=rates[link.source, link.target],
        )
        for link in net.spec.links
    )


def _ends(net: LabNetwork, link: LinkSpec) -> tuple[NodeNetwork, NodeNetwork]:
    return net.nodes_of(link.source)[0], net.nodes_of(link.target)[0]


async def _rtts(net: LabNetwork, num_pings: int) -> dict[tuple[str, str], float]:
    medians = await _all([_ping(net, link, num_pings) for link in net.spec.links])
    return {(link.source, link.target): rtt for link, rtt in zip(net.spec.links, medians, strict=True)}


async def _all(measurements: Sequence[Coroutine[None, None, float]]) -> list[float]:
    """Side by side; the first error is raised when all have ended, so that none of their programs is left running."""
    done = await asyncio.gather(*measurements, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return [result for result in done if not isinstance(result, BaseException)]


async def _start(node: NodeNetwork, *command: str) -> asyncio.subprocess.Process:
    """Run a program in a node's namespace; the kernel kills it with this process, whatever ends it."""
    inside = ("setpriv", "--pdeathsig", "KILL", "nsenter", f"--net={node.netns_path}", *command)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*inside, stdout=pipe, stderr=asyncio.subprocess.STDOUT)


async def _ping(net: LabNetwork, link: LinkSpec, num_pings: int, *, delay_s: float = 0) -> float:
    await asyncio.sleep(delay_s)
    source, target = _ends(net, link)
    address = net.first(target.address)
    process = await _start(source, "ping", "-n", "-c", str(num_pings), "-i", "0.2", "-W", "3", address)
    output, _ = await process.communicate()
    times = [float(ms) / 1e3 for ms in re.findall(r"time=([\d.]+) ms", output.decode())]
    if not times:
        raise CheckError(f"ping {source.name} -> {target.name} got no answer:\n{output.decode()}")
    return statistics.median(times)


async def _rate(net: LabNetwork, link: LinkSpec, seconds: int, omitted_seconds: int) -> float:
    """TCP payload received, Mbit/s, of all streams."""
    source, target = _ends(net, link)
    address = net.first(target.address)
    port = str(_FIRST_PORT + net.spec.links.index(link))
    server = await _start(target, "iperf3", "-s", "-1", "-p", port, "-B", address, "--forceflush")
    try:
        assert server.stdout is not None
        async for line in server.stdout:
            if b"listening" in line:
                break
        test = ("-t", str(seconds), "-O", str(omitted_seconds), "-P", str(_NUM_STREAMS))
        client = await _start(source, "iperf3", "-J", "-c", address, "-p", port, "--connect-timeout", "5000", *test)
        output, _ = await client.communicate()
    finally:
        if server.returncode is None:
            server.kill()
        await server.communicate()
    try:
        return float(json.loads(output)["end"]["sum_received"]["bits_per_second"]) / 1e6
    except (ValueError, KeyError) as error:
        raise CheckError(f"iperf3 {source.name} -> {target.name} measured nothing:\n{output.decode()}") from error
