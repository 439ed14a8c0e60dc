"""What training takes, by what a worker draws and how long steps take: no clock is asked, so none can jump."""

from hulk_operator.api import EnergyStatus
from hulk_operator.inputs.utilities import watts_per_worker
from hulk_operator.observation import Observation
from hulk_operator.reconcile.attempt_state import num_workers
from hulk_operator.reconcile.types import View


def energy(view: View, seen: Observation) -> EnergyStatus | None:
    """The joules with the steps since the last look; of a new attempt, with those since its checkpoint."""
    known, watts, attempt = view.status.energy, watts_per_worker(view.job), view.status.attempt
    if not watts or seen.step is None or not seen.step_s:
        return known
    kept = view.status.checkpoint.step if view.status.checkpoint else 0
    begin = known.step if known and known.attempt == attempt else min(kept, seen.step)
    joules = max(0, seen.step - begin) * seen.step_s * watts * num_workers(view)
    return EnergyStatus(
        joules=round(joules) + (known.joules if known else 0), attempt=attempt, step=max(begin, seen.step)
    )
