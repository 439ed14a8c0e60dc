"""Devices as dynamic resource allocation tells of them, followed where a cluster has them."""

from collections.abc import Callable, Mapping

from hulk_operator.cluster import Newest, Object
from hulk_operator.inputs.devices import (
    CLASS_PREFIX,
    DeviceClass,
    Offer,
    Slice,
    allocated,
    asked,
    current,
    device_class,
    is_of,
    offers,
    resource_slice,
)
from hulk_operator.inputs.pod_size import Amounts
from hulk_operator.watched.nodes import Node

Held = tuple[tuple[str, str, str], ...]


class Devices:
    """Classes, slices, claims and claim templates; `changed` is told when there are more or fewer devices."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.classes: Newest[DeviceClass] = Newest(device_class, self._told)
        self.slices: Newest[Slice] = Newest(resource_slice, self._told)
        self.claims: Newest[Held] = Newest(allocated, self._told_claim)
        self.templates: Newest[Mapping[str, int]] = Newest(asked, lambda *_: self._changed())
        self._offers: dict[str, dict[str, Offer]] | None = None

    def offers(self) -> Mapping[str, Mapping[str, Offer]]:
        """By node, then by resource."""
        if self._offers is None:
            self._offers = offers(self.classes.values(), self.slices.values())
        return self._offers

    def taken(self) -> dict[str, Amounts]:
        """What claims hold, by node, then by resource."""
        held = {device for claim in self.claims.values() for device in claim}
        found: dict[str, Amounts] = {}
        if not held:
            return found
        for one in current(self.slices.values()):
            for device in one.devices:
                if (one.driver, one.pool, device.name) in held:
                    for kind in self.classes.values():
                        if is_of(kind, device):
                            of_node = found.setdefault(one.node, {})
                            of_node[kind.resource] = of_node.get(kind.resource, 0) + 1
        return found

    def asked(self) -> dict[str, Amounts]:
        """What a claim of each template takes, by `namespace/name`, then by resource."""
        resources = {kind.name: kind.resource for kind in self.classes.values()}
        return {
            key: {resources.get(name, f"{CLASS_PREFIX}{name}"): count for name, count in counts.items()}
            for key, counts in self.templates.items()
        }

    def _told(self, _: str, was: DeviceClass | Slice | None, now: DeviceClass | Slice | None) -> None:
        if was != now:
            self._offers = None
            self._changed()

    def _told_claim(self, _: str, was: Held | None, now: Held | None) -> None:
        if was and was != now:  # given back
            self._changed()


def with_devices(node: Node, offered: Mapping[str, Offer]) -> Node:
    """The node with its devices beside what its device plugins offer, which stand before."""
    body: Object = node.body
    plugins = {key: value for key, value in body["status"]["allocatable"].items() if key not in offered or value != "0"}
    status = {**body["status"], "allocatable": {**{key: str(one.count) for key, one in offered.items()}, **plugins}}
    known = {key: (one.product, one.memory_bytes) for key, one in offered.items() if key not in plugins}
    return Node({**body, "status": status, "devices": known}, node.state)
