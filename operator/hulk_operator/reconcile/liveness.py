"""Which nodes of a gang are silent while nobody trains: so a lost node is known long before Kubernetes says it.

Each poll knocks at a pod of every node, and asks how far the training is. A pod whose node lives answers, and be it
with a refusal; that it does not may also be the operator's own network. So a node counts as lost only where others
answer, the gang has trained, and no rank has made a step since:

    answers of a, b, c    steps since    the node that is silent
    b silent              none           is lost after `silent_s`, and after the time of two steps
    b silent              some           is cut off from the operator, not from its peers: nothing is done
    all silent            unknown        it is the operator that is cut off: nothing is done
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from hulk_operator.observation import Observation

STEPS_OF_PATIENCE: Final = 2


@dataclass(frozen=True, slots=True)
class Hearing:
    """What was heard of an attempt's nodes.

    `time`: of the last poll. `step`: the last that any rank is known to have made, `stepped`: when it was first heard
    of; None before the first. `silent`: since when each node that did not answer last has not. `num_heard`: those that
    did.
    """

    attempt: int
    time: datetime
    step: int = 0
    stepped: datetime | None = None
    step_s: float = 0.0
    silent: Mapping[str, datetime] = field(default_factory=dict)
    num_heard: int = 0

    def lost(self, silent_s: float) -> dict[str, float]:
        """The nodes that are lost, each with the seconds that it has been silent for, to the last poll."""
        if self.stepped is None or not self.num_heard:
            return {}
        patience_s = max(silent_s, STEPS_OF_PATIENCE * self.step_s)
        found = {}
        for node, since in self.silent.items():
            if (self.time - max(since, self.stepped)).total_seconds() >= patience_s:
                found[node] = (self.time - since).total_seconds()
        return found


def listen(
    before: Hearing | None, attempt: int, now: datetime, seen: Observation | None, answers: Mapping[str, bool]
) -> Hearing:
    """What is known after one more poll: `seen` of the training, and by node whether it answered."""
    known = before if before is not None and before.attempt == attempt else Hearing(attempt, now)
    step, stepped, step_s = known.step, known.stepped, known.step_s
    said = _last_step(seen, attempt)
    if said > step:
        step, stepped = said, now
    if seen is not None and seen.step_s:
        step_s = seen.step_s
    silent = {node: known.silent.get(node, now) for node, answered in answers.items() if not answered}
    return Hearing(attempt, now, step, stepped, step_s, silent, len(answers) - len(silent))


def _last_step(seen: Observation | None, attempt: int) -> int:
    """What is said of this attempt; 0 for nothing."""
    if seen is None:
        return 0
    of_all = seen.step if seen.attempt == attempt else None
    own = seen.own_step if seen.own_attempt == attempt else None
    return max(of_all or 0, own or 0)
