"""Devices as dynamic resource allocation tells of them, followed where a cluster has them."""

from collections.abc import Callable, Mapping

from hulk_operator.cluster import Newest, Object
from hulk_operator.inputs.devices import (
    CLASS_PREFIX,
    ClassifiedSlice,
    DeviceClass,
    DeviceId,
    Offer,
    Slice,
    allocated,
    asked,
    classified,
    current,
    device_class,
    offers,
    resource_slice,
    taken,
)
from hulk_operator.inputs.pod_size import Amounts
from hulk_operator.watched.nodes import Node

Held = tuple[DeviceId, ...]


class Devices:
    """Classes, slices, claims and claim templates; `changed` is told when there are more or fewer devices."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.classes: Newest[DeviceClass] = Newest(device_class, self._told_class)
        self.slices: Newest[Slice] = Newest(resource_slice, self._told_slice)
        self.claims: Newest[Held] = Newest(allocated, self._told_claim)
        self.templates: Newest[Mapping[str, int]] = Newest(asked, lambda *_: self._changed())
        self._classified: dict[str, ClassifiedSlice] = {}  # by the slice's key; none of another set of classes
        self._offers: Mapping[str, Mapping[str, Offer]] | None = None
        self._taken: Mapping[str, Amounts] | None = None

    def offers(self) -> Mapping[str, Mapping[str, Offer]]:
        """By node, then by resource."""
        if self._offers is None:
            self._offers = offers(self._current())
        return self._offers

    def taken(self) -> Mapping[str, Amounts]:
        """What claims hold, by node, then by resource."""
        if self._taken is None:
            held = [device for claim in self.claims.values() for device in claim]
            self._taken = taken(self._current(), held) if held else {}
        return self._taken

    def _current(self) -> list[ClassifiedSlice]:
        for key, one in self.slices.items():
            if key not in self._classified:
                self._classified[key] = classified(self.classes.values(), one)
        return current(self._classified[key] for key, _ in self.slices.items())

    def asked(self) -> dict[str, Amounts]:
        """What a claim of each template takes, by `namespace/name`, then by resource."""
        resources = {kind.name: kind.resource for kind in self.classes.values()}
        return {
            key: {resources.get(name, f"{CLASS_PREFIX}{name}"): count for name, count in counts.items()}
            for key, counts in self.templates.items()
        }

    def _told_class(self, _: str, was: DeviceClass | None, now: DeviceClass | None) -> None:
        if was != now:
            self._classified.clear()
            self._offers = self._taken = None
            self._changed()

    def _told_slice(self, key: str, was: Slice | None, now: Slice | None) -> None:
        if was != now:
            self._classified.pop(key, None)
            if now is not None:  # at once: of thousands that change together each has its turn of the event loop
                self._classified[key] = classified(self.classes.values(), now)
            self._offers = self._taken = None
            self._changed()

    def _told_claim(self, _: str, was: Held | None, now: Held | None) -> None:
        if was != now:
            self._taken = None
        if was and was != now:  # given back
            self._changed()


def with_devices(node: Node, offered: Mapping[str, Offer]) -> Node:
    """The node with its devices beside what its device plugins offer, which stand before."""
    body: Object = node.body
    plugins = {key: value for key, value in body["status"]["allocatable"].items() if key not in offered or value != "0"}
    status = {**body["status"], "allocatable": {**{key: str(one.count) for key, one in offered.items()}, **plugins}}
    known = {key: (one.product, one.memory_bytes) for key, one in offered.items() if key not in plugins}
    return Node({**body, "status": status, "devices": known}, node.state)
