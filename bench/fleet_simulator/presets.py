"""The papers' settings as scenarios: GADGET's jobs with sigmoid utilities, and the batch of SJF-BCO's paper."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

import numpy as np
from hulk_placement.fleet.types import Job, Ring, Settings
from hulk_placement.fleet.utility import Utility, UtilityKind
from hulk_placement.topology import Link, Machine, Topology

from bench.fleet_simulator.draws import Bursts
from bench.fleet_simulator.scenario import Scenario
from bench.fleet_simulator.speeds import Alone, Contended
from bench.fleet_simulator.step_times import PaperStepTimes

SLOT_S = 3600.0
NUM_SLOTS = 200
BITS = 8
"""Links are told in bits per second."""

PUBLISHED = {
    "gadget": {40: 2831, 60: 4331, 80: 4910, 100: 5519},
    "drf": {40: 1974, 60: 2167, 80: 2428, 100: 2651},
    "las": {40: 1654, 60: 1886, 80: 2176, 100: 2240},
    "fifo": {40: 1169, 60: 1346, 80: 1432, 100: 1435},
}
"""Total utility by number of jobs, read off the bars of arXiv 2202.01158 (about 1 %)."""


@dataclass(frozen=True, slots=True)
class Switches:
    """What the paper leaves open.

    `constant_zeta`: a worker does zeta samples a slot however many there are; else that is the speed of one alone and
    the ring slows more of them down. `fixed_workers`: FIFO and LAS ask for a number drawn from [1, 10], cut
    to N, in place of N: nobody has more workers than a job's most.
    `work_in_worker_slots`: F is in worker-slots, so that jobs hold workers long after their utility is full; else in
    samples. `load` None: midpoints as published; else all midpoints and F grow by one factor, until the worker-slots
    that all jobs need to their midpoints are so many times what the machines have in all slots. `num_servers`: fewer
    make jobs compete, which the published number hardly does.
    """

    constant_zeta: bool = True
    fixed_workers: bool = True
    work_in_worker_slots: bool = False
    load: float | None = None
    num_servers: int = 50


def gadget(num_jobs: int, seed: int, switches: Switches | None = None, slots: dict[str, int] | None = None) -> Scenario:
    """GADGET's setting: 200 slots, 50 servers of {1,2,4,8} accelerators in 2 to 5 racks, sigmoid utilities.

    `slots` are arrivals by job, of a trace; drawn where it is absent. ValueError where one is after the last slot.
    """
    late = [f"{name} in slot {slot}" for name, slot in (slots or {}).items() if slot >= NUM_SLOTS]
    if late:
        raise ValueError(f"trace: {', '.join(late)}: the setting has slots 0 to {NUM_SLOTS - 1}")
    switches, rng = switches or Switches(), np.random.default_rng(seed)
    topology, cards = _racks(rng, switches.num_servers)
    bursts = Bursts()
    arrivals = bursts.slots(num_jobs, NUM_SLOTS, rng)
    names = list(slots) if slots else [f"job-{number + 1}" for number in range(num_jobs)]
    when = [slots[name] for name in names] if slots else arrivals
    jobs = [_drawn(name, slot, rng, switches) for name, slot in zip(names, when, strict=True)]
    jobs, factor = _loaded(jobs, topology, switches.load)
    fixed = {job.key: min(int(rng.integers(1, 11)), job.max_workers) for job in jobs} if switches.fixed_workers else {}
    settings = Settings(
        slot_s=SLOT_S, lookahead_slots=NUM_SLOTS, seed=seed, fixed_workers=fixed, machine_bytes_per_s=cards
    )
    times = PaperStepTimes()
    drawn = {
        "preset": "gadget",
        "seed": seed,
        "num_jobs": len(jobs),
        "slot_s": SLOT_S,
        "num_slots": NUM_SLOTS,
        "accelerators": sum(machine.num_accelerators for machine in topology.machines),
        "midpoint_factor": factor,
        "offered_load": _offered(jobs, topology),
        "arrivals": "trace" if slots else asdict(bursts),
        **asdict(switches),
    }
    return Scenario(topology, jobs, settings, times, Alone(times, topology), NUM_SLOTS * SLOT_S, drawn)


def _racks(rng: np.random.Generator, num_servers: int) -> tuple[Topology, dict[str, float]]:
    """Machines in racks, links between racks, and what each server's own link carries."""
    num_racks = int(rng.integers(2, 6))
    machines = tuple(
        Machine(f"server-{number + 1}", f"rack-{number % num_racks + 1}", num_accelerators=int(size))
        for number, size in enumerate(rng.choice([1, 2, 4, 8], size=num_servers))
    )
    racks = [f"rack-{number + 1}" for number in range(num_racks)]
    links = {
        (one, other): Link(1e-4, float(rng.uniform(200e9, 3200e9)) / BITS)
        for one in racks
        for other in racks
        if one != other
    }
    cards = {machine.name: float(rng.uniform(10e9, 100e9)) / BITS for machine in machines}
    return Topology(machines, region_links=links), cards


def _drawn(name: str, slot: int, rng: np.random.Generator, switches: Switches) -> Job:
    zeta, amount = float(rng.uniform(50, 500)), float(rng.uniform(1000, 6000))
    utility = Utility(
        UtilityKind.SIGMOID,
        weight=float(rng.uniform(1, 100)),
        steepness=1 - float(rng.uniform(0, 1)),
        midpoint=float(rng.uniform(300, 3000)),
    )
    gradient_bytes = float(rng.uniform(30e6, 575e6))
    ring = Ring(
        gradient_bytes=0.0 if switches.constant_zeta else gradient_bytes,
        forward_s=0.0,
        samples=1,
        backward_s=SLOT_S / zeta,
        bandwidth_bytes_per_s=float(rng.uniform(0.1e9, 5e9)) / BITS,
    )
    return Job(
        name,
        utility,
        total_work=amount * zeta if switches.work_in_worker_slots else amount,
        max_workers=int(rng.integers(1, 6)),
        arrived_s=slot * SLOT_S,
        ring=ring,
        allow_unknown_links=True,  # a server's own link and those between racks are all that is told of the network
    )


def _offered(jobs: list[Job], topology: Topology) -> float:
    """Worker-slots to all midpoints over those that the machines have."""
    needed_s = sum((job.utility.midpoint or 0.0) * (job.ring.backward_s if job.ring else 0.0) for job in jobs)
    return needed_s / (sum(machine.num_accelerators for machine in topology.machines) * NUM_SLOTS * SLOT_S)


def _loaded(jobs: list[Job], topology: Topology, load: float | None) -> tuple[list[Job], float]:
    """The jobs with midpoints and amounts grown to the load, and the factor."""
    if load is None:
        return jobs, 1.0
    if not 0 < load < math.inf:
        raise ValueError(f"load {load} must be > 0 and finite")
    factor = load / _offered(jobs, topology)
    return [
        replace(
            job,
            utility=replace(job.utility, midpoint=(job.utility.midpoint or 0.0) * factor),
            total_work=job.total_work * factor,
        )
        for job in jobs
    ], factor


BATCH = {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}
"""Jobs of the MobiHoc batch by the accelerators that each needs."""


def mobihoc(seed: int) -> Scenario:
    """SJF-BCO's setting: 160 jobs at once, each of a fixed size, on 20 servers of {4,8,16,32} accelerators.

    The server sizes, times and contention figures are drawn or assumed, and told in `drawn`; makespan counts.
    """
    rng = np.random.default_rng(seed)
    machines = tuple(
        Machine(f"server-{number + 1}", "cluster", num_accelerators=int(size))
        for number, size in enumerate(rng.choice([4, 8, 16, 32], size=20))
    )
    contended = Contended(10e9 / BITS, 300e9 / BITS, overhead_s=0.002)
    sizes = [size for size, number in BATCH.items() for _ in range(number)]
    jobs = [_batch_job(f"job-{number + 1}", size, rng) for number, size in enumerate(sizes)]
    settings = Settings(slot_s=120.0, lookahead_slots=1000, seed=seed, hysteresis=0.2)
    drawn = {"preset": "mobihoc", "seed": seed, "num_jobs": len(jobs), **asdict(contended)}
    return Scenario(Topology(machines), jobs, settings, contended, contended, math.inf, drawn)


def _batch_job(name: str, size: int, rng: np.random.Generator) -> Job:
    steps = int(rng.integers(1000, 6001))
    ring = Ring(
        gradient_bytes=float(rng.uniform(30e6, 575e6)),
        forward_s=0.0,
        samples=1,
        backward_s=float(rng.uniform(0.05, 0.4)),
    )
    return Job(
        name,
        Utility(UtilityKind.BACKLOG, weight=steps * ring.backward_s**2),  # an accelerator's second: the seconds left
        total_work=float(steps * size),
        min_workers=size,
        max_workers=size,
        restart_s=30.0,
        ring=ring,
        allow_unknown_links=True,
    )
