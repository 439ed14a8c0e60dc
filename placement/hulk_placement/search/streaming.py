"""Local SGD's fragments and delay: as the job says, else those that hide what replicas send at the least harm.

A delay costs the loss a little, fragments do not (docs/benchmarks/compression.md). So of all that come within TOLERATED
of the best utilisation there is, the smallest delay is chosen, and then the fewest fragments. A fragment is merged by
the time the next one's sum begins: its delay is at most an even part of the round. The smallest delay that is enough
leaves no room by itself, so that a sum which takes a little longer than predicted would be waited for each time: for
the choice sums are taken to be SLACK as long.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace

from hulk_placement.cost.fragments import fragment_shares, num_units
from hulk_placement.cost.memory import fits
from hulk_placement.cost.predict import fragment_sum, predict, stage_groups
from hulk_placement.cost.streaming import waited_seconds
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

TOLERATED = 0.01
"""A part of the best utilisation, or of the shortest step: so much is given for what harms the loss less."""

SLACK = 1.25
"""Of the seconds of a sum: how much later it may come than predicted."""

MOST_FRAGMENTS = 16


def predicted(plan: Plan, workload: Workload, topology: Topology) -> Plan:
    """The plan with its prediction; where replicas train apart, with fragments and a delay."""
    rounds, plain = workload.sync.rounds, replace(plan, prediction=predict(plan, workload, topology))
    if plan.inner_steps is None:
        return plain
    is_open = plan.layout.data > 1 and None in (rounds.fragments, rounds.delay_steps)
    least = rounds.least_fragments, rounds.least_delay
    fragments, delay = Options(plain, workload, topology).choice() if is_open else least
    if (fragments, delay) == (plain.fragments, plain.delay_steps):
        return plain
    streaming = replace(plan, fragments=fragments, delay_steps=delay)
    return replace(streaming, prediction=predict(streaming, workload, topology))


@dataclass(frozen=True, slots=True)
class Options:
    """What a plan's fragments and delay may be, and what training then waits. The plan is predicted in one piece."""

    plan: Plan
    workload: Workload
    topology: Topology
    _sums: dict[float, tuple[float, float]] = field(init=False, default_factory=dict)
    _fitting: dict[tuple[int, int], bool] = field(init=False, default_factory=dict)

    @property
    def num_steps(self) -> int:
        """Steps of a round."""
        return self.plan.inner_steps or 1

    def choice(self) -> tuple[int, int]:
        """Fragments and delay."""
        if self.utilisation(*self._least(), SLACK) >= 1 - TOLERATED:
            return self._least()
        wanted = self.best() * (1 - TOLERATED)
        found = []
        for fragments in self.numbers():
            delays = self.delays(fragments)
            place = bisect_left(delays, True, key=lambda delay: self.utilisation(fragments, delay, SLACK) >= wanted)
            if place < len(delays):
                found.append((delays[place], fragments))
        delay, fragments = min(found)
        return fragments, delay

    def best(self) -> float:
        """The best utilisation there is: more delay never harms it."""
        return max(self.utilisation(number, self.delays(number)[-1], SLACK) for number in self.numbers())

    def numbers(self) -> range:
        """Of fragments. Where layers are not known the runtime takes as many as there are."""
        given, model = self.workload.sync.rounds.fragments, self.workload.model
        most = min(MOST_FRAGMENTS, self.num_steps)
        if model.is_counted:
            most = min(most, max(1, num_units(model.trained_sizes)))
        return range(1, most + 1) if given is None else range(given, given + 1)

    def delays(self, fragments: int) -> range:
        """In steps; where the planner chooses, as many as there is memory for."""
        given = self.workload.sync.rounds.delay_steps
        if given is not None:
            return range(given, given + 1)
        most = min(self.num_steps // fragments, self.num_steps - 1)
        for latest in (most, most - 1):  # one step less, and no two are under way at once
            if latest > 0 and self._fits(fragments, latest):
                return range(latest + 1)
        return range(1)

    def utilisation(self, fragments: int, delay: int, slack: float = 1.0) -> float:
        """The part of a step in which replicas do not wait for one another; with sums so many times as long."""
        prediction = self.plan.prediction
        step_s = prediction.step_s - prediction.communication_s + prediction.tied_s
        shares = fragment_shares(self.workload.model.trained_sizes, fragments)
        timed = [(slack * seconds, slack * taken_s) for seconds, taken_s in map(self._sum, shares)]
        waited_s = waited_seconds(step_s, self.num_steps, delay, timed) / self.num_steps
        whole_s = step_s + waited_s
        return (step_s - prediction.tied_s) / whole_s if whole_s else 1.0

    def _fits(self, fragments: int, delay: int) -> bool:
        """Whether there is memory for what is under way; for all of the model, to know it of any."""
        for asked in ((1, 1), (fragments, delay)):
            if asked not in self._fitting:
                plan = replace(self.plan, fragments=asked[0], delay_steps=asked[1])
                self._fitting[asked] = fits(plan, self.workload, self.topology)
            if self._fitting[asked]:
                return True
        return not self.workload.model.is_counted

    def _least(self) -> tuple[int, int]:
        return self.numbers()[0], self.delays(self.numbers()[0])[0]

    def _sum(self, share: float) -> tuple[float, float]:
        if share not in self._sums:
            groups = stage_groups(self.plan, self.workload)
            time, taken_s = fragment_sum(self.plan, self.workload, self.topology, groups, share)
            self._sums[share] = time.seconds, taken_s
        return self._sums[share]
