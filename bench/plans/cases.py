"""The cases: clusters of 2 to 640 machines, one job or several, by the mechanism of the planner that they need.

All are drawn over measured cloud links (`bench.clusters`, `bench.bench_solve`) or are written down here. A budget of
iterations ends each search, so that the same planner gives the same plan on any machine.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from hulk_placement.model import Model
from hulk_placement.model.presets import preset
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

from bench import bench_solve, clusters
from bench.job_mixes import draw_jobs
from bench.planner.cases import EIGHT, SINGLE, Case, free_workload, small_model

MODELS = ("gpt2-xl", "llama-3-8b", "llama-3-70b", "t5-11b")
RATE = 1.25e8
"""Bytes/s of a link of 1 Gbit/s."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the planner is asked: jobs on machines, the plans that run (by key), and the work that it may do."""

    jobs: tuple[Workload, ...]
    topology: Topology
    budget: Budget
    running: tuple[Plan, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A case by its group and name; drawn when it is asked."""

    group: str
    name: str
    draw: Callable[[], Asked]


def questions() -> list[Question]:
    """All cases, group by group."""
    return [Question(group, name, drawn) for group, cases in GROUPS.items() for name, drawn in cases()]


Drawn = Iterator[tuple[str, Callable[[], Asked]]]


def _any_layout() -> Drawn:
    """Machines of eight accelerators over regions; everything is left to the planner."""
    sizes = {(8, 8): (0, 1, 2, 4), (16, 4): (0, 1, 2, 3), (80, 5): (0, 1, 2), (640, 12): (1,)}
    for (machines, regions), seed in ((size, seed) for size, seeds in sizes.items() for seed in seeds):
        yield f"{machines} machines, {regions} regions, seed {seed}", partial(_free, machines, regions, seed)


def _free(machines: int, regions: int, seed: int) -> Asked:
    case = Case(seed, machines, regions, MODELS[seed % len(MODELS)])
    topology = case.topology()
    return Asked((case.workload(topology),), topology, Budget(2_000))


def _one_cluster() -> Drawn:
    """All machines in one region."""
    for machines, seed in ((2, 0), (4, 1), (8, 2), (16, 3), (32, 4), (64, 5)):
        yield f"{machines} machines, seed {seed}", partial(_inside, machines, seed)


def _inside(machines: int, seed: int) -> Asked:
    topology = clusters.draw(seed, machines, 1, kinds=EIGHT)
    model = Model.of(preset(MODELS[seed % len(MODELS)]), "bf16")
    return Asked((free_workload(topology, model, 512),), topology, Budget(2_000))


def _small() -> Drawn:
    """So few machines that all layouts can be looked at."""
    for seed in range(10):
        yield f"{3 + seed % 2} machines, seed {seed}", partial(_few, seed)


def _few(seed: int) -> Asked:
    topology = clusters.draw(seed, 3 + seed % 2, 1 + seed % 3, kinds=SINGLE)
    model = small_model(3 + seed % 3, (1 << 20) << seed % 9, 1e11)
    job = replace(free_workload(topology, model, 6), sync=Sync("ring"))  # of the ring alone an optimum is proven
    return Asked((job,), topology, Budget(20_000))


def _data_parallel() -> Drawn:
    """Whole models on each rank: rings over regions, by equal shares and by speed, for all machines or the best."""
    for machines, regions in ((6, 3), (9, 3), (32, 4), (100, 5), (300, 8)):
        for shares, is_fixed in (("equal", False), ("planned", True)) if machines > 6 else (("planned", False),):
            words = f"{machines} machines, {regions} regions, {shares}{', all' if is_fixed else ''}"
            yield words, partial(_ring, machines, regions, shares, is_fixed)
    yield "2 machines, 2 regions", partial(_ring, 2, 2, "equal", False)
    for modes in (("local", "none"), ("wan", "none"), ("wan", "int8")):
        yield f"16 machines, 4 regions, {' '.join(modes)}", partial(_synced, 16, 4, *modes)


def _ring(machines: int, regions: int, shares: str, is_fixed: bool) -> Asked:
    topology = bench_solve.world(machines, regions, random.Random(f"{machines} {regions}"))
    job = replace(bench_solve.workload(topology), shares=shares)
    job = replace(job, min_workers=machines) if is_fixed else job
    return Asked((job,), topology, Budget())


def _synced(machines: int, regions: int, mode: str, compression: str) -> Asked:
    topology = bench_solve.world(machines, regions, random.Random(f"{machines} {regions}"))
    job = replace(bench_solve.workload(topology), sync=Sync(mode, compression=compression))
    return Asked((job,), topology, Budget())


def _priced() -> Drawn:
    """Machines with prices: the most sequences for the money, and the fastest step below a price."""
    for seed in range(3):
        yield f"whole models, seed {seed}, per money", partial(_money, seed, is_whole=True, is_limited=False)
        yield f"whole models, seed {seed}, below a price", partial(_money, seed, is_whole=True, is_limited=True)
        yield f"any layout, seed {seed}, per money", partial(_money, seed, is_whole=False, is_limited=False)
    yield "any layout, seed 0, below a price", partial(_money, 0, is_whole=False, is_limited=True)


def _money(seed: int, is_whole: bool, is_limited: bool) -> Asked:
    topology = clusters.draw(100 + seed, 12, 3)
    prices = {kind.product: kind.price_per_hour for kind in clusters.KINDS}
    machines = tuple(replace(machine, price_per_hour=prices[machine.product]) for machine in topology.machines)
    topology = replace(topology, machines=machines)
    job = free_workload(topology, Model.of(preset("gpt2-medium" if is_whole else "gpt2-xl"), "bf16"), 256)
    job = replace(job, pipeline=1, tensor=1) if is_whole else job
    job = replace(job, max_price_per_hour=20.0) if is_limited else replace(job, objective="throughput-per-money")
    return Asked((job,), topology, Budget(2_000))


def _own_links() -> Drawn:
    """Machine pairs that were measured one by one: racks with a switch each, some cables bad."""
    for machines, degrees in ((4, None), (8, None), (16, None), (16, 1), (32, 1), (32, 4)):
        words = {None: "any layout", 1: "whole models", 4: "4 stages"}[degrees]
        yield f"{machines} machines in racks of 4, {words}", partial(_racks, machines, degrees)


def _racks(machines: int, stages: int | None) -> Asked:
    rng = random.Random(machines)
    names = [f"node-{number:02d}" for number in rng.sample(range(machines), machines)]
    here = tuple(Machine(n, "site", num_accelerators=1, memory_bytes=80 << 30, flops_per_s=1.4e14) for n in names)
    own = {}
    for (a, one), (b, other) in itertools.permutations(enumerate(names), 2):
        same = a // 4 == b // 4
        bad = 0.2 if rng.random() < 0.05 else 1.0
        rate = (80 if same else 10) * RATE * bad * rng.uniform(0.9, 1.1)
        own[one, other] = Link(2e-5 if same else 2e-4, rate)
    topology = Topology(here, node_links=own, region_links={("site", "site"): Link(2e-4, 10 * RATE)})
    model = Model.of(preset("gpt2-xl"), "bf16")
    job = replace(free_workload(topology, model, 128), pipeline=stages, tensor=None if stages is None else 1)
    return Asked((job,), topology, Budget(2_000))


def _several_jobs() -> Drawn:
    """Two to six jobs that are planned together."""
    for machines, regions, jobs in ((2, 1, 2), (8, 3, 2), (32, 4, 3), (32, 4, 6), (128, 8, 4)):
        yield f"{jobs} jobs, {machines} machines, {regions} regions", partial(_mixed, machines, regions, jobs)


def _mixed(machines: int, regions: int, jobs: int) -> Asked:
    topology = clusters.draw(5000 + machines, machines, regions, kinds=SINGLE if machines < 8 else clusters.KINDS)
    return Asked(tuple(draw_jobs(machines, jobs, topology)), topology, Budget(3_000))


def _tight() -> Drawn:
    """Memory that few layouts fit, and models bound to many stages."""
    for seed in range(5):
        yield f"seed {seed}", partial(_barely, seed)


def _barely(seed: int) -> Asked:
    small = tuple(kind for kind in clusters.KINDS if kind.memory_bytes <= 24 << 30)
    topology = clusters.draw(200 + seed, 3 + 2 * seed, 1 + seed % 3, kinds=small)
    held = sum(machine.memory_bytes * machine.num_accelerators for machine in topology.machines)
    model = small_model(24, int(0.85 * held / 16 / 24), 1e12)
    return Asked((free_workload(topology, model, 64),), topology, Budget(2_000))


def _after_a_loss() -> Drawn:
    """A machine is lost: workers that run, and layouts that began elsewhere."""
    for machines, is_whole in ((16, True), (40, True), (8, False), (16, False)):
        yield f"{machines} machines, {'whole models' if is_whole else 'any layout'}", partial(_lost, machines, is_whole)


def _lost(machines: int, is_whole: bool) -> Asked:
    if is_whole:
        topology = bench_solve.world(machines, 4, random.Random(f"lost {machines}"))
        job = bench_solve.workload(topology)
    else:
        topology = clusters.draw(300 + machines, machines, 3, kinds=EIGHT)
        job = free_workload(topology, Model.of(preset("gpt2-xl"), "bf16"), 512)
    budget, lost = Budget(2_000), topology.machines[0].name
    rest = tuple(machine for machine in topology.machines if machine.name != lost)
    left = {name: count for name, count in job.candidates.items() if name != lost}
    again = replace(job, candidates=left, attempt=2)
    if is_whole:
        kept = {machine.name: 1 for machine in rest if machine.name in left}
        taken = tuple(replace(m, num_accelerators=m.num_accelerators - kept.get(m.name, 0)) for m in rest)
        return Asked((replace(again, kept=kept),), replace(topology, machines=taken), budget)
    plan = solve([job], [], topology, budget).plans[job.key]
    return Asked((again,), replace(topology, machines=rest), budget, running=(plan,))


GROUPS: dict[str, Callable[[], Drawn]] = {
    "any layout": _any_layout,
    "one cluster": _one_cluster,
    "small, all layouts looked at": _small,
    "whole models on each rank": _data_parallel,
    "prices": _priced,
    "machine pairs' own links": _own_links,
    "several jobs": _several_jobs,
    "little memory": _tight,
    "after a loss": _after_a_loss,
}
