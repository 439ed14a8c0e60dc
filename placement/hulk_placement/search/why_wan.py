"""Sentences with numbers about a plan that uses Hulk's own all-reduce: its flows, the physical bound, local SGD."""

from __future__ import annotations

import math
from dataclasses import replace

from hulk_placement.collective.bound import MOST_QUICKEST_REGIONS, Bound
from hulk_placement.collective.flow_words import flow_words
from hulk_placement.collective.network import Network, build_network
from hulk_placement.collective.plan import WIRE_SHARE, CollectivePlan, SizeClass
from hulk_placement.cost.compute import is_any_known
from hulk_placement.cost.pipelines import time_pipelines
from hulk_placement.cost.predict import predict
from hulk_placement.cost.wan import simulated
from hulk_placement.plan import Plan
from hulk_placement.search import why, why_streaming, why_warm_up
from hulk_placement.search.flows import NUM_BUCKETS
from hulk_placement.search.problem import Problem
from hulk_placement.solution import Unplaced
from hulk_placement.words import counted

MOST_FLOWS = 4
HIDDEN_SHARE = 0.1
"""A synchronous step pays where it waits for at most this share of its computation: the crossover to local SGD."""

FASTEST = 1024.0
"""Factor on all bandwidths beyond which only latency is left."""


def sentences(problem: Problem, plan: Plan, ring: Plan | Unplaced, is_time_over: bool = False) -> tuple[str, ...]:
    """What decided the plan, how its values flow, what no all-reduce can beat, and what the ring would have cost.

    `is_time_over`: the bandwidth at which local SGD is as good, which takes long to find, is left out.
    """
    assert plan.collective is not None
    network = build_network(problem.topology, plan.rank_machines, allow_unknown=problem.workload.allow_unknown_links)
    bucket_bytes = math.ceil(problem.workload.model.gradient_bytes / plan.num_buckets)
    found = [why.workers(problem, plan), *why.against_equal_shares(problem, plan), _time(plan)]
    found += [_flows(plan.collective, plan.collective.of(bucket_bytes))]
    found += [_bound(plan.collective, network, bucket_bytes), *_against_ring(plan, ring)]
    found += why.unused(problem, plan)
    found += [f"Not considered: {phrase}." for phrase in problem.left_out]
    if is_any_known(problem.workload, problem.topology):
        found.append(_other_way(problem, plan))
        needed = _crossover if plan.inner_steps is None else why_streaming.needed
        found += [] if is_time_over else [needed(problem, plan, network)]
        found += why_warm_up.sentences(problem, plan)
    if not plan.prediction.calibrated:
        found.append(why.assumed(problem))
    return (*found, *why.none_better(plan))


def against_wan(found: Plan) -> str:
    """What Hulk's own all-reduce would have cost where the ring is used."""
    num = len({slot.region for slot in found.workers})
    return f"Hulk's own all-reduce would take {found.prediction.step_s:.3f} s a step (over {counted(num, 'region')})."


def _time(plan: Plan) -> str:
    prediction = plan.prediction
    buckets = counted(plan.num_buckets, "bucket")
    ends = prediction.bottleneck
    link = "" if ends is None else f"; {ends[0]} to {ends[1]} is the busiest link"
    if plan.inner_steps is not None:
        return why.round_words(plan, link)
    return (
        f"A step computes for {why.compute_words(plan)} and then waits {prediction.communication_s:.3f} s for "
        f"Hulk's own all-reduce of gradients in {buckets}{link}."
    )


def _flows(collective: CollectivePlan, found: SizeClass) -> str:
    """The largest flows of a class in words."""
    ordered = sorted(found.flows, key=lambda flow: -flow.share)
    listed = [f"{flow.share:.0%} {flow_words(flow, collective.network.regions)}" for flow in ordered[:MOST_FLOWS]]
    rest = sum(flow.share for flow in ordered[MOST_FLOWS:])
    more = f"; {rest:.0%} in {len(ordered) - MOST_FLOWS} more flows" if rest else ""
    return f"Of a vector: {'; '.join(listed)}{more}."


def _bound(collective: CollectivePlan, network: Network, num_bytes: int) -> str:
    sent = math.ceil(num_bytes * WIRE_SHARE[collective.compression])
    bound = Bound(network)
    least_s, nodes_s = bound.seconds(sent), bound.nodes_seconds(sent)
    seconds = simulated(collective, network, num_bytes).seconds
    by = "single regions' links"
    if len(network.regions) <= MOST_QUICKEST_REGIONS:
        by = f"quickest flow; {by} {nodes_s:.3f} s"
    return (
        f"Physics: no all-reduce of {num_bytes / 2**20:.3g} MiB over these links can take less than {least_s:.3f} s "
        f"({by}); this one is predicted to take {seconds:.3f} s "
        f"({seconds / least_s:.2f} x)."
    )


def _against_ring(plan: Plan, ring: Plan | Unplaced) -> list[str]:
    if isinstance(ring, Unplaced):
        return ["No ring of known links joins enough machines."]
    ratio = ring.prediction.step_s / plan.prediction.step_s
    num = len(ring.workers)
    return [
        f"gloo's ring would take {ring.prediction.step_s:.3f} s a step with {counted(num, 'worker')} ({ratio:.2f} x)."
    ]


def _other_way(problem: Problem, plan: Plan) -> str:
    """What a step takes of local SGD where the plan is synchronous, and the other way round; of the same workers."""
    inner_steps = plan.inner_steps or problem.workload.sync.inner_steps
    local = plan if plan.inner_steps else replace(plan, num_buckets=1, inner_steps=inner_steps)
    numbers = NUM_BUCKETS if plan.inner_steps else (plan.num_buckets,)
    synchronous = replace(plan, inner_steps=None, fragments=1, delay_steps=0)

    def seconds(way: Plan) -> float:
        return predict(way, problem.workload, problem.topology).step_s

    local_s, each_s = seconds(local), {num: seconds(replace(synchronous, num_buckets=num)) for num in numbers}
    synchronous_s, buckets = min(each_s.values()), counted(min(numbers, key=each_s.__getitem__), "bucket")
    return (
        f"Local SGD with {inner_steps} inner steps is predicted to take {local_s:.3f} s a step on these workers, a "
        f"synchronous step {synchronous_s:.3f} s (gradients in {buckets})."
    )


def _crossover(problem: Problem, plan: Plan, network: Network) -> str:
    """From which factor on all bandwidths on a synchronous step pays."""
    factor = crossover(problem, plan, network)
    local = f"local SGD with {problem.workload.sync.inner_steps} inner steps"
    if factor is None:
        return (
            f"At no bandwidth would a synchronous step wait for at most {HIDDEN_SHARE:.0%} of its computation (latency "
            f"alone is more): {local} takes less time per step, whatever it does to the loss."
        )
    return (
        f"From {factor:.3g} x the bandwidth of these links on, a synchronous step waits for at most {HIDDEN_SHARE:.0%} "
        f"of its computation; below, {local} takes less time per step, whatever it does to the loss."
    )


def crossover(problem: Problem, plan: Plan, network: Network) -> float | None:
    """The factor on all bandwidths above which a synchronous step waits for at most a tenth of its computation.

    All-reduces are taken to stay as far above their physical bound as that of all gradients is now. What the buckets
    before the last take is hidden as far as the last backward pass allows. None where latency alone is more.
    """
    assert plan.collective is not None
    num_bytes = problem.workload.model.gradient_bytes
    sent = math.ceil(num_bytes * WIRE_SHARE[plan.collective.compression])
    stretch = simulated(plan.collective, network, num_bytes).seconds / Bound(network).seconds(sent)
    limit_s = HIDDEN_SHARE * plan.prediction.compute_s
    backward_s = time_pipelines(plan, problem.workload, problem.topology).common_backward_s
    hidden_s = backward_s * (1 - 1 / plan.num_buckets)

    def waits(factor: float) -> bool:
        bound = Bound(network.scaled(factor))
        last_s, all_s = bound.seconds(sent / plan.num_buckets), bound.seconds(sent)
        return max(stretch * last_s, stretch * all_s - hidden_s) > limit_s

    if waits(FASTEST):
        return None
    low, high = 1 / FASTEST, FASTEST
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if waits(middle) else (low, middle)
    return high
