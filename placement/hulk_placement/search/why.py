"""Sentences with numbers: why a plan is what it is, and why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hulk_placement.cost.compute import is_any_known, share_out
from hulk_placement.cost.predict import predict
from hulk_placement.plan import NOT_PROVEN, Plan
from hulk_placement.search.baselines import region_order
from hulk_placement.search.evaluate import links_known
from hulk_placement.search.graph import unknown_pairs
from hulk_placement.search.making import make_plan
from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.region_graph import Work
from hulk_placement.search.sizes import NUM_BUCKETS
from hulk_placement.solution import Unplaced
from hulk_placement.words import counted


def no_ring(problem: Problem) -> Unplaced:
    """Why no closed ring of known links joins enough machines."""
    pairs = unknown_pairs(problem)
    room = Counter[str]()
    for region, slots in zip(problem.region_of, problem.num_slots, strict=True):
        room[problem.regions[region]] += slots
    listed = ", ".join(f"{source} to {target}" for source, target in pairs[:4]) + (", ..." if len(pairs) > 4 else "")
    rooms = ", ".join(f"{region} {slots}" for region, slots in room.items())
    return Unplaced(
        "OnlyUnknownLinks",
        f"No ring of known links joins {problem.workload.min_workers} workers (room by region: {rooms}). Nothing is "
        f"known of {len(pairs)} of {len(room) * (len(room) - 1)} region links: {listed}.",
    )


def not_found(problem: Problem, iterations: int) -> Unplaced:
    """That no ring was found, though there may be one."""
    return Unplaced(
        "SearchExhausted",
        f"No ring of {problem.workload.min_workers} workers over {len(problem.regions)} regions was found in "
        f"{iterations} iterations; there may be one.",
    )


def stopped(work: Work, seconds: float) -> tuple[str, ...]:
    """Whether time ended the search, of which there were so many seconds, and the work done until then."""
    if work.stopped_at is None:
        return ()
    if work.waited_s is None:
        when = f"after {seconds:.3g} s, at iteration {work.stopped_at}"
        return (f"The search was stopped {when}: the best found until then.",)
    when = f"after {work.waited_s:.3g} s, at iteration {work.stopped_at}"
    return (f"The search ended {when}: to go on costs more waiting than it may save of the run.",)


def sentences(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """What decided the plan, what was left out, and what the plain order would have cost."""
    found = [*problem.workload.model.notes, workers(problem, plan), *against_equal_shares(problem, plan), _time(plan)]
    found += unused(problem, plan)
    found += [f"Not considered: {phrase}." for phrase in problem.left_out]
    found += _against_region_order(problem, plan)
    if not plan.prediction.calibrated:
        found.append(assumed(problem))
    return (*found, *none_better(plan))


def none_better(plan: Plan, objective: str = "time", when: str = "by this evaluator") -> tuple[str, ...]:
    """What is proven of a plan that may not be the best."""
    if not plan.prediction.calibrated:
        return (f"{NOT_PROVEN.capitalize()}.",)
    if not plan.optimality_gap:
        return ()
    others = "No plan of as many workers" if plan.gap_num_workers else "No plan"
    better = "faster" if objective == "time" else "cheaper"
    return (f"{others} can be more than {max(plan.optimality_gap, 0.001):.1%} {better} {when}.",)


def unproven(plan: Plan) -> tuple[str, ...]:
    """The reasons without what `none_better` says of the search that found the plan."""
    return tuple(said for said in plan.why if not said.startswith(("No plan", NOT_PROVEN.capitalize())))


def assumed(problem: Problem) -> str:
    """What is assumed where speeds are not measured."""
    if is_any_known(problem.workload, problem.topology):
        return (
            "Compute is partly an assumed figure: a machine whose speed is not measured is taken to be as fast as the "
            "median of its product, else of all machines."
        )
    return (
        "Compute is an assumed figure: no machine's speed is measured with this workload. All are taken to be equally "
        "fast, and a machine is left out only where its links would lengthen the step at any speed: whether fewer "
        "workers would be faster is not known before speeds are measured."
    )


def workers(problem: Problem, plan: Plan) -> str:
    """How many workers there are, of how many."""
    regions = dict.fromkeys(slot.region for slot in plan.workers)
    asked, there = problem.workload, counted(len(plan.workers), "worker")
    return (
        f"{there} in {counted(len(regions), 'region')} (asked for {asked.min_workers} to {asked.max_workers}, room for "
        f"{sum(problem.num_slots)}), {sequences_words(plan.shares)} a rank."
    )


def sequences_words(shares: Sequence[int]) -> str:
    """
    >>> sequences_words([2, 2]), sequences_words([1, 1]), sequences_words([1, 3])
    ('2 sequences', '1 sequence', '1 to 3 sequences')
    """
    few, many = min(shares), max(shares)
    return counted(few, "sequence") if few == many else f"{few} to {many} sequences"


def against_equal_shares(problem: Problem, plan: Plan) -> list[str]:
    """What the plan's workers would take with equal shares, where it has others."""
    speeds = [problem.speed[problem.names.index(machine)] for machine in plan.rank_machines]
    equal = replace(plan, shares=share_out(problem.workload.global_batch, speeds))
    if sorted(equal.shares) == sorted(plan.shares):
        return []
    equal_s = predict(equal, problem.workload, problem.topology).step_s
    ratio = equal_s / plan.prediction.step_s
    return [f"Shares go by speed: equal ones would take {equal_s:.3f} s a step on these workers ({ratio:.2f} x)."]


def compute_words(plan: Plan) -> str:
    """The seconds that a step computes, and whether they are of speeds that nobody measured."""
    assumed = "" if plan.prediction.calibrated else " (assumed: speeds are not measured yet)"
    return f"{plan.prediction.compute_s:.3f} s{assumed}"


def _time(plan: Plan) -> str:
    prediction = plan.prediction
    if prediction.bottleneck is None:
        return f"A step computes for {compute_words(plan)}; one rank has nobody to talk to."
    source, target = prediction.bottleneck
    if plan.inner_steps is not None:
        return round_words(plan, f"; {source} to {target} is the worst edge")
    buckets = counted(plan.num_buckets, "bucket")
    return (
        f"A step computes for {compute_words(plan)} and reduces gradients for "
        f"{prediction.communication_s:.3f} s in {buckets}; {source} to {target} is the worst edge."
    )


def round_words(plan: Plan, link: str) -> str:
    """What a step of replicas that train apart takes, and over which link their sums go."""
    prediction, computed = plan.prediction, compute_words(plan)
    if plan.delay_steps:
        return (
            f"A step computes for {computed}; in a round of {plan.inner_steps} steps "
            f"{counted(plan.fragments, 'fragment')} of the layers come together, each merged "
            f"{counted(plan.delay_steps, 'step')} later, for which a step waits {prediction.communication_s:.3f} s: "
            f"{prediction.utilisation:.1%} of it is not waited{link}."
        )
    outer_s = prediction.communication_s * (plan.inner_steps or 1)
    return (
        f"A step computes for {computed}; the replicas come together after every {plan.inner_steps} steps for "
        f"{outer_s:.3f} s, {prediction.communication_s:.3f} s a step{link}."
    )


def unused(problem: Problem, plan: Plan) -> list[str]:
    """Machines that were left out, if any."""
    used = {slot.machine for slot in plan.workers}
    unused = [name for name in problem.names if name not in used]
    if not unused:
        return []
    names = ", ".join(unused[:4]) + (", ..." if len(unused) > 4 else "")
    if len(plan.workers) == problem.max_workers:
        most = (
            f"{counted(problem.max_workers, 'worker')} {'is' if problem.max_workers == 1 else 'are'} the most possible"
        )
        return [f"Left out: {names} ({counted(len(unused), 'machine')}): {most}."]
    return [f"Left out: {names} ({counted(len(unused), 'machine')}): more workers would lengthen the step."]


def _against_region_order(problem: Problem, plan: Plan) -> list[str]:
    order = region_order(problem)
    if not links_known(problem, order):
        return []
    made = (make_plan(problem, order, buckets, inner_steps=plan.inner_steps) for buckets in NUM_BUCKETS)
    region_s = min(other.prediction.step_s for other in made)
    ratio = region_s / plan.prediction.step_s
    return [f"Region order with {counted(len(order), 'worker')} would take {region_s:.3f} s a step ({ratio:.2f} x)."]
