"""Steps drawn by seed, with all that the simulation knows; and what a simulated one comes to, as plain numbers."""

from __future__ import annotations

import math
import random

import numpy as np
from hulk_placement.cost.simulation.outcome import Simulated
from hulk_placement.cost.simulation.schedule import schedule
from hulk_placement.cost.simulation.step import AllReduce, Bucket, Edge, Place, Replica, Resource, Step, Way


def drawn(seed: int) -> Step:
    """One to four replicas of one to four stages over five resources, the last of which is never scarce."""
    rng = random.Random(seed)
    num_replicas, num_stages = rng.randint(1, 4), rng.randint(1, 4)
    resources = [Resource(Place("link", ("a", str(n))), 10 ** rng.uniform(6, 8)) for n in range(4)]
    resources.append(Resource(Place("inside machine", ("m",)), math.inf))

    def way() -> Way:
        shared = tuple(rng.choices(range(5), k=rng.randint(1, 3)))
        num_flows, latency_s = rng.choice((1, 1, 2)), rng.uniform(0.0, 0.1)
        return Way(shared, 10 ** rng.uniform(6, 8), latency_s, num_flows, is_cold=rng.random() < 0.5)

    def replica() -> Replica:
        num = rng.randint(1, 12)
        times = [[[rng.uniform(0.1, 0.5) for _ in range(num)] for _ in range(num_stages)] for _ in range(2)]
        num_bytes = [[rng.choice((0.0, 1e5, 2e6, 1e7)) for _ in range(num)] for _ in range(num_stages - 1)]
        order = schedule(rng.choice(("gpipe", "1f1b")), num_stages, num)
        ways = tuple((way(), way()) for _ in range(num_stages - 1))
        shape = num_stages - 1, num
        return Replica(order, np.array(times[0]), np.array(times[1]), np.array(num_bytes).reshape(shape), ways)

    def group(members: tuple[tuple[int, int], ...], after_all: bool = False) -> AllReduce:
        num_buckets = rng.randint(1, 4)
        buckets = (
            Bucket(
                (k + 1) / num_buckets, tuple(tuple(Edge(way(), 10 ** rng.uniform(4, 7)) for _ in members) for _ in "12")
            )
            for k in range(num_buckets)
        )
        return AllReduce(members, tuple(buckets), rng.randint(1, 2), after_all, rng.choice((0.0, 0.3)))

    groups = [group(tuple((d, p) for d in range(num_replicas))) for p in range(num_stages)]
    groups += [group(((0, 0), (0, num_stages - 1)), after_all=True)] if rng.random() < 0.5 else []
    replicas = tuple(replica() for _ in range(num_replicas))
    overlap, is_early = rng.random() < 0.7, rng.random() < 0.7
    return Step(tuple(resources), replicas, tuple(groups), overlap, is_early, rng.choice((1, 1, 3)))


def figures(found: Simulated) -> list[float]:
    """Seconds of the step, of cells, transfers and all-reduces, who held them back, and what resources did."""
    blocks, sums = found.blocks, found.sums
    return [
        found.step_s,
        found.end_s,
        found.reduced_s,
        float(found.ends_DP.sum()),
        float(blocks.start_CI[np.isfinite(blocks.start_CI)].sum()),
        float(blocks.sending_HM[np.isfinite(blocks.sending_HM)].sum()),
        float(blocks.arrived_HM[np.isfinite(blocks.arrived_HM)].sum()),
        float((blocks.held_by_HM * np.arange(1, blocks.held_by_HM.size + 1).reshape(blocks.held_by_HM.shape)).sum()),
        float(sums.ready_S.sum()),
        float(sums.start_S.sum()),
        float(sums.end_S.sum()),
        float(sums.end_Q.sum()),
        float((sums.held_by_E * np.arange(1, sums.held_by_E.size + 1)).sum()),
        float((sums.cause_S * np.arange(1, sums.cause_S.size + 1)).sum()),
        float((sums.last_Q * np.arange(1, sums.last_Q.size + 1)).sum()),
        *(figure for use in found.uses for figure in (use.num_bytes, use.busy_s, use.scarce_s)),
    ]
