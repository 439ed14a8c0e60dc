"""What a step costs in money: accelerators by the second, traffic between regions by the byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hulk_placement.cost.groups import Group
from hulk_placement.cost.traffic import Bytes, ring_traffic, traffic
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

GB = 1e9

LIMIT_ROUNDING = 1 + 1e-9
"""What sums of prices may be above a limit that they just keep: they are rounded."""


def accelerators_per_s(plan: Plan, topology: Topology) -> float:
    """Price of all of a plan's accelerators for a second."""
    return sum(topology.machine(w.machine).price_per_hour * w.num_accelerators for w in plan.workers) / 3600


def judged(plan: Plan, workload: Workload) -> float:
    """What is to be least of a plan: the seconds of its step, or the step's price, as the workload's objective says."""
    return plan.prediction.step_s if workload.objective == "time" else plan.prediction.price


def price_words(plan: Plan, workload: Workload, topology: Topology) -> str:
    """What the plan costs, beside the limit that the workload sets."""
    limit = workload.max_price_per_hour
    return (
        f"Its accelerators cost {accelerators_per_s(plan, topology) * 3600:g} an hour"
        f"{'' if limit is None else f', of at most {limit:g}'}; a step costs {plan.prediction.price:.4g} with what it "
        "sends between regions."
    )


def least_per_hour(priced: Iterable[tuple[float, int]], num: int) -> float:
    """Price an hour of so many accelerators, the cheapest there are: of (price of one, how many of them there are).

    >>> least_per_hour([(3.0, 8), (2.0, 1)], 3), least_per_hour([(1.0, 1 << 30)], 1 << 30)
    (8.0, 1073741824.0)
    """
    per_hour = 0.0
    for price, count in sorted(priced):
        taken = min(count, num)
        per_hour += taken * price
        num -= taken
    return per_hour


def egress(plan: Plan, workload: Workload, topology: Topology, groups: list[Group]) -> float:
    """Price of what a step sends between regions, and between a region's machines where that costs too."""
    return _priced(traffic(plan, workload, topology, groups).total(), topology) if topology.egress_price_per_gb else 0.0


def ring_egress(machines: Sequence[str], num_bytes: int, topology: Topology) -> float:
    """Price of what one all-reduce in a ring over ranks on these machines sends."""
    return _priced(ring_traffic(machines, num_bytes, topology), topology) if topology.egress_price_per_gb else 0.0


def _priced(sent: Bytes, topology: Topology) -> float:
    return sum(num_bytes / GB * topology.egress_price_per_gb.get(pair, 0.0) for pair, num_bytes in sent.items())
