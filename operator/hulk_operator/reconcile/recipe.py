"""The reconcile of one HulkJob, read from top to bottom: every step, and every API write that each may cause.

    foreign        another controller's job is not touched
    deleting       owner references clean up
    saved          the last step and checkpoint of an attempt that has ended
    sweep          children of attempts that are over are deleted
    held           pods that have ended are held by finalizers of others, and that is said
    workload       Kueue is told what became of a job of its queues
    finish         a finished job waits for its ttl
    suspend/resume pods are released / a new active time begins
    deadline       active for too long
    regions        the gang goes on without a region that was cut off, and says so
    complete       every worker ended well; where more steps are asked for by now, another attempt follows
    broken         a worker failed or was taken away: count it, release the gang
    stalled        rank 0 makes neither a step nor output for too long: count it, release the gang
    changed        the attempt was made of another spec: release the gang
    resize         spec.workers asks for another number: release the gang
    evict          Kueue does not admit the gang any more, or not there: release it
    queue          the queue gives the gang another number of workers, other machines or none: release it
    replan         links drifted or nodes were added, and another plan pays: release the gang
    degraded       a region was left out, or a node of the gang is not ready, and that is borne
    gated          pods wait behind scheduling gates of others, and that is said
    stuck          a container cannot start: release the gang
    start-timeout  the gang is not up in time: release it, avoid the nodes
    backoff        wait after a bad end
    drain          wait for pods that still end
    admit          ask the API server, by a dry run, whether it takes a worker's pod
    admitted       a job of Kueue's queues waits for its admission
    plan           ask the planning pass; commit its plan
    deploy         create what the plan needs; pods that stay become workers of it
    up             the gang is up
    preflight      predict from what the pods measured; keep that, or what the first steps took where there was none,
                   and what a poll says of links
    start          let the first step begin
    observe        write down how it goes, and what it says of links

Steps see the status as the steps before them left it; the pass ends in one status write (`STATUS_WRITE`), preceded by
the events of what changed (`EVENTS_WRITE`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hulk_operator.reconcile.steps import (
    admission,
    cleanup,
    deploy,
    failures,
    foreign_holds,
    kueue,
    lifecycle,
    planning,
    queueing,
    replanning,
    resize,
    stall,
    start_failures,
    termination,
    training,
)
from hulk_operator.reconcile.types import Action, Call, Step, View

RECIPE: Final = (
    Step("foreign", lifecycle.foreign),
    Step("deleting", lifecycle.deleting),
    Step("saved", termination.saved),
    Step(
        "sweep",
        cleanup.sweep,
        writes=("delete pods", "delete services", "delete networkpolicies", "delete configmaps", "delete podgroups"),
    ),
    Step("held", foreign_holds.held),
    Step("workload", kueue.report, writes=("patch workloads/status", "patch workloads", "delete workloads")),
    Step("finish", lifecycle.finish, writes=("delete hulkjobs",)),
    Step("suspend", lifecycle.suspend),
    Step("resume", lifecycle.resume),
    Step("deadline", lifecycle.deadline),
    Step("regions", training.regions),
    Step("complete", training.complete),
    Step("broken", failures.broken),
    Step("stalled", stall.stalled),
    Step("changed", resize.changed),
    Step("resize", resize.resize),
    Step("evict", kueue.obey),
    Step("queue", queueing.obey),
    Step("replan", replanning.move),
    Step("degraded", failures.degraded),
    Step("gated", foreign_holds.gated),
    Step("stuck", start_failures.stuck),
    Step("start-timeout", start_failures.start_timeout),
    Step("backoff", planning.backoff),
    Step("drain", cleanup.drain),
    Step("admit", admission.admit),
    Step("admitted", kueue.admitted, writes=("create workloads", "patch workloads", "delete workloads")),
    Step("plan", planning.ensure_plan),
    Step(
        "deploy",
        deploy.deploy,
        writes=(
            "create configmaps",
            "create services",
            "create networkpolicies",
            "create secrets",
            "create podgroups",
            "patch configmaps",
            "patch pods",
            "create pods",
        ),
    ),
    Step("up", deploy.up),
    Step("preflight", training.preflight, writes=("apply nodeprofiles/status", "patch nodeprofiles/status")),
    Step("start", training.start),
    Step("observe", training.observe, writes=("apply nodeprofiles/status",)),
)
KUEUE: Final = frozenset({"workload", "evict", "admitted"})
"""Steps that do nothing for a job that is in no queue of Kueue's."""
POD_GROUPS: Final = frozenset({("sweep", "delete podgroups"), ("deploy", "create podgroups")})
"""Writes of an operator that makes PodGroups."""
EVENTS_WRITE: Final = ("events", "create events")
STATUS_WRITE: Final = ("status", "patch hulkjobs/status")


def writes() -> tuple[tuple[str, str], ...]:
    """Every (step, API write) of a pass, in order."""
    of_steps = [(step.name, write) for step in RECIPE for write in step.writes]
    return (*of_steps, EVENTS_WRITE, STATUS_WRITE)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a whole pass decides: the view as the steps left it, and the actions by the step that asks for them."""

    view: View
    actions: tuple[tuple[Step, Action], ...]
    requeue_after_s: float | None

    @property
    def calls(self) -> tuple[tuple[Step, Call], ...]:
        """What is asked of workers, beside the pass."""
        return tuple((step, action) for step, action in self.actions if isinstance(action, Call))

    @property
    def own_actions(self) -> tuple[tuple[Step, Action], ...]:
        """What the pass itself does."""
        return tuple((step, action) for step, action in self.actions if not isinstance(action, Call))


def decide(view: View, recipe: Sequence[Step] = RECIPE) -> Decision:
    """Run the steps in order until one stops the pass."""
    actions: list[tuple[Step, Action]] = []
    waits_s: list[float] = []
    for step in recipe:
        outcome = step.decide(view)
        actions.extend((step, action) for action in outcome.actions)
        if outcome.status is not None:
            view = replace(view, status=outcome.status)
        if outcome.requeue_after_s is not None:
            waits_s.append(outcome.requeue_after_s)
        if outcome.stop:
            break
    return Decision(view, tuple(actions), min(waits_s, default=None))
