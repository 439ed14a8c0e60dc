"""How long a rank waits for one that lives but takes no part."""

from typing import Final

from hulk_runtime.job.environment import Environment
from hulk_runtime.plan.wire import Plan

SILENT_STEPS: Final = 10
SILENT_ROUNDS: Final = 2


def peer_timeout_s(environment: Environment, plan: Plan, slowest_s: float = 0.0) -> float:
    """How long a rank waits for a peer within a step: a slow peer may take some steps' time, a lost one takes more.

    Between two outer steps of local SGD the ranks drift apart: a slow peer may take some rounds' time more. `slowest_s`
    is what the slowest rank computed for in the preflight, after which rank 0 alone waits for the go.
    """
    num_steps = SILENT_STEPS + SILENT_ROUNDS * (plan.inner_steps or 0)
    predicted_s = plan.prediction.step_seconds if plan.prediction else 0.0
    waits_s = environment.start_s if plan.preflight else 0.0
    return max(environment.silence_s, num_steps * max(predicted_s, slowest_s)) + waits_s
