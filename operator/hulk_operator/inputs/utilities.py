"""spec.utility -> the fleet's `Utility`: decimals as numbers, a deadline as a moment. Work is counted in sequences."""

from hulk_placement.fleet.utility import Utility, UtilityKind

from hulk_operator.api import HulkJob


def to_utility(job: HulkJob) -> Utility:
    """What the job's work is worth; ValueError with the numbers where that means nothing."""
    asked = job.spec.utility
    sigmoid, scale, energy = asked.sigmoid, asked.proportional, asked.energy
    return Utility(
        kind=UtilityKind(asked.type),
        weight=float(asked.weight),
        steepness=float(sigmoid.steepness) if sigmoid else None,
        midpoint=float(sigmoid.midpoint) if sigmoid else None,
        scale=float(scale.scale) if scale else 1.0,
        deadline_s=deadline_s(job),
        late_share=float(asked.deadline.late_share) if asked.deadline else 0.1,
        power_price=float(energy.power_price) if energy and energy.power_price is not None else None,
    )


def deadline_s(job: HulkJob) -> float | None:
    """The moment by which all steps are to be made, in seconds since 1970; None without one."""
    asked, created = job.spec.utility.deadline, job.metadata.creation_timestamp
    if asked is None:
        return None
    if asked.at is not None:
        return asked.at.timestamp()
    return (created.timestamp() if created else 0.0) + float(asked.after_seconds or 0)


def watts_per_worker(job: HulkJob) -> float:
    """What a worker draws; 0 where nothing says so."""
    energy = job.spec.utility.energy
    return float(energy.watts_per_worker) if energy else 0.0


def is_declared(job: HulkJob) -> bool:
    """Whether the job says what its work is worth, beyond what every job's is."""
    asked = job.spec.utility
    return asked.type != "throughput" or float(asked.weight) != 1.0
