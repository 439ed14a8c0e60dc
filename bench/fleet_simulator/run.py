"""The event loop: arrivals, ends of jobs and slots make decisions; between them work goes on at constant speeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hulk_placement.fleet.decide import decide
from hulk_placement.fleet.problem import ask
from hulk_placement.fleet.room import workers
from hulk_placement.fleet.types import Allocation, Job, MoveKind

from bench.fleet_simulator.policies import OVERRUNNING, POLICIES
from bench.fleet_simulator.policies.paper import overruns
from bench.fleet_simulator.scenario import Scenario
from bench.fleet_simulator.state import Life, Span

CLOSE_S = 1e-6
MOST_EVENTS = 100_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one policy.

    `makespan_s` is from the first arrival to the last end, or to the simulation's end where jobs are left;
    `completions_s` are the times from arrival to end of jobs that are done.
    """

    policy: str
    utility: float
    utilities: Mapping[str, float]
    job_joules: Mapping[str, float]
    makespan_s: float
    completions_s: Mapping[str, float]
    utilisation: float
    moves: Mapping[str, int]
    joules: float
    shares: Mapping[str, float]
    overruns: tuple[str, ...]
    spans: tuple[Span, ...]
    num_decisions: int
    longest_decision_s: float


def simulate(scenario: Scenario, clock: Callable[[], float] = lambda: 0.0) -> Outcome:
    """One policy's outcome; `clock` is what decisions are timed by."""
    return _Run(scenario, clock).outcome()


class _Run:
    """A simulation under way."""

    def __init__(self, scenario: Scenario, clock: Callable[[], float]) -> None:
        self.scenario, self.clock = scenario, clock
        self.settings = replace(scenario.settings, until_s=scenario.until_s, explain=False)
        self.coming = sorted(scenario.jobs, key=lambda job: job.arrived_s)
        self.now_s = self.first_s = min((job.arrived_s for job in scenario.jobs), default=0.0)
        self.lives: dict[str, Life] = {}
        self.overruns: list[str] = []
        self.moves = dict.fromkeys(MoveKind, 0)
        self.num_decisions, self.longest_s = 0, 0.0

    def outcome(self) -> Outcome:
        """Run to the end and add up."""
        for _ in range(MOST_EVENTS):
            self._arrive()
            live = [life for life in self.lives.values() if life.ended_s is None]
            if self.now_s >= self.scenario.until_s or not (live or self.coming):
                break
            if live:
                self._decide(live)
            if not self._advance(live):
                break
        else:
            raise ValueError(
                f"policy {self.settings.policy}: after {MOST_EVENTS} events, at {self.now_s:.4g} s, "
                f"{len(live)} jobs are not done: give an end, longer slots, or jobs that get anywhere"
            )
        return self._summed()

    def _arrive(self) -> None:
        while self.coming and self.coming[0].arrived_s <= self.now_s + CLOSE_S:
            job = self.coming.pop(0)
            self.lives[job.key] = Life(job)

    def _decide(self, live: list[Life]) -> None:
        running = {life.job.key: life.mapping for life in live if life.mapping}
        jobs, begun_s = [life.as_job() for life in live], self.clock()
        asked = (self.now_s, jobs, self.scenario.topology, running, self.scenario.step_times, self.settings)
        decision = decide(*asked, POLICIES)
        self.longest_s = max(self.longest_s, self.clock() - begun_s)
        self.num_decisions += 1
        if self.settings.policy in OVERRUNNING:
            self.overruns += overruns(ask(*asked), decision.workers)
        self._carry_out(decision)

    def _carry_out(self, decision: Allocation) -> None:
        for move in decision.moves:
            self.moves[move.kind] += 1
            self.lives[move.job].move(dict(move.after), self.now_s)

    def _advance(self, live: list[Life]) -> bool:
        """On to the next event; False where there is none any more."""
        rates = self._rates(live)
        next_s = min(self._times(live, rates), default=math.inf)
        if math.isinf(next_s):
            return False
        next_s = min(max(next_s, self.now_s + CLOSE_S), self.scenario.until_s)
        for life in live:
            life.go_on(self.now_s, next_s, rates.get(life.job.key, 0.0))
        self.now_s = next_s
        return True

    def _rates(self, live: list[Life]) -> dict[str, float]:
        running = {life.job.key: life.mapping for life in live if life.mapping}
        jobs: dict[str, Job] = {life.job.key: life.job for life in live}
        steps_s = self.scenario.speeds.steps_s(jobs, running)
        return {key: jobs[key].step_work(workers(mapping)) / steps_s[key] for key, mapping in running.items()}

    def _times(self, live: list[Life], rates: Mapping[str, float]) -> list[float]:
        """When something happens next: an arrival, an end, a slot's end while somebody runs."""
        times = [job.arrived_s for job in self.coming[:1]]
        for life in live:
            if rates.get(life.job.key):
                times.append(max(self.now_s, life.ready_s) + life.left / rates[life.job.key])
        if rates:
            slot_s = self.settings.slot_s
            times.append(slot_s * (math.floor((self.now_s + CLOSE_S) / slot_s) + 1))
        return times

    def _summed(self) -> Outcome:
        lives = list(self.lives.values())
        ends_s = [life.ended_s for life in lives if life.ended_s is not None]
        last_s = max(ends_s, default=self.now_s) if len(ends_s) == len(self.scenario.jobs) else self.now_s
        num = sum(machine.num_accelerators for machine in self.scenario.topology.machines)
        span_s = max(last_s - self.first_s, CLOSE_S)
        utilities = {life.job.key: life.utility() for life in lives}
        served: dict[str, float] = {}
        for life in lives:
            served[life.job.namespace] = served.get(life.job.namespace, 0.0) + life.served_s
        total_s = sum(served.values()) or 1.0
        return Outcome(
            policy=self.settings.policy,
            utility=sum(utilities.values()),
            utilities=utilities,
            job_joules={life.job.key: life.joules for life in lives},
            makespan_s=last_s - self.first_s,
            completions_s={
                life.job.key: life.ended_s - life.job.arrived_s for life in lives if life.ended_s is not None
            },
            utilisation=sum(served.values()) / max(1, num) / span_s,
            moves={kind.value: number for kind, number in self.moves.items()},
            joules=sum(life.joules for life in lives),
            shares={namespace: held_s / total_s for namespace, held_s in served.items()},
            overruns=tuple(self.overruns),
            spans=tuple(span for life in lives for span in life.all_spans(self.now_s)),
            num_decisions=self.num_decisions,
            longest_decision_s=self.longest_s,
        )
