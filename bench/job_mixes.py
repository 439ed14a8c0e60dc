"""Mixes of jobs for a cluster, drawn by a seed: what planners of several jobs are compared on."""

from __future__ import annotations

import random

from hulk_placement.model import Model, Transformer
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

MODELS = (
    Transformer(layers=12, hidden=768, heads=12, sequence_length=1024, vocabulary=50257),
    Transformer(layers=24, hidden=1024, heads=16, sequence_length=1024, vocabulary=50257),
    Transformer(layers=36, hidden=1280, heads=20, sequence_length=1024, vocabulary=50257),
    Transformer(layers=48, hidden=1600, heads=25, sequence_length=1024, vocabulary=50257),
    Transformer(layers=32, hidden=2560, heads=32, sequence_length=2048, vocabulary=50257),
    Transformer(layers=32, hidden=4096, heads=32, sequence_length=2048, vocabulary=50257),
)
"""Decoders of 0.12 to 7 thousand million parameters, as GPT-2's and GPT-3's sizes go."""

BATCHES = (64, 128, 256, 512)


def draw_jobs(seed: int, num_jobs: int, topology: Topology, max_memory_share: float = 0.25) -> list[Workload]:
    """So many jobs, none of whose states need more than a share of all memory divided among the jobs."""
    rng = random.Random(seed)
    candidates = {machine.name: machine.num_accelerators for machine in topology.machines}
    room = sum(machine.memory_bytes * machine.num_accelerators for machine in topology.machines)
    fitting = [m for m in MODELS if 20 * Model.of(m).num_parameters <= max_memory_share * room / num_jobs]
    return [
        Workload(
            key=f"team/{number}",
            model=Model.of(rng.choice(fitting or MODELS[:1])),
            global_batch=rng.choice(BATCHES),
            candidates=candidates,
            max_workers=sum(candidates.values()),
            pipeline=None,
            tensor=None,
        )
        for number in range(num_jobs)
    ]
