"""Which algorithm and protocol NCCL's own tuner takes for an all-reduce, where neither is set.

The tuner does not know the links: it prices every choice by latencies and efficiencies of a table and by the speed of
the NIC, and takes the least (`ncclTopoTuneModel` and `ncclTopoGetAlgoTime` in src/graph/tuning.cc of NCCL 2.21 to
2.27, whose figures are here). So a ring is taken for gradients although a tree would be through sooner over long links,
and it is this choice that a prediction must follow. With n ranks on N machines, a base latency c, hops of h seconds
inside a machine and g between two, and the NIC's rate w:

    ring    c + 2 (n - N) h + 2 (N - 1) g  +  bytes / (w e n / (2 (n - 1)))
    tree    c + 2 (n / N - 1) h + 2 floor(log2 N) g  +  bytes / (w e / 2)

Efficiencies e: of a ring 1, and 1/2 with LL; of a tree 0.92, and that / 3.8 with LL. A tree's rate is corrected by
size; a ring's latency grows by 1.4 once chunks are full ("plateau"; 1.9 before Ampere). Assumptions: Intel's or AMD's
hosts whose GPUs reach the NIC through the host bridge, so no LL128 between machines; no NVLink SHARP, no CollNet; one
NIC; trees only from three machines on, where they differ from a chain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from hulk_placement.cost.groups import Group
from hulk_placement.nccl import Algorithm, Nccl, ProtocolName
from hulk_placement.topology import Topology

UNREADABLE_NIC_BYTES_PER_S = 1.25e9
"""What NCCL takes a NIC for whose speed /sys/class/net does not say, as of most virtual ones: 10 Gbit/s."""

NVLINK_BYTES_PER_S = 4e10
"""A link inside a machine is taken for NVLink from this rate on: PCIe 4.0 x16 carries 32 GB/s. An assumption."""

FULL_CHUNK_BYTES = 64
"""Bytes a channel and rank from which the plateau's factor counts."""
PLATEAU = 1.4

LEAST_MACHINES_OF_A_TREE = 3


class _Figures(NamedTuple):
    """Of one algorithm with one protocol: microseconds of the base, and of a hop over NVLink, PCIe and the network."""

    base_us: float
    nvlink_us: float
    pci_us: float
    net_us: float
    efficiency: float


_TABLE: dict[tuple[Algorithm, ProtocolName], _Figures] = {
    ("ring", "LL"): _Figures(6.6, 0.6, 1.0, 2.7, 0.5),
    ("ring", "LL128"): _Figures(14.0, 1.9, 2.5, 4.0, 0.92),
    ("ring", "Simple"): _Figures(8.4, 3.4, 5.7, 14.0, 1.0),
    ("tree", "LL"): _Figures(6.8, 0.6, 1.0, 5.0, 0.92 / 3.8),
    ("tree", "LL128"): _Figures(14.0, 1.25, 1.9, 8.5, 0.92 * 120 / 128),
    ("tree", "Simple"): _Figures(8.4, 4.0, 4.0, 14.0, 0.92),
}
NET_OVERHEAD_US = {"LL": 1.0, "LL128": 1.0, "Simple": 3.0}
"""The least of a ring's hop inside a machine where the ring also goes between machines."""

_TREE_BY_SIZE: dict[ProtocolName, str] = {
    "LL": "AAAA987777654456789AAAA",
    "LL128": "AAAAA9888766666689999AA",
    "Simple": "99999998766555567877899",
}
"""Tenths of a tree's rate (A: ten) by floor(log2(bytes / 64)); beyond the last all of it."""


def tuned(transport: Nccl, group: Group, topology: Topology) -> Nccl:
    """The settings with the algorithm and the protocol that are in force for one bucket of a group.

    Those that are set stay; of the others NCCL's tuner takes the quickest by its own figures.

    >>> from hulk_placement.topology import Machine
    >>> topology = Topology(tuple(Machine(name, "r") for name in "abcdefgh"))
    >>> [tuned(Nccl(), Group(tuple("abcdefgh"), size), topology).algorithm for size in (1_000, 100_000_000)]
    ['tree', 'ring']
    """
    machines = set(group.machines)

    inside = _inside(transport, group, topology)
    bus = inside if len(machines) == 1 else _nic_bytes_per_s(group, topology)

    def seconds(choice: tuple[Algorithm, ProtocolName]) -> float:
        return _seconds(*choice, group, len(machines), transport.num_channels, bus, inside)

    algorithm, protocol = min(_choices(transport, group, topology), key=seconds)
    return replace(transport, algorithm=algorithm, protocol=protocol)


def _choices(transport: Nccl, group: Group, topology: Topology) -> Iterator[tuple[Algorithm, ProtocolName]]:
    """What may be in force: what is set, else what NCCL enables."""
    machines = set(group.machines)
    is_nvlink = len(machines) == 1 and _inside(transport, group, topology) >= NVLINK_BYTES_PER_S
    protocols: list[ProtocolName] = ["Simple", "LL", *(("LL128",) if is_nvlink else ())]
    algorithms: list[Algorithm] = ["ring"]
    if len(machines) >= LEAST_MACHINES_OF_A_TREE:
        algorithms.append("tree")
    yield from product(
        [transport.algorithm] if transport.algorithm else algorithms,
        [transport.protocol] if transport.protocol else protocols,
    )


def _seconds(
    algorithm: Algorithm,
    protocol: ProtocolName,
    group: Group,
    num_machines: int,
    num_channels: int,
    bus: float,
    inside: float,
) -> float:
    """What the tuner prices a choice at, with a bus and a link inside machines of so many bytes/s."""
    figures, num_ranks, num_bytes = _TABLE[algorithm, protocol], len(group.machines), group.num_bytes
    each = num_ranks / num_machines
    near_us = figures.nvlink_us if inside >= NVLINK_BYTES_PER_S else figures.pci_us
    far_us = _TABLE["tree", protocol].net_us if each == 1 else figures.net_us
    if algorithm == "tree":
        hops_us = 2 * ((math.ceil(each) - 1) * near_us + int(math.log2(num_machines)) * far_us)
        rate = bus * figures.efficiency / 2 * _corrected(protocol, num_bytes)
        return (figures.base_us + hops_us) * 1e-6 + num_bytes / rate
    if num_machines > 1:
        near_us = max(near_us, NET_OVERHEAD_US[protocol])
    hops_us = 2 * (num_ranks - num_machines) * near_us + 2 * (num_machines - 1) * far_us
    latency_s = (figures.base_us + hops_us) * 1e-6
    is_full = num_bytes / (num_channels * num_ranks) >= FULL_CHUNK_BYTES
    if protocol == "Simple" and num_machines > 1 and is_full:
        latency_s *= PLATEAU
    return latency_s + num_bytes / (bus * figures.efficiency * num_ranks / max(1, 2 * (num_ranks - 1)))


def _corrected(protocol: ProtocolName, num_bytes: int) -> float:
    """The share of its rate that a tree reaches with so many bytes."""
    size = int(math.log2(max(1, num_bytes // 64)))
    tenths = _TREE_BY_SIZE[protocol]
    return int(tenths[size], 16) / 10 if size < len(tenths) else 1.0


def _nic_bytes_per_s(group: Group, topology: Topology) -> float:
    """The rate that the tuner takes the slowest machine's NIC for."""
    return min(topology.machine(name).nic_bytes_per_s or UNREADABLE_NIC_BYTES_PER_S for name in set(group.machines))


def _inside(transport: Nccl, group: Group, topology: Topology) -> float:
    name = group.machines[0]
    return transport.link(name, name, topology).bandwidth_bytes_per_s
