"""What workers are worth to a job now: its utility's concave hull over the look-ahead, as gain for a number of workers.

A sigmoid is worth nothing before its midpoint, so what counts is not the next slot's gain but the best gain per sample
that the job can reach within the look-ahead: the slope of the hull from where it stands. All slopes are logarithms:
e^-1000 is still more than e^-1001.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hulk_placement.fleet.place import place
from hulk_placement.fleet.problem import Problem
from hulk_placement.fleet.room import Floats, Room, reservation, workers
from hulk_placement.fleet.types import Job, Mapped, Settings
from hulk_placement.fleet.utility import UtilityKind

EVENLY = np.linspace(0.0, 1.0, 17)[1:]
ABOUT = np.linspace(-6.0, 16.0, 23)
"""Of a sigmoid's midpoint, where it does all that it does, in units of 1 / steepness."""

LINEAR = (UtilityKind.THROUGHPUT, UtilityKind.ENERGY, UtilityKind.DEADLINE)
MOST_COUNTS = 12
"""Numbers of workers that are looked at of one job: all, where there are no more; gain between them is on the line."""


Places = dict[tuple[object, ...], dict[str, int] | None]


@dataclass(frozen=True, slots=True)
class Hull:
    """Upper hull of gain over samples from where a job stands; gains are e^`log_scale` × `gains`."""

    samples: Floats
    gains: Floats
    log_scale: float

    def gain(self, samples: float) -> float:
        """Of so many more samples, in units of e^log_scale."""
        return float(np.interp(samples, self.samples, self.gains))


@dataclass(frozen=True, slots=True)
class Worth:
    """Gain per second for each of some numbers of workers, ascending, the first 0; in units of e^`log_scale`.

    `rates` are samples per second. What moving costs is in the gains already, and the namespace's share in the scale.
    """

    job: Job
    counts: tuple[int, ...]
    rates: tuple[float, ...]
    gains: tuple[float, ...]
    log_scale: float
    hull: Hull

    def gain(self, count: int) -> float:
        """Of any number of workers: between known ones as on the line."""
        if count < self.counts[1 if len(self.counts) > 1 else 0]:
            return 0.0
        return float(np.interp(count, self.counts, self.gains))


def hull_of(job: Job, rate: float, window_s: float, now_s: float) -> Hull:
    """The hull over what the job can do within the look-ahead at so many samples per second.

    A deadline is looked ahead to however far away it is: it is in reach at that rate, or the job is late already.
    """
    deadline_s, late = job.utility.deadline_s, False
    if job.utility.kind is UtilityKind.DEADLINE and deadline_s is not None:
        late = job.left > rate * max(0.0, deadline_s - now_s)
        window_s = window_s if late else max(window_s, deadline_s - now_s)
    reach = min(job.left, rate * window_s) if rate else 0.0
    points = np.array([reach]) if job.utility.kind in LINEAR else _points(job, reach)
    points = points[points > 0]
    log_gains = job.utility.log_gain(job.work_done, job.work_done + points, job.total_work, late)
    log_scale = float(log_gains.max(initial=-np.inf))
    if not math.isfinite(log_scale):
        return Hull(np.array([0.0, 1.0]), np.zeros(2), -math.inf)
    gains = np.exp(log_gains - log_scale)
    samples, gains = upper_hull(np.concatenate([[0.0], points]), np.concatenate([[0.0], gains]))
    return Hull(samples, gains, log_scale)


def _points(job: Job, reach: float) -> Floats:
    """Where the hull may have corners: evenly spread, and about a sigmoid's midpoint, where it rises."""
    even, utility = reach * EVENLY, job.utility
    if utility.kind is not UtilityKind.SIGMOID:
        return even
    around = (utility.midpoint or 0.0) + ABOUT / (utility.steepness or 1.0) - job.work_done
    around = around[(around > 0) & (around < reach)]
    return np.sort(np.concatenate([even, around])) if around.size else even


def upper_hull(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Corners of the concave hull of points with ascending x, up to the highest; flat from there on."""
    last = int(np.argmax(y))
    kept_x: list[float] = []
    kept_y: list[float] = []
    for here_x, here_y in zip(x[: last + 1].tolist(), y[: last + 1].tolist(), strict=True):
        while len(kept_x) > 1 and (kept_y[-1] - kept_y[-2]) * (here_x - kept_x[-2]) <= (here_y - kept_y[-2]) * (
            kept_x[-1] - kept_x[-2]
        ):
            kept_x.pop()
            kept_y.pop()
        kept_x.append(here_x)
        kept_y.append(here_y)
    if last + 1 < len(x):
        kept_x.append(float(x[-1]))
        kept_y.append(kept_y[-1])
    return np.array(kept_x), np.array(kept_y)


def worth_of(problem: Problem, room: Room, job: Job, known: Places) -> Worth:
    """What each number of workers is worth to the job, on machines that are best for it were all empty.

    `known` keeps where jobs alike go, for the next one.
    """
    settings, held = problem.settings, problem.held.get(job.key, {})
    counts, rates = _rates(problem, room, job, known)
    window_s, slot_s = _window_s(problem), _slot_s(problem)
    hull = hull_of(job, max(rates), window_s, problem.now_s)
    plain = [_per_second(job, hull, count, rate, slot_s) for count, rate in zip(counts, rates, strict=True)]
    keeping = workers(held) if held else 0
    gains = [
        gain * _kept_share(settings, job, rate, window_s, bool(held)) if count != keeping else gain
        for count, rate, gain in zip(counts, rates, plain, strict=True)
    ]
    log_scale = hull.log_scale + math.log(settings.shares.get(job.namespace, 1.0))
    return Worth(job, tuple(counts), tuple(rates), tuple(gains), log_scale, hull)


def all_worths(problem: Problem) -> dict[str, Worth]:
    """The worth of every job of a question, by key."""
    if not problem.worths:
        room = problem.room()
        known: Places = {}
        problem.worths.update({job.key: worth_of(problem, room, job, known) for job in problem.jobs})
    return problem.worths


def mapping_gain(problem: Problem, worth: Worth, mapping: Mapped) -> float:
    """Gain per second of a job on these very machines, in units of e^log_scale of its worth."""
    settings, job = problem.settings, worth.job
    rate, count, held = problem.rate(job, mapping), workers(mapping), problem.held.get(job.key)
    gain = _per_second(job, worth.hull, count, rate, _slot_s(problem))
    if held is not None and dict(held) == dict(mapping):
        return gain
    return gain * _kept_share(settings, job, rate, _window_s(problem), bool(held))


def moved_gain(problem: Problem, worth: Worth, count: int) -> float:
    """Gain per second of a job with so many workers on machines that are best for it and not all those that it has."""
    held = problem.held.get(worth.job.key)
    if held is None or workers(held) != count or count not in worth.counts:
        return worth.gain(count)
    rate = worth.rates[worth.counts.index(count)]
    return worth.gain(count) * _kept_share(problem.settings, worth.job, rate, _window_s(problem), True)


def _window_s(problem: Problem) -> float:
    """How far is looked ahead."""
    settings = problem.settings
    return min(settings.slot_s * settings.lookahead_slots, max(0.0, settings.until_s - problem.now_s))


def _slot_s(problem: Problem) -> float:
    """Seconds that a decision holds."""
    return min(problem.settings.slot_s, _window_s(problem)) or problem.settings.slot_s


def _per_second(job: Job, hull: Hull, count: int, rate: float, slot_s: float) -> float:
    """Gain per second with so many workers, until the slot ends or the job does, less what its power costs."""
    if not rate:
        return 0.0
    busy_s = min(slot_s, job.left / rate)
    return hull.gain(rate * busy_s) / busy_s - _power(job, count, hull)


def _power(job: Job, count: int, hull: Hull) -> float:
    if job.utility.kind is not UtilityKind.ENERGY or not math.isfinite(hull.log_scale):
        return 0.0
    return job.utility.power_cost(count, job.watts_per_worker) * math.exp(-hull.log_scale)


def _kept_share(settings: Settings, job: Job, rate: float, window_s: float, is_held: bool) -> float:
    """Of the gain until the job is done or the look-ahead ends, what a restart leaves."""
    if not rate or not job.restart_s or not settings.restart_costs:
        return 1.0
    hysteresis = settings.hysteresis if is_held else 0.0
    stay_s = min(window_s, job.left / rate)
    return max(0.01, 1 - (1 + hysteresis) * job.restart_s / max(stay_s, 1e-9))


def _rates(problem: Problem, room: Room, job: Job, known: Places) -> tuple[list[int], list[float]]:
    """Numbers of workers that are looked at, from 0, and samples per second with each."""
    most = min(job.max_workers, int(room.most(job).sum()))
    if most < job.min_workers:
        return [0], [0.0]
    wanted = set(range(job.min_workers, most + 1))
    if len(wanted) > MOST_COUNTS:
        wanted = {int(count) for count in np.geomspace(job.min_workers, most, MOST_COUNTS).round()}
    if job.key in problem.held:
        wanted.add(min(most, workers(problem.held[job.key])))
    counts, rates = [0], [0.0]
    for count in sorted(wanted):
        mapping = _place(room, job, count, known)
        rate = problem.rate(job, mapping) if mapping else 0.0
        if rate > 0:
            counts.append(count)
            rates.append(rate)
    return counts, rates


def _place(room: Room, job: Job, count: int, known: Places) -> dict[str, int] | None:
    """Where so many workers go in an empty cluster; looked up where a job alike has asked before."""
    if job.candidates is not None:
        return place(room, job, count)
    alike = (
        job.accelerators_per_worker,
        job.memory_bytes_per_worker,
        job.allow_unknown_links,
        room.quota_left(job),
        count,
    )
    found = known.get(alike)
    if found is not None and len(found) == 1:
        return found  # inside a machine no bandwidth is reserved
    key = (*alike, reservation(job))
    if key not in known:
        known[key] = known[alike] = place(room, job, count)
    return known[key]
