"""Dynamic resource allocation: what ResourceSlices offer, which DeviceClass means which device, what claims ask for.

A class is counted like a device plugin's resource: by its `extendedResourceName`, or where it has none by the name that
Kubernetes gives every class, deviceclass.resource.kubernetes.io/CLASS. Devices that belong to no node, that are
tainted, or that share counters with others are left out: fewer are counted than there may be.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from hulk_operator.cluster import Object
from hulk_operator.inputs.pod_size import Amounts
from hulk_operator.inputs.quantity import parse

log = logging.getLogger(__name__)

CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""On claims that kube-scheduler makes for a pod that asks by a resource name: the pod's requests count already."""

_PRODUCT: Final = ("productName", "model", "product")
_MEMORY: Final = ("memory", "vram")
_KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})
_DOMAIN: Final = re.compile(r"""(?:attributes|capacity)\[["']([^"']+)["']\]""")
_CACHE_SIZE: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """`selectors`: CEL, all of which a device must meet."""

    name: str
    resource: str
    selectors: tuple[str, ...]


@dataclass(frozen=True)
class Device:
    """One device; attributes and capacities by domain, then by name."""

    driver: str
    name: str
    attributes: Mapping[str, Mapping[str, Any]]
    capacity: Mapping[str, Mapping[str, str]]

    @cached_property
    def product(self) -> str:
        """What its driver calls it; empty where it does not say."""
        found = (values[name] for values in self.attributes.values() for name in _PRODUCT if name in values)
        return str(next(found, ""))

    @cached_property
    def memory_bytes(self) -> int:
        """0 where it does not say."""
        found = (values[name] for values in self.capacity.values() for name in _MEMORY if name in values)
        return int(parse(next(found, "0")))


@dataclass(frozen=True, slots=True)
class Slice:
    """Devices of one pool of a node; those of an older generation are not there any more."""

    node: str
    driver: str
    pool: str
    generation: int
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """Devices of one class that a node has."""

    count: int
    product: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class ClassifiedSlice:
    """A slice as classes judge it. `pool`: driver and name; `resources`: of each device's name, what it counts as."""

    node: str
    pool: tuple[str, str]
    generation: int
    resources: Mapping[str, tuple[str, ...]]
    offers: Mapping[str, Offer]


DeviceId = tuple[str, str, str]
"""Driver, pool and name."""


def device_class(item: Object) -> DeviceClass:
    """A DeviceClass."""
    name, spec = item["metadata"]["name"], item.get("spec") or {}
    selectors = tuple(one["cel"]["expression"] for one in spec.get("selectors") or () if one.get("cel"))
    return DeviceClass(name, spec.get("extendedResourceName") or f"{CLASS_PREFIX}{name}", selectors)


def resource_slice(item: Object) -> Slice:
    """A ResourceSlice; without devices where they belong to no single node."""
    spec, pool = item["spec"], item["spec"]["pool"]
    devices = spec.get("devices") or () if spec.get("nodeName") else ()
    found = tuple(_device(spec["driver"], one) for one in devices if _is_free_standing(one))
    return Slice(spec.get("nodeName") or "", spec["driver"], pool["name"], int(pool.get("generation") or 0), found)


def allocated(item: Object) -> tuple[DeviceId, ...]:
    """Each device that a ResourceClaim holds; none where its pod's requests count them."""
    if (item["metadata"].get("annotations") or {}).get(EXTENDED_CLAIM) == "true":
        return ()
    results = (((item.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results") or ()
    return tuple((one["driver"], one["pool"], one["device"]) for one in results if not one.get("adminAccess"))


def asked(item: Object) -> Mapping[str, int]:
    """How many devices of which class a ResourceClaimTemplate asks for; of alternatives the first counts."""
    found: Amounts = {}
    for request in item["spec"]["spec"].get("devices", {}).get("requests") or ():
        one: Object = request.get("exactly") or next(iter(request.get("firstAvailable") or ()), {})
        if one.get("allocationMode", "ExactCount") == "ExactCount" and not one.get("adminAccess"):
            found[one["deviceClassName"]] = found.get(one["deviceClassName"], 0) + int(one.get("count") or 1)
    return found


def with_claims(spec: Object, namespace: str, asked: Mapping[str, Amounts]) -> Object:
    """A pod's spec whose first container requests what the pod's own claims (`asked`, by template) will take.

    A claim that exists by itself is shared by pods, and is left out.
    """
    templates = (one.get("resourceClaimTemplateName") for one in spec.get("resourceClaims") or ())
    found: Amounts = {}
    for name in filter(None, templates):
        for resource, count in asked.get(f"{namespace}/{name}", {}).items():
            found[resource] = found.get(resource, 0) + count
    if not found:
        return spec
    first, *others = spec["containers"]
    resources = first.get("resources") or {}
    requests = {**(resources.get("requests") or {}), **{key: str(count) for key, count in found.items()}}
    return {**spec, "containers": [{**first, "resources": {**resources, "requests": requests}}, *others]}


def classified(classes: Iterable[DeviceClass], one: Slice) -> ClassifiedSlice:
    """A slice, with each device judged by every class: that takes 20 microseconds for each of them."""
    known = tuple(classes)
    resources = {device.name: tuple(kind.resource for kind in known if is_of(kind, device)) for device in one.devices}
    offered: dict[str, Offer] = {}
    for device in one.devices:
        for resource in resources[device.name]:
            offered[resource] = _more(offered.get(resource), Offer(1, device.product, device.memory_bytes))
    return ClassifiedSlice(one.node, (one.driver, one.pool), one.generation, resources, offered)


def offers(slices: Iterable[ClassifiedSlice]) -> dict[str, dict[str, Offer]]:
    """What each node offers, by resource; the product of a class's first device stands for all."""
    found: dict[str, dict[str, Offer]] = {}
    for one in slices:
        for resource, offer in one.offers.items():
            of_node = found.setdefault(one.node, {})
            of_node[resource] = _more(of_node.get(resource), offer)
    return found


def current(slices: Iterable[ClassifiedSlice]) -> list[ClassifiedSlice]:
    """Those of each pool's newest generation."""
    every = list(slices)
    newest: dict[tuple[str, str], int] = {}
    for one in every:
        newest[one.pool] = max(newest.get(one.pool, 0), one.generation)
    return [one for one in every if one.generation == newest[one.pool]]


def taken(slices: Iterable[ClassifiedSlice], held: Iterable[DeviceId]) -> dict[str, Amounts]:
    """What devices that are held take, by node, then by resource."""
    of_pool: dict[tuple[str, str], set[str]] = {}
    for driver, pool, name in held:
        of_pool.setdefault((driver, pool), set()).add(name)
    found: dict[str, Amounts] = {}
    for one in slices:
        for name in of_pool.get(one.pool, set()) & one.resources.keys():
            for resource in one.resources[name]:
                of_node = found.setdefault(one.node, {})
                of_node[resource] = of_node.get(resource, 0) + 1
    return found


def _more(known: Offer | None, more: Offer) -> Offer:
    return Offer(known.count + more.count, known.product, known.memory_bytes) if known else more


def is_of(kind: DeviceClass, device: Device) -> bool:
    """Whether a device meets all of a class's selectors; one that cannot be judged does not, as for kube-scheduler."""
    return all(_meets(selector, _seen(selector, device)) for selector in kind.selectors)


def _device(driver: str, item: Object) -> Device:
    attributes: dict[str, dict[str, Any]] = {}
    for name, value in (item.get("attributes") or {}).items():
        domain, _, short = name.rpartition("/")
        attributes.setdefault(domain or driver, {})[short] = next(iter(value.values()), "")
    capacity: dict[str, dict[str, str]] = {}
    for name, value in (item.get("capacity") or {}).items():
        domain, _, short = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[short] = str(value["value"])
    return Device(driver, item["name"], attributes, capacity)


def _is_free_standing(item: Object) -> bool:
    tainted = any(taint.get("effect") in _KEEPS_OUT for taint in item.get("taints") or ())
    return not (tainted or item.get("consumesCounters") or item.get("allowMultipleAllocations"))


Seen = tuple[str, tuple[tuple[str, str, str, Any], ...]]


def _seen(selector: str, device: Device) -> Seen:
    """What of a device a selector may look at: thousands of devices differ in their serial numbers alone."""
    kinds = (("attributes", device.attributes), ("capacity", device.capacity))
    rows = (
        (kind, domain, name, value)
        for kind, domains in kinds
        for domain, values in domains.items()
        for name, value in values.items()
        if name in selector
    )
    return device.driver, tuple(rows)


@lru_cache(maxsize=_CACHE_SIZE)
def _meets(selector: str, seen: Seen) -> bool:
    import cel

    driver, rows = seen
    found: dict[str, Any] = {"driver": driver, "attributes": {}, "capacity": {}, "allowMultipleAllocations": False}
    for kind in ("attributes", "capacity"):  # an unknown domain has nothing in it
        found[kind] = {domain: {} for domain in _DOMAIN.findall(selector)}
    for kind, domain, name, value in rows:
        found[kind].setdefault(domain, {})[name] = float(parse(value)) if kind == "capacity" else value
    context = cel.Context()
    context.add_variable("device", found)
    for name, function in _FUNCTIONS.items():
        context.add_function(name, function)
    try:
        return cel.evaluate(selector, context) is True
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        log.warning("the selector %r does not judge a device of %s: %r", selector, driver, error)
        return False


def _number(value: Any) -> Any:
    """A quantity, or the parts of a version, as something that has an order."""
    if not isinstance(value, str):
        return value
    return tuple(int(part) for part in re.findall(r"\d+", value.partition("-")[0])[:3])


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "quantity": lambda text: float(parse(text)),
    "semver": lambda text: text,
    "compareTo": lambda one, other: (_number(one) > _number(other)) - (_number(one) < _number(other)),
    "isGreaterThan": lambda one, other: _number(one) > _number(other),
    "isLessThan": lambda one, other: _number(one) < _number(other),
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
}
