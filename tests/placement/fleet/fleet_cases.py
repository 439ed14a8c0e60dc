"""Small fleets: machines, jobs of the paper's step time, and random ones of both."""

from __future__ import annotations

from functools import partial
from typing import Any

from hulk_placement.fleet import decide as fleet
from hulk_placement.fleet.types import Job, Ring
from hulk_placement.fleet.utility import Utility, UtilityKind
from hulk_placement.topology import Machine, Topology
from hypothesis import strategies as st

from bench.fleet_simulator.policies import POLICIES

decide = partial(fleet.decide, policies=POLICIES)
"""With the published policies beside those of the queue."""

SECOND = Ring(gradient_bytes=0.0, forward_s=0.0, samples=1, backward_s=1.0)
"""A step takes a second, however many workers there are."""


def machines(*sizes: int, regions: int = 1) -> Topology:
    """Machines of these sizes, dealt out to regions in turn."""
    return Topology(tuple(Machine(f"m{n}", f"r{n % regions}", num_accelerators=size) for n, size in enumerate(sizes)))


def job(key: str, samples: float = 1000.0, **changes: Any) -> Job:
    """A job of one worker that does a sample a second and is worth as much."""
    return Job(
        key, **({"utility": Utility(), "total_work": samples, "ring": SECOND, "allow_unknown_links": True} | changes)
    )


def sigmoid(midpoint: float, weight: float = 1.0, steepness: float = 1.0) -> Utility:
    """A sigmoid utility."""
    return Utility(UtilityKind.SIGMOID, weight=weight, steepness=steepness, midpoint=midpoint)


@st.composite
def fleets(draw: st.DrawFn, most_jobs: int = 6) -> tuple[Topology, list[Job]]:
    """Random machines and jobs, some of several accelerators a worker, of two namespaces and two priorities."""
    sizes = draw(st.lists(st.integers(0, 8), min_size=1, max_size=5))
    utilities = st.sampled_from(
        [
            Utility(),
            Utility(weight=3.0),
            Utility(UtilityKind.SQRT),
            Utility(UtilityKind.PROPORTIONAL),
            sigmoid(200.0, 5.0),
            Utility(UtilityKind.DEADLINE, deadline_s=500.0),
        ]
    )
    jobs = []
    for number in range(draw(st.integers(1, most_jobs))):
        least = draw(st.integers(1, 4))
        jobs.append(
            job(
                f"j{number}",
                draw(st.floats(50, 5000)),
                utility=draw(utilities),
                namespace=draw(st.sampled_from(["a", "b"])),
                priority=draw(st.integers(0, 1)),
                min_workers=least,
                max_workers=least + draw(st.integers(0, 5)),
                accelerators_per_worker=draw(st.integers(1, 3)),
                arrived_s=float(number),
                restart_s=draw(st.sampled_from([0.0, 30.0])),
            )
        )
    return machines(*sizes, regions=2), jobs
