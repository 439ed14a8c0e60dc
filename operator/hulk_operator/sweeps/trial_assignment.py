"""Which worker of a shared job has which trials: planned by SPASE, kept in a ConfigMap, planned again when times drift.

The first division goes by steps alone, as if a mini-batch of each trial took as long. Workers measure what it takes
(the sum of a trial's units); when that is further from the plan than `driftPercent`, and a new division of what is left
ends sooner by more than a restart takes, it is made. Only with checkpoints: without, a trial that moves begins anew.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from hulk_placement.sweep import Option, Problem, Trial, Worker, drift_of

from hulk_operator import names
from hulk_operator.api import HulkSweep
from hulk_operator.cluster import Object
from hulk_operator.sweeps.trial_jobs import metadata
from hulk_operator.sweeps.trials import Trial as SweepTrial

RESTART_S: Final = 60.0
"""What a new division must save to be made: stopping at a mini-batch, checkpoints, new pods, pilot runs."""

WORK: Final = 0.5
"""CP-SAT's deterministic seconds: some real ones for 100 trials."""

GUESS_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a trial: its steps, and the device time of one, as measured; None: not measured yet."""

    number: int
    steps: int
    step_s: float | None = None


@dataclass(frozen=True, slots=True)
class Division:
    """One division of trials among workers. `step_s`: what it was made with; `trials_of`: in their order."""

    version: int
    trials_of: tuple[tuple[int, ...], ...]
    step_s: Mapping[int, float]
    makespan_s: float
    bound_s: float
    num_measured: int = 0
    drift: float | None = None

    def worker_of(self, number: int) -> int | None:
        """The worker that has a trial; None: it had ended before."""
        return next((worker for worker, row in enumerate(self.trials_of) if number in row), None)


def divide(left: Iterable[Left], num_workers: int, num_devices: int, version: int = 1) -> Division:
    """The division that ends soonest; what was not measured takes as long as the median of what was."""
    from hulk_placement.sweep.spase import solve  # the solver takes more memory than all of the operator

    rows = {one.number: one for one in left}
    known = [one.step_s for one in rows.values() if one.step_s]
    step_s = {number: one.step_s or (median(known) if known else GUESS_S) for number, one in rows.items()}
    trials = tuple(Trial(str(n), (Option("shared", 1, step_s[n] * one.steps),)) for n, one in rows.items())
    workers = tuple(Worker(str(number), num_devices) for number in range(num_workers))
    plan = solve(Problem(trials, workers), WORK)
    by_worker = plan.by_worker()
    trials_of = tuple(tuple(int(one.trial) for one in by_worker.get(worker.name, ())) for worker in workers)
    return Division(version, trials_of, step_s, plan.makespan_s, plan.bound_s, len(known))


def divide_again(division: Division, left: Iterable[Left], num_devices: int, tolerance: float) -> Division | None:
    """Another division, where measured times have drifted and it pays; None: the one there is stays.

    Decided when the times of all that is left are measured.
    """
    rows = {one.number: one for one in left}
    measured = {str(one.number): one.step_s for one in rows.values() if one.step_s}
    if not rows or len(measured) < len(rows):
        return None
    drift = drift_of({str(number): seconds for number, seconds in division.step_s.items()}, measured)
    if drift is None or not drift.exceeds(tolerance):
        return None
    found = divide(rows.values(), len(division.trials_of), num_devices, division.version + 1)
    stays_s = makespan_s(division.trials_of, rows, num_devices)
    if makespan_s(found.trials_of, rows, num_devices) + RESTART_S >= stays_s:
        return None
    return replace(found, drift=drift.ratio)


def makespan_s(trials_of: Iterable[Iterable[int]], left: Mapping[int, Left], num_devices: int) -> float:
    """When the last worker is done: trials are sequential in themselves and share its devices evenly.

    >>> left = {n: Left(n, 10, seconds) for n, seconds in enumerate((1.0, 1.0, 4.0))}
    >>> makespan_s(((0, 1), (2,)), left, num_devices=2)
    40.0
    """
    return max((_worker_s([left[n] for n in row if n in left], num_devices) for row in trials_of), default=0.0)


def _worker_s(rows: list[Left], num_devices: int) -> float:
    seconds = [(one.step_s or GUESS_S) * one.steps for one in rows]
    return max(max(seconds), sum(seconds) / num_devices) if seconds else 0.0


def config_map(sweep: HulkSweep, division: Division, trials: Mapping[int, SweepTrial]) -> Object:
    """What each worker runs, and the division itself; immutable: another division has another name."""
    data = {names.TRIALS_PLAN_KEY: json.dumps(_wire(division), sort_keys=True)}
    for worker, row in enumerate(division.trials_of):
        if row:
            data[names.trials_key(worker)] = json.dumps(_document(sweep, [trials[number] for number in row]))
    name = names.trials_config_map(sweep.metadata.name, division.version)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(sweep, name, {}),
        "immutable": True,
        "data": data,
    }


def read(found: Object) -> Division:
    """The division in a ConfigMap that `config_map` made."""
    wire = json.loads(found["data"][names.TRIALS_PLAN_KEY])
    return Division(
        version=wire["version"],
        trials_of=tuple(tuple(row) for row in wire["trialsOf"]),
        step_s={int(number): seconds for number, seconds in wire["stepSeconds"].items()},
        makespan_s=wire["makespanSeconds"],
        bound_s=wire["boundSeconds"],
        num_measured=wire["measured"],
        drift=wire["drift"],
    )


def _wire(division: Division) -> dict[str, Any]:
    return {
        "version": division.version,
        "trialsOf": division.trials_of,
        "stepSeconds": division.step_s,
        "makespanSeconds": division.makespan_s,
        "boundSeconds": division.bound_s,
        "measured": division.num_measured,
        "drift": division.drift,
    }


def _document(sweep: HulkSweep, trials: list[SweepTrial]) -> dict[str, Any]:
    """A worker's file, as `hulk_runtime.sharp.trial_file` reads it."""
    asked, job = sweep.spec.sharp, sweep.spec.template.spec
    assert asked is not None, "the API server lets no sweep of mode sharp pass without it"
    devices: dict[str, Any] = {"kind": asked.devices, "count": job.workers.accelerators_per_worker}
    if asked.device_memory_bytes is not None:
        devices["memoryBytes"] = asked.device_memory_bytes
    return {
        "version": 1,
        "devices": devices,
        "scheduler": asked.scheduler,
        "doubleBuffer": asked.double_buffer,
        "trials": [
            {
                "name": short_name(trial.number),
                "model": asked.model,
                "parameters": {name: value_of(text) for name, text in trial.values.items()},
                "steps": job.training.steps,
                "seed": asked.seed,
            }
            for trial in trials
        ],
    }


def short_name(number: int) -> str:
    """A trial's name inside a worker: 100 of them must fit into a termination message.

    >>> short_name(7), number_of("t7"), number_of("other")
    ('t7', 7, None)
    """
    return f"t{number}"


def number_of(name: str) -> int | None:
    """The trial of that short name."""
    return int(name[1:]) if name[:1] == "t" and name[1:].isdecimal() else None


def value_of(text: str) -> str | int | float | bool:
    """What a model's function gets: a number or a truth value where the text is one in JSON, else the text.

    >>> value_of("0.1"), value_of("64"), value_of("true"), value_of("adam"), value_of("[1]"), value_of("NaN")
    (0.1, 64, True, 'adam', '[1]', 'NaN')
    """
    try:
        found = json.loads(text, parse_constant=lambda word: word)
    except ValueError:
        return text
    return found if isinstance(found, int | float | bool) else text
