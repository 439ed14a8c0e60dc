"""The relay process of a lab: build it, describe its WAN to it, start it, talk to it.

The relay itself is `lab/relay` (Go): a TUN device in every region's router namespace and, for every directed region
pair, a delay, a rate and a router buffer. One line of JSON each way on a unix socket reads its counters and changes
links.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hulk_lab.errors import LabError
from hulk_lab.paths import CACHE, RUN_DIR
from hulk_lab.prerequisites import check_go
from hulk_lab.processes import ProcessTable, wait_until
from hulk_lab.spec import LabSpec, LinkSpec
from hulk_lab.wan.addresses import LabNetwork, netns_path

PROCESS_NAME = "relay"
DEVICE = "wan"
LATE_BOUND_S = 0.002
"""A packet delivered more than this after it was due is late: 2 % of a 100 ms round trip, four of the relay's ticks."""
MAX_LATE_SHARE = 0.01
"""A run with more late packets than this measured the machine's load, not the emulated WAN: it is invalid."""

_SOURCE = Path(__file__).resolve().parents[2] / "relay"


class RelayError(LabError):
    """The relay refused a request or does not answer."""


@dataclass(frozen=True, slots=True)
class LinkStats:
    """Counters of one directed link since the relay started."""

    source: str
    target: str
    delay_s: float
    bytes_per_s: float
    is_cut: bool
    num_packets: int
    num_bytes: int
    num_dropped: int
    num_cut: int
    num_late: int
    max_late_s: float
    num_random: int = 0
    """Lost at random, as `lose` asked."""


@dataclass(frozen=True, slots=True)
class RelayStats:
    """Counters of the whole relay since it started."""

    links: tuple[LinkStats, ...]
    cpu_s: float
    num_lost: int
    """Packets that no full router buffer, cut or `lose` explains: nobody had a place or a way for them."""

    @property
    def num_packets(self) -> int:
        return sum(link.num_packets for link in self.links)

    @property
    def num_bytes(self) -> int:
        return sum(link.num_bytes for link in self.links)

    @property
    def num_late(self) -> int:
        return sum(link.num_late for link in self.links)


@dataclass(frozen=True, slots=True)
class Lateness:
    """Whether the WAN kept its promise between two readings of the counters."""

    num_packets: int
    num_late: int
    num_lost: int

    @property
    def late_share(self) -> float:
        """Late or lost packets of all."""
        return (self.num_late + self.num_lost) / self.num_packets if self.num_packets else 0.0

    @property
    def is_valid(self) -> bool:
        return self.late_share <= MAX_LATE_SHARE

    def __str__(self) -> str:
        verdict = "valid" if self.is_valid else "INVALID: the machine was too busy to emulate the WAN"
        return (
            f"{self.num_late} of {self.num_packets} packets delivered > {LATE_BOUND_S * 1e3:g} ms late"
            f" and {self.num_lost} lost ({self.late_share:.2%}, at most {MAX_LATE_SHARE:.0%}): {verdict}"
        )


def lateness(before: RelayStats, after: RelayStats) -> Lateness:
    """What happened between two readings."""
    return Lateness(
        after.num_packets - before.num_packets,
        after.num_late - before.num_late,
        after.num_lost - before.num_lost,
    )


def binary() -> Path:
    """Where the relay is once built: another source is another folder."""
    sources = sorted(p for p in _SOURCE.iterdir() if p.suffix in {".go", ".mod", ".sum"} and "_test" not in p.name)
    digest = hashlib.sha256(b"".join(p.name.encode() + b"\0" + p.read_bytes() for p in sources)).hexdigest()[:16]
    return CACHE / f"relay-{digest}" / "relay"


def build() -> Path:
    """The relay's binary, built when this source was never built before (Go's own cache makes that seconds)."""
    target = binary()
    if not target.exists():
        check_go()
        fresh = target.with_name(f"relay.{os.getpid()}")
        env = {**os.environ, "CGO_ENABLED": "0"}
        done = subprocess.run(
            ["go", "build", "-trimpath", "-o", str(fresh), "."], cwd=_SOURCE, env=env, capture_output=True, text=True
        )
        if done.returncode:
            raise RelayError(f"go build in {_SOURCE} failed:\n{done.stderr}")
        fresh.rename(target)
    return target


def socket_path(slot: int) -> Path:
    return RUN_DIR / f"relay-{slot}.sock"


def config(net: LabNetwork) -> dict[str, Any]:
    """What the relay reads at its start."""
    spec = net.spec
    return {
        "socket": str(socket_path(net.slot)),
        "device": DEVICE,
        "mtu": spec.mtu,
        "bufferMicroseconds": round(spec.router_buffer_ms * 1e3),
        "lateMicroseconds": round(LATE_BOUND_S * 1e6),
        "regions": [
            {
                "name": router.region,
                "netns": str(netns_path(router.netns)),
                "cidrs": [router.lan_cidr, f"{router.wan_address}/32", *router.pod_cidrs],
            }
            for router in net.routers
        ],
        "links": [{"source": link.source, "target": link.target, **_settings(link, spec)} for link in spec.links],
    }


def _settings(link: LinkSpec, spec: LabSpec) -> dict[str, Any]:
    return {
        "delayMicroseconds": round(link.delay_ms * 1e3),
        "bytesPerSecond": link.wire_bytes_per_s(spec.mtu),
    }


def start(net: LabNetwork, table: ProcessTable) -> None:
    """Start the relay unless it runs; returns when it answers."""
    running = table.find(PROCESS_NAME)
    if running is not None and running.alive:
        return
    path = table.state / "relay.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config(net), indent=1))
    RUN_DIR.mkdir(parents=True, exist_ok=True)
    socket_path(net.slot).unlink(missing_ok=True)
    table.start(PROCESS_NAME, [build(), path])
    wait_until(socket_path(net.slot).exists, "start of the relay", timeout_s=10, log=table.log(PROCESS_NAME))


def stop(slot: int, table: ProcessTable) -> None:
    """Stop the relay if it runs; nothing of it is left."""
    running = table.find(PROCESS_NAME)
    if running is not None:
        table.stop([running])
    socket_path(slot).unlink(missing_ok=True)
    (table.state / "relay.json").unlink(missing_ok=True)


def _ask(slot: int, **request: Any) -> dict[str, Any]:
    path = socket_path(slot)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile().readline())
    except (OSError, json.JSONDecodeError) as error:
        raise RelayError(f"the relay of slot {slot} does not answer on {path}: {error}") from error
    if answer.get("error"):
        raise RelayError(answer["error"])
    return answer


def _kernel_drops(netns: str) -> int:
    """Packets the kernel dropped because the relay did not read in time; its buffer must never be the bottleneck."""
    command = ["ip", "-n", netns, "-j", "-s", "link", "show", DEVICE]
    devices = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    dropped: int = devices[0]["stats64"]["tx"]["dropped"]
    return dropped


def stats(net: LabNetwork) -> RelayStats:
    """The counters now."""
    answer = _ask(net.slot, op="stats")
    return RelayStats(
        links=tuple(
            LinkStats(
                source=link["source"],
                target=link["target"],
                delay_s=link["delayMicroseconds"] / 1e6,
                bytes_per_s=link["bytesPerSecond"],
                is_cut=link["cut"],
                num_packets=link["packets"],
                num_bytes=link["bytes"],
                num_dropped=link["drops"],
                num_cut=link["cutDrops"],
                num_late=link["late"],
                max_late_s=link["maxLateMicroseconds"] / 1e6,
                num_random=link["losses"],
            )
            for link in answer.get("links", ())
        ),
        cpu_s=answer.get("cpuMicroseconds", 0) / 1e6,
        num_lost=sum(answer[reason] for reason in ("unroutable", "exhausted", "refused"))
        + sum(_kernel_drops(router.netns) for router in net.routers),
    )


def cut(net: LabNetwork, source: str, target: str) -> None:
    """Lose every packet of one direction, those on the way included, until it is healed."""
    net.spec.link(source, target)  # or ValueError
    _ask(net.slot, op="cut", source=source, target=target)


def slow(
    net: LabNetwork, source: str, target: str, *, mbit_per_s: float | None = None, one_way_ms: float | None = None
) -> None:
    """Change one direction's TCP payload rate or one-way delay until it is healed; ValueError if out of bounds."""
    now = net.spec.link(source, target)
    link = LinkSpec(
        source=source,
        target=target,
        mbit_per_s=now.mbit_per_s if mbit_per_s is None else mbit_per_s,
        one_way_ms=now.delay_ms if one_way_ms is None else one_way_ms,
    )
    _ask(net.slot, op="set", source=source, target=target, **_settings(link, net.spec))


def lose(net: LabNetwork, source: str, target: str, share: float, *, seed: int = 0) -> None:
    """Lose this share of one direction's packets at random until it is healed; RelayError if it is not in 0..1."""
    net.spec.link(source, target)  # or ValueError
    _ask(net.slot, op="set", source=source, target=target, loss=share, seed=seed)


def heal(net: LabNetwork, source: str, target: str) -> None:
    """Give one direction what the lab's file says again."""
    settings = _settings(net.spec.link(source, target), net.spec)
    _ask(net.slot, op="heal", source=source, target=target, loss=0, **settings)
