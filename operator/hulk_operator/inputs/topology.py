"""Nodes, pods and claims -> what is free (`Room`); room, links and declarations -> the planner's `Topology`.

Everything that holds a node's resources counts (`Claim`): Hulk's pods and foreign ones, terminating ones until they are
gone, and the workers of committed plans whose pods are not there yet.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hulk_placement.topology import Link, LinkKind, Machine, Pair, Topology
from hulk_placement.words import counted

from hulk_operator import names
from hulk_operator.api import HulkTopologySpec
from hulk_operator.cluster import Object
from hulk_operator.inputs.admission import admits
from hulk_operator.inputs.node import accelerator_memory_bytes, labels, product, region
from hulk_operator.inputs.pod_size import Amounts, requests
from hulk_operator.inputs.quantity import CPU, amount_words, amounts

_UNLIMITED: Final = 1 << 30
# The planner's work grows with the accelerators that there are; the largest job has a quarter of these.
MAX_DECLARED_ACCELERATORS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Claim:
    """What a pod takes of a node, or several together, or a worker that has no pod yet."""

    node: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Room:
    """Every node, and what is free on it; less than nothing where it is overcommitted.

    `asked`: what a pod's claim of each template takes, by `namespace/name` of the template.
    """

    nodes: Mapping[str, Object]
    free: Mapping[str, Amounts]
    asked: Mapping[str, Amounts] = field(default_factory=dict)


def room(nodes: Mapping[str, Object], claims: Iterable[Claim], asked: Mapping[str, Amounts] | None = None) -> Room:
    """What allocatable leaves after every claim."""
    free = {name: amounts((node.get("status") or {}).get("allocatable") or {}) for name, node in nodes.items()}
    for claim in claims:
        if claim.node in free:
            _take(free[claim.node], claim.amounts)
    return Room(nodes, free, asked or {})


def given_back(left: Room, kept: Mapping[str, int], own: Amounts) -> Room:
    """The room for one job whose own pods, so many on each node (`kept`), hold `own` each."""
    free = {name: dict(values) for name, values in left.free.items()}
    for node, count in kept.items():
        _take(free[node], {resource: -count * value for resource, value in own.items()})
    return Room(left.nodes, free, left.asked)


def without(left: Room, claims: Iterable[Claim]) -> Room | None:
    """The room after the claims; None when it does not hold them."""
    free = {name: dict(values) for name, values in left.free.items()}
    for claim in claims:
        if claim.node not in free:
            return None
        _take(free[claim.node], claim.amounts)
        if any(free[claim.node].get(resource, 0) < 0 for resource, value in claim.amounts.items() if value > 0):
            return None  # a pod that asks for nothing of an overcommitted resource is still admitted
    return Room(left.nodes, free, left.asked)


def shortage(left: Room, claims: Iterable[Claim]) -> str:
    """In which resource of which node the claims do not fit, with the numbers; empty where they fit.

    >>> shortage(Room({"a": {}}, {"a": {"cpu": 500}}), [Claim("a", {"cpu": 400})] * 2)
    'node a has 500 of cpu (thousandths) free, 800 are needed'
    """
    needs: dict[str, Amounts] = {}
    for claim in claims:
        _take(needs.setdefault(claim.node, {}), {resource: -value for resource, value in claim.amounts.items()})
    for node, need in sorted(needs.items()):
        if node not in left.free:
            return f"node {node} is gone"
        for resource, value in sorted(need.items()):
            free = left.free[node].get(resource, 0)
            if 0 < value > free:
                unit = " (thousandths)" if resource == CPU else ""
                return f"node {node} has {free} of {resource}{unit} free, {value} are needed"
    return ""


def candidates(
    left: Room, spec: Object, resource: str, avoided: Iterable[str] = (), num_accelerators: int = 1
) -> dict[str, int]:
    """How many pods of a spec each admitting node holds by everything but the worker's own accelerators.

    Those (`num_accelerators` of `resource`) the planner counts; where other containers hold some as well they are
    counted here, together. Nodes that never advertise the resource are left out.
    """
    whole = worker_amounts(spec, resource, num_accelerators)
    shared = whole[resource] > num_accelerators
    need = {key: value for key, value in whole.items() if value > 0 and (key != resource or shared)}
    shunned = frozenset(avoided)
    found = {}
    for name, node in left.nodes.items():
        offers = (node.get("status") or {}).get("allocatable") or {}
        if name in shunned or resource not in offers or not admits(node, spec):
            continue
        free = left.free[name]
        found[name] = max(0, min((free.get(key, 0) // value for key, value in need.items()), default=_UNLIMITED))
    return found


def never_enough(left: Room, asked: Amounts, resource: str) -> str | None:
    """The sentence on what no node that offers `resource` has as much of as one pod asks for; None where there is none.

    >>> node = {"status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "4", "memory": "24Gi"}}}
    >>> never_enough(Room({"a": node}, {}), {"nvidia.com/gpu": 16, "cpu": 4000, "memory": 500 << 30}, "nvidia.com/gpu")
    'A worker asks for 500 GiB of memory (spec.template); the largest of 1 node with nvidia.com/gpu, a, has 24 GiB.'
    """
    offers = {name: amounts((node.get("status") or {}).get("allocatable") or {}) for name, node in left.nodes.items()}
    offering = {name: offer for name, offer in offers.items() if resource in offer}
    for kind, value in asked.items():
        if not offering or kind == resource or value <= 0:
            continue
        largest = max(offering, key=lambda name: offering[name].get(kind, 0))
        if (most := offering[largest].get(kind, 0)) < value:
            return (
                f"A worker asks for {amount_words(kind, value)} of {kind} (spec.template); the largest of "
                f"{counted(len(offering), 'node')} with {resource}, {largest}, has {amount_words(kind, most)}."
            )
    return None


def unheld(left: Room, resource: str) -> dict[str, int]:
    """How many accelerators nobody holds, of every node that offers the resource."""
    return {
        name: max(0, left.free[name].get(resource, 0))
        for name, node in left.nodes.items()
        if resource in ((node.get("status") or {}).get("allocatable") or {})
    }


def products(left: Room, resource: str) -> dict[str, str]:
    """The product that the resource stands for, of every node."""
    return {name: product(node, resource) for name, node in left.nodes.items()}


def topology(
    left: Room,
    resource: str,
    measured: Mapping[Pair, Link],
    declared: HulkTopologySpec | None = None,
    keeping: Collection[str] = (),
) -> Topology:
    """The planner's topology over the nodes that offer `resource`, in the order of their names.

    `keeping`: nodes whose TCP keeps the windows of silent connections.

    A declared link counts only where nothing was measured: between two regions, or between two nodes. What a job saw
    of its own links is worth least: it counts between regions (or inside one) of which nothing else is known.
    """
    spec = declared or HulkTopologySpec()
    prices = declared_prices(spec)
    machines = tuple(
        _machine(left.nodes[name], name, resource, num, prices, keeps_windows=name in keeping)
        for name, num in sorted(unheld(left, resource).items())
    )
    said_nodes, said_regions = declared_links(spec, machines)
    region_of = {machine.name: machine.region for machine in machines}
    seen = {pair: link for pair, link in measured.items() if region_of.keys() >= set(pair)}
    idle = {pair: link for pair, link in seen.items() if link.kind is LinkKind.MEASURED}
    seen_regions = {(region_of[source], region_of[target]) for source, target in idle}
    region_links = {pair: link for pair, link in said_regions.items() if pair not in seen_regions}
    known = seen_regions | region_links.keys()
    loaded = {pair: link for pair, link in seen.items() if (region_of[pair[0]], region_of[pair[1]]) not in known}
    return Topology(
        machines, {**loaded, **said_nodes, **idle}, region_links, declared_uplinks(spec), declared_egress(spec)
    )


def declared_links(spec: HulkTopologySpec, machines: Collection[Machine]) -> tuple[dict[Pair, Link], dict[Pair, Link]]:
    """Links between nodes, and links between regions. A name that is both means the region."""
    names_of_nodes, regions = {machine.name for machine in machines}, {machine.region for machine in machines}
    node_links: dict[Pair, Link] = {}
    region_links: dict[Pair, Link] = {}
    for entry in spec.links:
        pair = (entry.source, entry.target)
        of_nodes = names_of_nodes.issuperset(pair) and not regions.issuperset(pair)
        link = Link(entry.rtt_microseconds / 1e6, float(entry.bandwidth_bytes_per_second), kind=LinkKind.DECLARED)
        (node_links if of_nodes else region_links)[pair] = link
    return node_links, region_links


def undeclared(spec: HulkTopologySpec) -> list[str]:
    """What a topology that declares its nodes says of places that it does not declare: a mistake a line, by its field.

    Without nodes of its own a topology goes with a cluster, whose nodes come and go: then nothing is a mistake.
    """
    if not spec.nodes:
        return []
    nodes, regions = {node.name for node in spec.nodes}, {node.region for node in spec.nodes}
    mistakes = [*_undeclared_links(spec, nodes, regions), *_undeclared_regions(spec, regions)]
    accelerators = sum(node.accelerators for node in spec.nodes)
    if accelerators > MAX_DECLARED_ACCELERATORS:
        mistakes.append(f"spec.nodes: {accelerators} accelerators together, at most {MAX_DECLARED_ACCELERATORS}")
    return mistakes


def _undeclared_links(spec: HulkTopologySpec, nodes: Collection[str], regions: Collection[str]) -> Iterator[str]:
    for number, link in enumerate(spec.links):
        pair, where = {link.source, link.target}, f"spec.links[{number}]"
        unknown = sorted(pair.difference(nodes, regions))
        if unknown:
            yield f"{where}: neither a node nor a region of spec.nodes: {', '.join(unknown)}"
        elif not pair.issubset(nodes) and not pair.issubset(regions):
            yield f"{where}: {link.source} -> {link.target} joins a node and a region; join two of a kind"


def _undeclared_regions(spec: HulkTopologySpec, regions: Collection[str]) -> Iterator[str]:
    for number, uplink in enumerate(spec.uplinks):
        if uplink.region not in regions:
            yield f"spec.uplinks[{number}].region: {uplink.region} is no region of spec.nodes"
    for number, egress in enumerate(spec.egress):
        unknown = sorted({egress.source, egress.target}.difference(regions))
        if unknown:
            yield f"spec.egress[{number}]: no region of spec.nodes: {', '.join(unknown)}"


def declared_uplinks(spec: HulkTopologySpec) -> dict[str, float]:
    """Capacity of each region's uplink, bytes/s."""
    return {uplink.region: float(uplink.bytes_per_second) for uplink in spec.uplinks}


def declared_prices(spec: HulkTopologySpec) -> dict[str, float]:
    """What one accelerator costs an hour, by product."""
    return {price.product: float(price.per_hour) for price in spec.prices}


def declared_egress(spec: HulkTopologySpec) -> dict[Pair, float]:
    """What 10^9 bytes between two regions cost."""
    return {(egress.source, egress.target): float(egress.per_gb) for egress in spec.egress}


def allowed_regions(declared: HulkTopologySpec | None, namespace: str) -> tuple[str, ...] | None:
    """The regions that residency rules allow the jobs of a namespace; None without a rule."""
    rules = {rule.namespace: rule.regions for rule in (declared.residency if declared else ())}
    return rules.get(namespace)


def worker_amounts(spec: Object, resource: str, num_accelerators: int) -> Amounts:
    """What one worker's pod will take, from the user's pod template, whose first container gets the accelerators."""
    worker, *others = spec["containers"]
    own = worker.get("resources") or {}
    given = {"limits": own.get("limits") or {}, "requests": {**(own.get("requests") or {}), resource: num_accelerators}}
    taken = requests({**spec, "containers": [{**worker, "resources": given}, *others]})
    return {**taken, resource: max(taken[resource], num_accelerators)}


def _machine(
    node: Object, name: str, resource: str, num_accelerators: int, prices: Mapping[str, float], keeps_windows: bool
) -> Machine:
    return Machine(
        name=name,
        region=region(node),
        zone=labels(node).get(names.NODE_ZONE, ""),
        num_accelerators=num_accelerators,
        product=product(node, resource),
        memory_bytes=accelerator_memory_bytes(node, resource),
        price_per_hour=prices.get(product(node, resource), 0.0),
        keeps_windows=keeps_windows,
    )


def _take(free: Amounts, taken: Mapping[str, int]) -> None:
    for resource, value in taken.items():
        free[resource] = free.get(resource, 0) - value
