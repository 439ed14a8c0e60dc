"""The scenarios that are compared."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from hulk_placement.fleet.decide import decide
from hulk_placement.fleet.predicted import PredictedStepTimes
from hulk_placement.fleet.types import Job, Ring, Settings
from hulk_placement.fleet.utility import Utility, UtilityKind
from hulk_placement.model import Model
from hulk_placement.model.presets import preset
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

from bench.fleet_simulator import Scenario
from bench.fleet_simulator.presets import SLOT_S, Switches, gadget
from bench.fleet_simulator.speeds import Contended
from bench.fleet_simulator.step_times import PaperStepTimes

LOADS = (0.5, 1.0, 2.0, 4.0)
NUM_SERVERS = (50, 10)
"""The published number, and so few that jobs compete."""

RESTART_S = 600.0


def loaded(num_servers: int, load: float, seed: int) -> Scenario:
    """100 jobs of GADGET's setting at an offered load."""
    return gadget(100, seed, Switches(load=load, num_servers=num_servers))


def hard(seed: int, kind: UtilityKind) -> Scenario:
    """GADGET's setting with what it leaves out: few servers, rings that contend, a restart that costs ten minutes.

    Utilities are the drawn sigmoids, or of another kind with the drawn weights.
    """
    found = gadget(60, seed, Switches(load=1.0, num_servers=10, constant_zeta=False))
    contended = Contended(1.25e9, 37.5e9)
    jobs = [_smaller_steps(replace(job, restart_s=RESTART_S)) for job in found.jobs]
    if kind is not UtilityKind.SIGMOID:
        jobs = [replace(job, utility=Utility(kind, weight=job.utility.weight)) for job in jobs]
    return replace(found, jobs=jobs, step_times=contended, speeds=contended)


def _smaller_steps(job: Job) -> Job:
    """The same job in steps of a second, of which its ring's part is felt."""
    if job.ring is None:
        raise ValueError(f"job {job.key}: no ring")
    steps = job.ring.backward_s
    return replace(job, ring=replace(job.ring, backward_s=1.0), work_per_worker_step=1.0 / steps)


def decision_s(num_jobs: int, num_machines: int, seed: int) -> tuple[float, float]:
    """Processor seconds of a first decision for so many, and of the next one when all run and one has come."""
    rng = np.random.default_rng(seed)
    machines = tuple(
        Machine(f"m{n}", f"r{n % 10}", num_accelerators=int(size))
        for n, size in enumerate(rng.choice([1, 2, 4, 8], size=num_machines))
    )
    topology, jobs = Topology(machines), [_job(n, rng) for n in range(num_jobs + 1)]
    settings, times = Settings(slot_s=SLOT_S), PaperStepTimes()
    begun = time.process_time()
    first = decide(0.0, jobs[:-1], topology, {}, times, settings)
    middle = time.process_time()
    decide(60.0, jobs, topology, first.workers, times, settings)
    return middle - begun, time.process_time() - middle


def live_decision_s(num_jobs: int, num_machines: int, seed: int) -> tuple[float, float]:
    """As `decision_s`, with step times by `cost.predict`, as the operator asks: of GPT-2 small on measured machines."""
    rng = np.random.default_rng(seed)
    regions = [f"r{n}" for n in range(10)]
    machines = tuple(
        Machine(f"m{n}", regions[n % 10], num_accelerators=int(size), flops_per_s=float(rng.uniform(1e13, 1e14)))
        for n, size in enumerate(rng.choice([1, 2, 4, 8], size=num_machines))
    )
    links = {(a, b): Link(1e-3, 1e10) if a == b else Link(0.1, 1e9) for a in regions for b in regions}
    topology = Topology(machines, region_links=links)
    model = Model(preset("gpt2").layers("bf16"))
    jobs = [_live(_job(n, rng), model, topology) for n in range(num_jobs + 1)]
    settings, times = Settings(slot_s=SLOT_S), PredictedStepTimes(topology)
    decide(0.0, jobs[:1], topology, {}, times, settings)  # what is loaded at the first is no decision's time
    begun = time.process_time()
    first = decide(0.0, jobs[:-1], topology, {}, times, settings)
    middle = time.process_time()
    decide(60.0, jobs, topology, first.workers, times, settings)
    return middle - begun, time.process_time() - middle


def _live(job: Job, model: Model, topology: Topology) -> Job:
    candidates = {machine.name: machine.num_accelerators for machine in topology.machines}
    each = job.accelerators_per_worker
    workload = Workload(job.key, model, 256, candidates, max_workers=job.max_workers, accelerators_per_worker=each)
    return replace(job, ring=None, workload=workload, work_per_step=256.0)


def _job(number: int, rng: np.random.Generator) -> Job:
    kinds = [
        Utility(
            UtilityKind.SIGMOID,
            weight=float(rng.uniform(1, 100)),
            steepness=0.01,
            midpoint=float(rng.uniform(3, 30)) * 1e4,
        ),
        Utility(UtilityKind.SQRT, weight=float(rng.uniform(0.1, 1))),
        Utility(UtilityKind.PROPORTIONAL, weight=float(rng.uniform(1, 10)), scale=1e4),
    ]
    return Job(
        f"job-{number}",
        kinds[number % 3],
        total_work=6e5,
        max_workers=int(rng.integers(1, 17)),
        accelerators_per_worker=int(rng.choice([1, 1, 2, 4])),
        restart_s=60.0,
        allow_unknown_links=True,
        ring=Ring(1e8, 0.0, 1, 0.1, bandwidth_bytes_per_s=1e9),
    )
