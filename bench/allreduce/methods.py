"""The ways to all-reduce that are compared, each behind the same two calls, made anew in every rank from its JSON form.

{"kind": "flat", "order": [ranks]}                        gloo's ring in this order
{"kind": "hierarchical", "order": [regions], "members": m}   gloo: reduce inside regions, rings over them, broadcast
{"kind": "wan", "plan": {...}, "inside": false}           Hulk's own; with `inside` gloo sums inside regions
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from hulk_runtime.collective.between_regions import MAX_STREAMS
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.reduction import region_backend
from hulk_runtime.collective.wire.rendezvous import Address
from hulk_runtime.plan import document
from hulk_runtime.plan.flows_document import CollectiveDocument

from bench.allreduce.place import Place

SECRET, SCOPE = b"0123456789abcdef0123456789abcdef", "bench/allreduce/1"


class Method(Protocol):
    """Sums a tensor over all ranks, in place. `engines` are threads that also run while another method is timed."""

    engines: tuple[threading.Thread, ...]

    def all_reduce(self, values: torch.Tensor) -> None:
        """Returns when this rank has the sum."""

    def close(self) -> None:
        """No connection is left."""


class Flat:
    """gloo's ring; data flows from each rank of the order to the one before it."""

    engines: tuple[threading.Thread, ...] = ()

    def __init__(self, _: Place, spec: Mapping[str, Any]) -> None:
        # Sorted ranks would undo the order.
        self._group = _member(dist.new_group(spec["order"], backend="gloo", sort_ranks=False))

    def all_reduce(self, values: torch.Tensor) -> None:
        dist.all_reduce(values, group=self._group)

    def close(self) -> None:
        dist.destroy_process_group(self._group)


class Hierarchical:
    """Sum inside each region, all-reduce over regions, broadcast inside, the vector in equal parts.

    Part i is the business of member i of every region: with one part one member of each speaks over the WAN, with more
    they do so side by side.
    """

    engines: tuple[threading.Thread, ...] = ()

    def __init__(self, place: Place, spec: Mapping[str, Any]) -> None:
        order: Sequence[int] = spec["order"]
        self._num_parts = int(spec["members"])
        self._ranks = place.regions[place.region]
        local = [dist.new_group(ranks, backend="gloo") if len(ranks) > 1 else None for ranks in place.regions]
        wide = [
            dist.new_group([place.regions[region][part] for region in order], backend="gloo", sort_ranks=False)
            for part in range(self._num_parts)
        ]
        self._local = None if (own := local[place.region]) is None else _member(own)
        self._part = self._ranks.index(place.rank)
        self._wide = _member(wide[self._part]) if self._part < self._num_parts else None

    def all_reduce(self, values: torch.Tensor) -> None:
        parts = values.tensor_split(self._num_parts)
        if self._local is not None:
            _wait([dist.reduce(part, self._ranks[i], group=self._local, async_op=True) for i, part in enumerate(parts)])
        if self._wide is not None:
            dist.all_reduce(parts[self._part], group=self._wide)
        if self._local is not None:
            _wait(
                [dist.broadcast(part, self._ranks[i], group=self._local, async_op=True) for i, part in enumerate(parts)]
            )

    def close(self) -> None:
        for group in (self._local, self._wide):
            if group is not None:
                dist.destroy_process_group(group)


def _wait(works: Sequence[Any]) -> None:
    for work in works:
        work.wait()


def _member(group: Any) -> dist.ProcessGroup:
    assert isinstance(group, dist.ProcessGroup)
    return group


class Wan:
    """Hulk's own: flows as the plan says, over connections that stay."""

    def __init__(self, place: Place, spec: Mapping[str, Any]) -> None:
        addresses = [Address(address, spec["port"]) for address in place.addresses]
        settings = Settings(**{"max_streams": MAX_STREAMS, **spec["settings"]})
        plan = document.read(CollectiveDocument, spec["plan"]).plan(spec["region_of_rank"])
        found = region_backend.join(plan, place.rank, torch.device("cpu")) if spec.get("inside") else None
        self.collective = Collective.connect(place.rank, addresses, plan, SECRET, SCOPE, settings, inside=found)
        self.engines: tuple[threading.Thread, ...] = (self.collective.engine,)
        self.collective.warm()

    def all_reduce(self, values: torch.Tensor) -> None:
        self.collective.all_reduce(values).wait()

    def close(self) -> None:
        self.collective.close()


KINDS: dict[str, Callable[[Place, Mapping[str, Any]], Method]] = {
    "flat": Flat,
    "hierarchical": Hierarchical,
    "wan": Wan,
}
