"""From which bandwidth on replicas hardly wait: of each way in which they may come together, by the prediction alone.

All links between regions are taken to be faster or slower by one factor, and the plan's flows to stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from hulk_placement.collective.network import Network
from hulk_placement.cost.predict import predict
from hulk_placement.plan import Plan
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

Utilisation = Callable[[Topology], float]


def needed(problem: Problem, plan: Plan, network: Network) -> str:
    """The narrowest link's bandwidth from which on each way computes for BUSY of a step."""
    narrowest = min(rate for row in network.rate for rate in row if rate) * 8 / 1e6
    parts = []
    for words, utilisation in _ways(problem, plan):
        factor = _least_factor(utilisation, problem.topology)
        parts.append(f"{words} {'at none' if factor is None else f'from {_mbit(narrowest * factor)} Mbit/s on'}")
    return (
        f"Replicas wait for at most {1 - BUSY:.0%} of a step, by the bandwidth of the narrowest link between regions "
        f"(it has {_mbit(narrowest)} Mbit/s, others change with it): {', '.join(parts)}."
    )


def _ways(problem: Problem, plan: Plan) -> Iterator[tuple[str, Utilisation]]:
    assert plan.collective is not None
    flows, workload = plan.collective, problem.workload

    def of(compression: str, num_steps: int | None) -> Plan:
        sent = replace(flows, compression=compression)
        return replace(plan, collective=sent, inner_steps=num_steps, fragments=1, delay_steps=0)

    def at_once(asked: Plan) -> Utilisation:
        return lambda topology: predict(asked, workload, topology).utilisation

    def late(asked: Plan) -> Utilisation:
        def found(topology: Topology) -> float:
            options = Options(replace(asked, prediction=predict(asked, workload, topology)), workload, topology)
            return options.utilisation(plan.fragments, options.delays(plan.fragments)[-1])

        return found

    exact = "none" if workload.sync.rounds.may_overlap else flows.compression
    yield "a sum in every step", at_once(of(exact, None))
    yield "all layers at once", at_once(of(exact, plan.inner_steps))
    for compression in STREAMED if workload.sync.rounds.may_overlap else ():
        words = "streaming" + (f" in {compression}" if compression != "none" else "")
        yield words, late(of(compression, plan.inner_steps))


def _least_factor(utilisation: Utilisation, topology: Topology) -> float | None:
    """The least factor on all bandwidths between regions with which a way reaches BUSY; None: no factor is enough."""
    low, high = 1 / FASTEST, FASTEST
    if utilisation(_scaled(topology, high)) < BUSY:
        return None
    while high / low > NEAR:
        middle = math.sqrt(low * high)
        is_enough = utilisation(_scaled(topology, middle)) >= BUSY
        low, high = (low, middle) if is_enough else (middle, high)
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
