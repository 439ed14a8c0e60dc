"""From which bandwidth on replicas hardly wait: of each way in which they may come together, by the prediction alone.

All links between regions are taken to be faster or slower by one factor, and the plan's flows to stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hulk_placement.collective.network import Network
from hulk_placement.cost.predict import predict
from hulk_placement.plan import Plan
from hulk_placement.search.flows import NUM_BUCKETS
from hulk_placement.search.problem import Problem
from hulk_placement.search.streaming import Options
from hulk_placement.sync import STREAMED
from hulk_placement.topology import Link, Topology

BUSY = 0.95
"""Of a step: what a way must reach."""

FASTEST = 1024.0
"""Factor on all bandwidths beyond which only latency is left."""

NEAR = 1.01
"""Two factors that are as good as one."""


def needed(problem: Problem, plan: Plan, network: Network) -> str:
    """The narrowest link's bandwidth from which on each way computes for BUSY of a step."""
    narrowest = min(rate for row in network.rate for rate in row if rate) * 8 / 1e6
    parts = []
    for words, plans in _ways(problem, plan):
        parts.append(f"{words} {_from(narrowest, _least_factor(plans, problem))}")
    return (
        f"Replicas wait for at most {1 - BUSY:.0%} of a step, by the bandwidth of the narrowest link between regions "
        f"(it has {_mbit(narrowest)} Mbit/s, others change with it): {', '.join(parts)}."
    )


def _from(mbit_per_s: float, factor: float | None) -> str:
    if factor is None:
        return "at none"
    rate = f"{_mbit(mbit_per_s * factor)} Mbit/s"
    return f"already at {rate}" if factor <= 1 / FASTEST else f"from {rate} on"


def _ways(problem: Problem, plan: Plan) -> Iterator[tuple[str, Sequence[Plan]]]:
    """Each in words, with the plans of which the best counts."""
    assert plan.collective is not None
    flows, rounds = plan.collective, problem.workload.sync.rounds
    options = Options(plan, problem.workload, problem.topology)

    def of(compression: str, num_steps: int | None) -> Plan:
        sent = replace(flows, compression=compression)
        return replace(plan, collective=sent, inner_steps=num_steps, fragments=1, delay_steps=0)

    exact = "none" if rounds.may_overlap else flows.compression
    yield "a sum in every step", [replace(of(exact, None), num_buckets=number) for number in NUM_BUCKETS]
    yield "all layers at once", [of(exact, plan.inner_steps)]
    for compression in STREAMED if rounds.may_overlap else ():
        once = of(compression, plan.inner_steps)
        words = "streaming" + (f" in {compression}" if compression != "none" else "")
        late = [replace(once, fragments=num, delay_steps=options.delays(num)[-1]) for num in options.numbers()]
        yield words, late


def _least_factor(plans: Sequence[Plan], problem: Problem) -> float | None:
    """The least factor on all bandwidths between regions with which a plan reaches BUSY.

    None: no factor is enough; 1 / FASTEST: any is.
    """
    least = None
    for plan in plans:

        def is_enough(factor: float, plan: Plan = plan) -> bool:
            found = predict(plan, problem.workload, _scaled(problem.topology, factor))
            return found.utilisation >= BUSY

        high = FASTEST if least is None else least / NEAR
        if high > 1 / FASTEST and is_enough(high):
            least = _least(is_enough, high)
    return least


def _least(is_enough: Callable[[float], bool], high: float) -> float:
    """The least factor that is enough, as `high` is."""
    low = 1 / FASTEST
    if is_enough(low):
        return low
    while high / low > NEAR:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _scaled(topology: Topology, factor: float) -> Topology:
    def changed(link: Link) -> Link:
        flow = link.flow_bytes_per_s
        return replace(
            link,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor,
            flow_bytes_per_s=None if flow is None else flow * factor,
        )

    region = {machine.name: machine.region for machine in topology.machines}
    return replace(
        topology,
        node_links={
            (a, b): link if region.get(a) == region.get(b) else changed(link)
            for (a, b), link in topology.node_links.items()
        },
        region_links={(a, b): link if a == b else changed(link) for (a, b), link in topology.region_links.items()},
        uplinks={name: cap * factor for name, cap in topology.uplinks.items()},
    )


def _mbit(value: float) -> str:
    """
    >>> _mbit(1234.5), _mbit(56.78), _mbit(0.1234)
    ('1,234', '57', '0.12')
    """
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
