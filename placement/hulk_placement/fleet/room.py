"""What is free of the machines and links while a decision is being made, in arrays over all machines.

Machines stand in the topology's order and are told apart by their place in it alone, so that names decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hulk_placement.accelerators.framework_memory import framework_memory
from hulk_placement.fleet.quotas import MANY, Quotas
from hulk_placement.fleet.types import Job, Mapped, Settings
from hulk_placement.topology import LinkKind, Pair, Topology

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


class Room:
    """Free accelerators and bandwidth; `take` and `give` change it, `fits` and `admits` only look.

    A ring reserves its job's bandwidth once on every machine that it enters and leaves, and on every directed region
    link that it crosses, regions in the topology's order.
    """

    def __init__(self, topology: Topology, settings: Settings) -> None:
        self.topology, self.settings = topology, settings
        self.names = [machine.name for machine in topology.machines]
        self.index = {name: place for place, name in enumerate(self.names)}
        self.size: Counts = np.array([machine.num_accelerators for machine in topology.machines], dtype=np.int64)
        self.free: Counts = self.size.copy()
        self.memory: Counts = np.array([machine.memory_bytes for machine in topology.machines], dtype=np.int64)
        regions = list(dict.fromkeys(machine.region for machine in topology.machines))
        places = {region: place for place, region in enumerate(regions)}
        self.regions = regions
        self.region: Counts = np.array([places[machine.region] for machine in topology.machines], dtype=np.int64)
        cards = settings.machine_bytes_per_s
        self.card: Floats = np.array([cards.get(name, math.inf) for name in self.names], dtype=np.float64)
        self.links = {
            pair: link.bandwidth_bytes_per_s for pair, link in topology.region_links.items() if pair[0] != pair[1]
        }
        self.uplinks = {(region, way): rate for region, rate in topology.uplinks.items() for way in ("out", "in")}
        self.quotas = Quotas(settings.quotas, settings.taken)
        self._admits: dict[str, Counts] = {}
        self._known: dict[tuple[int, int], bool] = {}
        self.can_be_joined: dict[str, bool] = {}
        """Of each job that was asked for, whether its least fits where nothing else is: `place.is_ever_joined`."""

    @cached_property
    def members(self) -> list[Counts]:
        """The machines of each region, by their places."""
        ends = np.bincount(self.region, minlength=len(self.regions)).cumsum()
        return np.split(np.argsort(self.region, kind="stable"), ends[:-1])

    @cached_property
    def empty(self) -> Room:
        """The same machines and links with nothing on them, quotas apart: to look at, not to take from."""
        return Room(self.topology, replace(self.settings, quotas={}, taken={}))

    def most(self, job: Job) -> Counts:
        """How many workers of the job each machine could ever hold, were it empty."""
        known = self._admits.get(job.key)
        if known is not None:
            return known
        wanted = job.accelerators_per_worker
        most = self.size // wanted if wanted else np.full(len(self.names), MANY, dtype=np.int64)
        if job.memory_bytes_per_worker and wanted:
            enough = self._tensor_memory(job) * wanted >= job.memory_bytes_per_worker
            most = np.where(enough | (self.memory == 0), most, 0)
        if job.candidates is not None:
            allowed = np.zeros(len(self.names), dtype=np.int64)
            for name, count in job.candidates.items():
                if name in self.index:
                    allowed[self.index[name]] = count
            most = np.minimum(most, allowed)
        self._admits[job.key] = most
        return most

    def _tensor_memory(self, job: Job) -> Floats:
        """Bytes of an accelerator of each machine without what the job's framework takes."""
        if job.workload is None:
            return self.memory.astype(np.float64)
        products = [machine.product for machine in self.topology.machines]
        overheads = {product: job.workload.overhead(framework_memory(product)) for product in set(products)}
        rooms = zip(products, self.memory.tolist(), strict=True)
        return np.array([overheads[product].room(memory) for product, memory in rooms])

    def admits(self, job: Job) -> Counts:
        """How many more workers of the job each machine can hold now."""
        most = self.most(job)
        if not job.accelerators_per_worker:
            return most
        now: Counts = np.minimum(most, np.maximum(self.free, 0) // job.accelerators_per_worker)
        return now

    def quota_left(self, job: Job) -> int:
        """How many workers of the job its namespace's quota still admits."""
        return self.quotas.workers(job.namespace, job.accelerators_per_worker)

    def has_accelerators(self, job: Job, mapping: Mapped) -> bool:
        """Whether the mapping's machines are there and have its accelerators free, whatever else admits the job."""
        each = job.accelerators_per_worker
        return all(name in self.index and self.free[self.index[name]] >= n * each for name, n in mapping.items())

    def fits(self, job: Job, mapping: Mapped) -> bool:
        """Whether the mapping could be taken now; a machine that there is not fits nothing."""
        if any(machine not in self.index for machine in mapping) or sum(mapping.values()) > self.quota_left(job):
            return False
        admits = self.admits(job)
        return all(admits[self.index[machine]] >= count for machine, count in mapping.items()) and self.has_bandwidth(
            job, mapping
        )

    def has_bandwidth(self, job: Job, mapping: Mapped) -> bool:
        """Whether the links that a ring over the mapping crosses are known and carry what the job reserves."""
        if len(mapping) < 2:
            return True
        reserved = reservation(job)
        if not job.allow_unknown_links and not self._all_known(mapping):
            return False
        if not reserved:
            return True
        if any(self.card[self.index[machine]] < reserved for machine in mapping):
            return False
        crossed = self.crossed(mapping)
        ways = [(pair[0], "out") for pair in crossed] + [(pair[1], "in") for pair in crossed]
        return all(self.links.get(pair, math.inf) >= reserved for pair in crossed) and all(
            self.uplinks.get(way, math.inf) >= reserved for way in ways
        )

    def knows(self, source: int, target: int) -> bool:
        """Whether anything is known of the link between two regions, by number; of one region's inside for the same."""
        if (source, target) not in self._known:
            link = self.topology.region_link(self.regions[source], self.regions[target])
            self._known[source, target] = link.kind is not LinkKind.UNKNOWN
        return self._known[source, target]

    def _all_known(self, mapping: Mapped) -> bool:
        """Whether a ring over the mapping stays on links of which something is known."""
        regions = [int(self.region[self.index[machine]]) for machine in mapping]
        inside = all(self.knows(region, region) for region in set(regions) if regions.count(region) > 1)
        return inside and all(self.knows(*pair) for pair in _around(sorted(set(regions))))

    def crossed(self, mapping: Mapped) -> list[Pair]:
        """The directed pairs of regions between which a ring over the mapping goes."""
        regions = sorted({int(self.region[self.index[machine]]) for machine in mapping})
        return [(self.regions[source], self.regions[target]) for source, target in _around(regions)]

    def take(self, job: Job, mapping: Mapped) -> None:
        """Reserve what the mapping needs, whether it fits or not."""
        self._change(job, mapping, -1)

    def give(self, job: Job, mapping: Mapped) -> None:
        """Free what `take` reserved."""
        self._change(job, mapping, 1)

    def _change(self, job: Job, mapping: Mapped, sign: int) -> None:
        for machine, count in mapping.items():
            self.free[self.index[machine]] += sign * count * job.accelerators_per_worker
        self.quotas.take(job.namespace, -sign * sum(mapping.values()) * job.accelerators_per_worker)
        reserved = reservation(job)
        if not reserved or len(mapping) < 2:
            return
        for machine in mapping:
            self.card[self.index[machine]] += sign * reserved
        for pair in self.crossed(mapping):
            for figures, key in ((self.links, pair), (self.uplinks, (pair[0], "out")), (self.uplinks, (pair[1], "in"))):
                _add(figures, key, sign * reserved)


def reservation(job: Job) -> float:
    """Bytes per second that the job reserves on each link, 0 where it names none."""
    if job.ring is None or math.isinf(job.ring.bandwidth_bytes_per_s):
        return 0.0
    return job.ring.bandwidth_bytes_per_s


def _around(regions: list[int]) -> list[tuple[int, int]]:
    """Each region with the next one, and the last with the first; nothing for one alone."""
    return list(zip(regions, [*regions[1:], *regions[:1]], strict=True)) if len(regions) > 1 else []


def workers(mapping: Mapping[str, int]) -> int:
    """How many workers a mapping has."""
    return sum(mapping.values())


def _add(figures: dict[Pair, float], key: Pair, amount: float) -> None:
    if key in figures:
        figures[key] += amount
