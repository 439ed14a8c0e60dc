"""NCCL over shaped links as others measured it (`bench/data/nccl_shaped.csv`), with what the planner's formulas say."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass

from hulk_placement.cost.groups import Group
from hulk_placement.cost.nccl import nccl_times
from hulk_placement.nccl import Nccl
from hulk_placement.topology import Link, Machine, Topology

from bench.data import NCCL_SHAPED

MIB = 1 << 20
UNSHAPED_DELAY_S, UNSHAPED_BYTES_PER_S = 5e-5, 1.22e9
"""Between two of these machines where nothing is shaped: 0.1 ms there and back, as the source says, and the rate of its
own transfers of 64 MiB."""

AWS = Nccl(num_sockets=16)
"""The machines are AWS p3.2xlarge, where NCCL opens 16 sockets a channel by itself."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; delays are of one way."""

    operation: str
    table: str
    num_ranks: int
    num_bytes: int
    delay_ms: float
    gbps: float
    measured_s: float

    @property
    def link(self) -> Link:
        """Between any two machines."""
        delay_s = self.delay_ms / 1000 or UNSHAPED_DELAY_S
        return Link(2 * delay_s, min(UNSHAPED_BYTES_PER_S, self.gbps * 1.25e8 or UNSHAPED_BYTES_PER_S))

    @property
    def predicted_s(self) -> float:
        """By the formulas of steps: one way and the bytes of a send, the tuned all-reduce."""
        if self.operation == "send":
            return AWS.between_stages(self.link).one_flow_s(self.num_bytes)
        machines = tuple(Machine(f"node-{rank}", "aws") for rank in range(self.num_ranks))
        topology = Topology(machines, region_links={("aws", "aws"): self.link})
        group = Group(tuple(machine.name for machine in machines), self.num_bytes)
        return nccl_times([group], topology, AWS)[0].seconds

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1


def rows() -> Iterator[Row]:
    """All measurements."""
    with NCCL_SHAPED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield Row(
                operation=row["operation"],
                table=row["table"],
                num_ranks=int(row["num_ranks"]),
                num_bytes=int(row["mib"]) * MIB,
                delay_ms=float(row["delay_ms"] or 0),
                gbps=float(row["gbps"] or 0),
                measured_s=float(row["seconds"]),
            )
