"""The single changes that are worth trying on a plan: to its links and machines, to its settings, to what a job asks.

Only what the plan can feel is named: links that it sends over, products that it computes on, settings that it could
have otherwise, wishes that the job really has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hulk_placement.advice import inputs
from hulk_placement.cost.predict import stage_groups
from hulk_placement.cost.traffic import traffic
from hulk_placement.layer_pins import as_spans
from hulk_placement.plan import Plan
from hulk_placement.topology import LinkKind, Pair, Topology
from hulk_placement.workload import Workload

MOST_LINKS = 6
"""Pairs of regions of a plan, the busiest of them, whose links are tried."""

MOST_REGIONS = 4
"""Regions that a job may not use, of which are tried: those with most accelerators."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change: what is different then, as a phrase after "with".

    `plan` is the same plan with it, None where only a new plan can use it. `asks_for_new`: the same plan would take as
    long as before, so that a search is worth its time.
    """

    words: str
    workload: Workload
    topology: Topology
    plan: Plan | None
    asks_for_new: bool = False


def changes(plan: Plan, workload: Workload, topology: Topology) -> Iterator[Change]:
    """Every change to try, hardware first."""
    yield from _links(plan, workload, topology)
    yield from _machines(plan, workload, topology)
    yield from _settings(plan, workload, topology)
    yield from _wishes(workload, topology)


def _links(plan: Plan, workload: Workload, topology: Topology) -> Iterator[Change]:
    """Links both ways between regions that the plan sends over, and uplinks."""
    used = traffic(plan, workload, topology, stage_groups(plan, workload)).total()

    def busy_s(pair: Pair) -> float:
        return used[pair] / topology.capacity(pair)

    known = {
        (topology.machine(a).region, topology.machine(b).region)
        for (a, b), link in topology.node_links.items()
        if link.kind is not LinkKind.UNKNOWN
    }
    between: dict[Pair, float] = {}
    for a, b in used:
        pair = (min(a, b), max(a, b))
        if (a, b) in known or topology.region_link(a, b).kind is not LinkKind.UNKNOWN:
            between[pair] = max(between.get(pair, 0.0), busy_s((a, b)))
    for a, b in sorted(between, key=lambda pair: (-between[pair], pair))[:MOST_LINKS]:
        pairs = frozenset([(a, b), (b, a)])
        where = f"inside {a}" if a == b else f"between {a} and {b}"
        faster = inputs.with_links(topology, pairs, bandwidth=2.0)
        flow = "" if topology.region_link(a, b).flow_bytes_per_s is None else " (of one flow too)"
        yield Change(f"twice the bandwidth {where}{flow}", workload, faster, plan)
        yield Change(f"half the latency {where}", workload, inputs.with_links(topology, pairs, rtt=0.5), plan)
    crossed = {region for pair in used if pair[0] != pair[1] for region in pair}
    for region in sorted(crossed & topology.uplinks.keys()):
        wider = inputs.with_uplink(topology, region, 2.0)
        yield Change(f"twice the uplink of {region}", workload, wider, plan)


def _machines(plan: Plan, workload: Workload, topology: Topology) -> Iterator[Change]:
    """Faster accelerators, faster links between them, more memory on them; by product."""
    products = dict.fromkeys(topology.machine(worker.machine).product for worker in plan.workers)
    for product in products:
        name = "the accelerators" if len(products) == 1 and product == "unknown" else product
        faster = inputs.with_speed(workload, topology, product, 2.0, plan.micro_batch)
        yield Change(f"{name} twice as fast", faster, topology, plan)
        if plan.layout.tensor > 1:
            inside = inputs.with_inside(topology, product, 2.0)
            yield Change(f"links between {name} inside a machine twice as fast", workload, inside, plan)
    for product in products:
        if all(m.memory_bytes for m in topology.machines if m.product == product):
            name = "every accelerator" if product == "unknown" else f"every {product}"
            yield Change(f"twice the memory on {name}", workload, inputs.with_memory(topology, product, 2), plan, True)


def _settings(plan: Plan, workload: Workload, topology: Topology) -> Iterator[Change]:
    """What the same machines could do otherwise."""

    def same(words: str, **settings: object) -> Change:
        return Change(words, workload, topology, replace(plan, **settings))  # type: ignore[arg-type]

    is_own_order = plan.schedule == "explicit"  # of so many micro-batches, and no others
    if plan.micro_batch * 2 <= max(plan.shares) and not is_own_order:
        yield same(f"micro-batches of {plan.micro_batch * 2}", micro_batch=plan.micro_batch * 2)
    if plan.micro_batch > 1 and not is_own_order:
        yield same(f"micro-batches of {plan.micro_batch // 2}", micro_batch=plan.micro_batch // 2)
    doubled = replace(workload, global_batch=workload.global_batch * 2)
    shares = tuple(share * 2 for share in plan.shares)
    if not is_own_order:
        words = f"a global batch of {doubled.global_batch} (trains differently)"
        yield Change(words, doubled, topology, replace(plan, shares=shares))
    if not plan.overlap:
        yield same("communication that overlaps with computation", overlap=True)
    again = "activations kept instead of computed again", "activations computed again instead of kept"
    yield same(again[not plan.recompute], recompute=not plan.recompute)
    if plan.layout.pipeline > 1 and not is_own_order:
        other = {"1f1b": "gpipe", "gpipe": "1f1b"}[plan.schedule]
        yield same(f"the {other} schedule", schedule=other)
    yield from _transports(plan, workload, topology)


def _transports(plan: Plan, workload: Workload, topology: Topology) -> Iterator[Change]:
    """Other ways to sum gradients, as far as the job leaves the choice; Hulk's own needs a plan of flows."""
    if plan.layout.data == 1 or plan.inner_steps is not None:
        return
    if plan.collective is None:
        other = 1 if plan.num_buckets > 1 else 2
        words = "gradients in one bucket" if other == 1 else "gradients in two buckets"
        yield Change(words, workload, topology, replace(plan, num_buckets=other))
    if workload.sync.mode == "auto":
        for algorithm, words in (
            ("ring", "gloo's ring"),
            ("hierarchical", "gloo in two levels, inside regions and between them"),
            ("nccl", "NCCL over sockets"),
        ):
            if plan.algorithm != algorithm:
                changed = replace(plan, algorithm=algorithm, collective=None)
                yield Change(f"{words} as transport", workload, topology, changed)


def _wishes(workload: Workload, topology: Topology) -> Iterator[Change]:
    """What the job forbids or fixes, lifted one by one; only a new plan can use it."""

    def lifted(words: str, **wishes: object) -> Change:
        return Change(words, replace(workload, **wishes), topology, None, True)  # type: ignore[arg-type]

    if workload.max_price_per_hour is not None:
        yield lifted(f"no limit of {workload.max_price_per_hour:g} an hour", max_price_per_hour=None)
    for number, pin in enumerate(workload.layer_pins):
        others = workload.layer_pins[:number] + workload.layer_pins[number + 1 :]
        where = ", ".join(pin.regions + pin.machines)
        yield lifted(f"layers {as_spans(pin.layers)} not pinned to {where}", layer_pins=others)
    if workload.pins:
        yield lifted("workers not pinned to machines", pins=())
    if workload.recompute is False:
        yield lifted("recomputation allowed", recompute=None)
    if workload.micro_batch is not None:
        yield lifted("the micro-batch left to the planner", micro_batch=None)
    degrees = [name for name in ("data", "pipeline", "tensor") if getattr(workload, name) is not None]
    if degrees:
        yield lifted("the layout left to the planner", data=None, pipeline=None, tensor=None)
    if workload.sync.mode != "auto" and workload.sync.on_region_loss == "restart":
        yield lifted("the transport left to the planner", sync=replace(workload.sync, mode="auto"))
    for region in _closed(workload, topology)[:MOST_REGIONS]:
        opened = inputs.with_region(workload, topology, region)
        yield Change(f"region {region} allowed", opened, topology, None, True)


def _closed(workload: Workload, topology: Topology) -> list[str]:
    """Regions of which the job may use no machine, those with most accelerators first; by prices, of machines with one.

    A machine without a price is not forbidden where a wish is about money: no plan can go by what it costs.
    """
    size: dict[str, int] = {}
    for machine in topology.machines:
        if machine.price_per_hour or not workload.goes_by_prices:
            size[machine.region] = size.get(machine.region, 0) + machine.num_accelerators
    usable = {
        machine.region
        for machine in topology.machines
        if machine.name in workload.candidates and (not workload.regions or machine.region in workload.regions)
    }
    return sorted((region for region in size if region not in usable), key=lambda region: (-size[region], region))
