"""Where a job's workers may be: regions that are allowed and not denied, what layers are bound to, nodes with a price.

Two wishes that exclude each other are both named. Without pipeline stages every worker holds all layers of the model,
so a pin binds all workers; pins that leave no node for all layers together need stages, which is said. With stages the
planner has the pins, and only what it cannot know is refused here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from hulk_placement.cost.money import least_per_hour
from hulk_placement.layer_pins import LayerPin, as_spans, layers_in, layers_matching
from hulk_placement.model import Model
from hulk_placement.topology import Machine

from hulk_operator import api
from hulk_operator.api import HulkJob


class UnusableJobError(ValueError):
    """A job that cannot be planned as it is: a PascalCase reason and a sentence for its condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Nodes:
    """What wishes about places are held against: the region of every node, and its price where its product has one.

    `prices`: of one accelerator for an hour. `products`: of the nodes that have none, to be named.
    """

    regions: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    products: Mapping[str, str] = field(default_factory=dict)


def allowed_regions(job: HulkJob, residency: tuple[str, ...] | None, nodes: Nodes) -> tuple[str, ...]:
    """Regions that the job asks for, residency rules allow, and the job does not deny; empty means any."""
    asked, denied = job.spec.placement.regions, job.spec.placement.denied_regions
    allowed = _resident(job, residency)
    if not denied:
        return allowed
    left = tuple(region for region in allowed or sorted(set(nodes.regions.values())) if region not in denied)
    if left or not (allowed or nodes.regions):
        return left
    others = f"placement.regions ({', '.join(asked)})" if asked else f"residency ({', '.join(allowed)})"
    raise _contradiction(
        f"placement.deniedRegions ({', '.join(denied)}) excludes all of {others if allowed else 'the cluster'}"
    )


def allowed_nodes(
    job: HulkJob,
    pins: Sequence[LayerPin],
    candidates: Mapping[str, int],
    regions: tuple[str, ...],
    nodes: Nodes,
    has_stages: bool = False,
) -> Mapping[str, int]:
    """The candidates that pins and prices leave. UnusableJobError where two wishes exclude each other."""
    _require_places(job, regions, nodes)
    if pins:
        _require_nodes(pins, nodes)
    if pins and not has_stages:
        _require_common_node(pins, nodes)
        candidates = {
            name: num for name, num in candidates.items() if all(pin.allows(_machine(name, nodes)) for pin in pins)
        }
    if not has_stages:
        _require_named_nodes(job, pins, regions, nodes)
    return _affordable(job, candidates, nodes)


def are_apart(pins: Sequence[LayerPin], nodes: Nodes) -> bool:
    """Whether no node may have all pinned layers, and yet each layer has one."""
    there = [_machine(name, nodes) for name in nodes.regions] if pins else []
    if not there or any(all(pin.allows(machine) for pin in pins) for machine in there):
        return False
    layers = {layer for pin in pins for layer in pin.layers}
    return all(any(all(p.allows(m) for p in pins if layer in p.layers) for m in there) for layer in layers)


def layer_pins(job: HulkJob, model: Model) -> tuple[LayerPin, ...]:
    """The pins with their layers' numbers. UnusableJobError where one means no layer."""
    return tuple(_pin(pin, _name(number), model) for number, pin in enumerate(job.spec.placement.pins))


def _pin(pin: api.LayerPin, name: str, model: Model) -> LayerPin:
    try:
        if pin.layers is not None:
            layers = layers_in(pin.layers, model.num_layers)
        else:
            layers = layers_matching(pin.parameters or "", [layer.name for layer in model.layers])
    except ValueError as error:
        raise UnusableJobError("InvalidPins", f"{name}: {error}.") from error
    return LayerPin(layers, pin.regions, pin.nodes)


def _resident(job: HulkJob, residency: tuple[str, ...] | None) -> tuple[str, ...]:
    asked = job.spec.placement.regions
    if residency is None or not asked:
        return asked if residency is None else residency
    both = tuple(region for region in asked if region in residency)
    if not both:
        raise UnusableJobError(
            "ResidencyForbids",
            f"The job asks for regions {', '.join(asked)}; jobs of namespace {job.metadata.namespace} may run only in "
            f"{', '.join(residency)}.",
        )
    return both


def _require_places(job: HulkJob, regions: tuple[str, ...], nodes: Nodes) -> None:
    """No pin names a region, or a node in one, that is not allowed."""
    for number, pin in enumerate(job.spec.placement.pins):
        for region in pin.regions:
            if regions and region not in regions:
                raise _contradiction(f"{_name(number)}.regions names {region}, which {_excluder(job, region)} excludes")
        for node in pin.nodes:
            region = nodes.regions.get(node, "")
            if regions and region and region not in regions:
                raise _contradiction(
                    f"{_name(number)}.nodes names {node} in {region}, which {_excluder(job, region)} excludes"
                )


def _excluder(job: HulkJob, region: str) -> str:
    placement = job.spec.placement
    if region in placement.denied_regions:
        return "placement.deniedRegions"
    return "placement.regions" if placement.regions and region not in placement.regions else "residency"


def _require_nodes(pins: Sequence[LayerPin], nodes: Nodes) -> None:
    """Every pin has a node, and every two that bind a layer share one."""
    there = [_machine(name, nodes) for name in nodes.regions]
    for number, pin in enumerate(pins):
        if there and not any(map(pin.allows, there)):
            raise UnusableJobError("NoCandidates", f"No node is where {_words(number, pin)} allows.")
    for (a, first), (b, second) in combinations(enumerate(pins), 2):
        both = sorted(set(first.layers) & set(second.layers))
        if there and both and not any(first.allows(machine) and second.allows(machine) for machine in there):
            raise _contradiction(f"{_words(a, first)} and {_words(b, second)} both bind layer {both[0]}")


def _require_common_node(pins: Sequence[LayerPin], nodes: Nodes) -> None:
    """Every two pins share a node, and all of them together."""
    there = [_machine(name, nodes) for name in nodes.regions]
    for (a, first), (b, second) in combinations(enumerate(pins), 2):
        if there and not any(first.allows(machine) and second.allows(machine) for machine in there):
            raise _needs_stages(f"{_words(a, first)} and {_words(b, second)} have no node in common")
    if there and not any(all(pin.allows(machine) for pin in pins) for machine in there):
        named = ", ".join(_words(number, pin) for number, pin in enumerate(pins))
        raise _needs_stages(f"{named} have no node in common")


def _require_named_nodes(job: HulkJob, pins: Sequence[LayerPin], regions: tuple[str, ...], nodes: Nodes) -> None:
    """No worker's node is where pins or regions do not allow it."""
    for name in dict.fromkeys(job.spec.placement.worker_nodes):
        region = nodes.regions.get(name)
        if region is None:
            continue
        if regions and region not in regions:
            raise _contradiction(
                f"placement.workerNodes names {name} in {region}, which {_excluder(job, region)} excludes"
            )
        for number, pin in enumerate(pins):
            if not pin.allows(_machine(name, nodes)):
                raise _contradiction(f"placement.workerNodes names {name}, which {_words(number, pin)} excludes")


def _affordable(job: HulkJob, candidates: Mapping[str, int], nodes: Nodes) -> Mapping[str, int]:
    """The candidates with a price, where the job's wishes are about money."""
    placement, workers = job.spec.placement, job.spec.workers
    if placement.objective == "time" and placement.max_price_per_hour is None:
        return candidates
    priced = {name: num for name, num in candidates.items() if nodes.prices.get(name, 0.0) > 0}
    wish = "maxPricePerHour" if placement.max_price_per_hour is not None else f"objective {placement.objective}"
    if not priced and candidates:
        unpriced = ", ".join(sorted({nodes.products.get(name, "unknown") for name in candidates}))
        raise UnusableJobError(
            "NoPrices", f"placement.{wish} goes by prices, and the HulkTopology has none for {unpriced}."
        )
    if placement.max_price_per_hour is not None and priced:
        limit, fewest = float(placement.max_price_per_hour), workers.min * workers.accelerators_per_worker
        least = least_per_hour(((nodes.prices[name], num) for name, num in priced.items()), fewest)
        if least > limit:
            raise _contradiction(
                f"placement.maxPricePerHour {limit:g} and workers.min {workers.min} exclude each other: {fewest} "
                f"accelerators cost {least:g} an hour at least"
            )
    return priced


def _machine(name: str, nodes: Nodes) -> Machine:
    return Machine(name, nodes.regions.get(name, ""))


def _name(number: int) -> str:
    return f"placement.pins[{number}]"


def _words(number: int, pin: LayerPin) -> str:
    """A pin as it is named in a sentence."""
    places = ", ".join(_listed(pin))
    return f"{_name(number)} (layers {as_spans(pin.layers)} in {places})"


def _listed(pin: LayerPin) -> Iterator[str]:
    places = (*pin.regions, *pin.machines)
    yield from places[:4]
    if len(places) > 4:
        yield "..."


def _contradiction(sentence: str) -> UnusableJobError:
    return UnusableJobError("ContradictoryPlacement", f"{sentence}.")


def _needs_stages(sentence: str) -> UnusableJobError:
    return UnusableJobError(
        "UnsupportedLayout",
        f"{sentence}: layers in different places need pipeline stages (parallelism.pipeline), without which every "
        "worker holds all layers.",
    )
