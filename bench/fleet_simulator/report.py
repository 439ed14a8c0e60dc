"""What policies came to, side by side, as a document for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench.fleet_simulator.run import Outcome
from bench.fleet_simulator.scenario import Scenario


def document(
    scenario: Scenario, outcomes: Sequence[Outcome], bound: float, published: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """All policies' figures and the bound; times in seconds, `fraction` of the bound.

    `published` are a paper's totals for this number of jobs, beside and never instead of ours.
    """
    made: dict[str, Any] = {
        "drawn": dict(scenario.drawn),
        "num_jobs": len(scenario.jobs),
        "bound": bound,
        "policies": {outcome.policy: figures(outcome, bound) for outcome in outcomes},
    }
    if published:
        made["published"] = dict(published)
    return made


def figures(outcome: Outcome, bound: float) -> dict[str, Any]:
    """One policy's figures."""
    times = list(outcome.completions_s.values())
    return {
        "utility": outcome.utility,
        "fraction": outcome.utility / bound if bound > 0 else None,
        "makespan": outcome.makespan_s,
        "completed": len(times),
        "mean_completion": float(np.mean(times)) if times else None,
        "p95_completion": float(np.percentile(times, 95)) if times else None,
        "utilisation": outcome.utilisation,
        "moves": dict(outcome.moves),
        "joules": outcome.joules,
        "shares": dict(outcome.shares),
        "overruns": list(outcome.overruns[:20]),
        "num_overruns": len(outcome.overruns),
        "decisions": outcome.num_decisions,
        "jobs": {
            key: {
                "utility": utility,
                "joules": outcome.job_joules[key],
                "completion": outcome.completions_s.get(key),
            }
            for key, utility in outcome.utilities.items()
        },
    }
