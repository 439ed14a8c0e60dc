"""A lost node is known by who answers and who trains: what counts as lost, what follows, what is never taken for it."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.api import AvoidedNode, ConditionType
from hulk_operator.cluster import CONFIG_MAPS
from hulk_operator.observation import Expected, Observation, ObserveError
from hulk_operator.pods import gang_config_map
from hulk_operator.pods.orders import NO_ORDERS
from hulk_operator.reconcile.liveness import Hearing, listen
from hulk_operator.reconcile.polling import furthest, knock
from hulk_operator.reconcile.recipe import Decision, decide
from hulk_operator.reconcile.types import Memory, Poll, RequestPlan, Sighting, Write
from hulk_operator.status import condition
from hypothesis import given
from hypothesis import strategies as st
from views import LAUNCHED, NODES, NOW, ago, deploying, failure_of, full, gang, job, pod, running, status, view

SILENT_S = 3.0
TRAINS = Observation(attempt=1, step=7, step_s=0.5)
ALL = dict.fromkeys(NODES, True)
NODE_1 = {**ALL, "node-1": False}
NOBODY = dict.fromkeys(NODES, False)


def own(step: int, attempt: int = 1) -> Observation:
    """What a worker says that does not speak for the job."""
    return Observation(own_attempt=attempt, own_step=step)


def heard(*polls: tuple[float, Observation | None, dict[str, bool]], attempt: int = 1) -> Hearing:
    """After polls, each so many seconds from the start."""
    found = None
    for second, seen, answers in polls:
        found = listen(found, attempt, at(second), seen, answers)
    assert found is not None
    return found


def at(second: float) -> datetime:
    return NOW + timedelta(seconds=second)


@pytest.mark.parametrize(
    ("name", "polls", "expected"),
    [
        ("all answer", [(0, TRAINS, ALL), (9, TRAINS, ALL)], {}),
        ("silent, and no step", [(0, TRAINS, ALL), (3, TRAINS, NODE_1), (6, TRAINS, NODE_1)], {"node-1": 3.0}),
        ("silent once", [(0, TRAINS, ALL), (3, TRAINS, NODE_1)], {}),
        ("silent for too short", [(0, TRAINS, ALL), (3, TRAINS, NODE_1), (5, TRAINS, NODE_1)], {}),
        ("it answers again", [(0, TRAINS, ALL), (3, TRAINS, NODE_1), (5, TRAINS, ALL), (6, TRAINS, NODE_1)], {}),
        ("the others train on", [(0, TRAINS, ALL), (3, TRAINS, NODE_1), (6, own(8), NODE_1)], {}),
        ("rank 0 is cut off too", [(0, TRAINS, ALL), (3, own(7), NODE_1), (6, own(7), NODE_1)], {"node-1": 3.0}),
        ("a step long ago", [(0, TRAINS, ALL), (60, None, NODE_1), (63, None, NODE_1)], {"node-1": 3.0}),
        ("nobody answers: it is the operator", [(0, TRAINS, ALL), (3, None, NOBODY), (9, None, NOBODY)], {}),
        ("it has not trained yet", [(0, None, ALL), (3, None, NODE_1), (9, None, NODE_1)], {}),
        ("steps of an attempt before", [(0, own(7, 0), ALL), (3, None, NODE_1), (9, None, NODE_1)], {}),
    ],
)
def test_a_node_is_lost_when_it_is_silent_others_answer_and_nobody_trains(
    name: str, polls: list[tuple[float, Observation | None, dict[str, bool]]], expected: dict[str, float]
) -> None:
    assert heard(*polls).lost(SILENT_S) == expected, name


def test_a_long_step_is_waited_for() -> None:
    slow = replace(TRAINS, step_s=4.0)
    polls = [(0.0, slow, ALL), (3.0, slow, NODE_1), (6.0, slow, NODE_1)]
    assert heard(*polls).lost(SILENT_S) == {}
    assert heard(*polls, (11.0, slow, NODE_1)).lost(SILENT_S) == {"node-1": 8.0}


def test_another_attempt_begins_with_nothing_heard() -> None:
    before = heard((0, TRAINS, ALL), (3, TRAINS, NODE_1))
    assert listen(before, 2, at(6), None, NODE_1) == Hearing(2, at(6), silent={"node-1": at(6)}, num_heard=2)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_who_answers_is_never_lost_and_who_trains_loses_nobody(polls: list[tuple[bool, bool]]) -> None:
    step, found = 1, heard((0, TRAINS, ALL))
    for number, (answers, trains) in enumerate(polls, 1):
        step += trains
        found = listen(found, 1, at(number), own(7 + step), {**ALL, "node-1": answers})
        if answers or trains:
            assert found.lost(SILENT_S) == {}


LOST = heard((-9, TRAINS, ALL), (-4, TRAINS, NODE_1), (-1, own(7), NODE_1))
UNSURE = heard((-9, TRAINS, ALL), (-4, TRAINS, NODE_1))


def trained(hearing: Hearing, **fields: Any) -> Decision:
    """A pass over a gang of which so much was heard; the operator polled a moment ago."""
    seen = Sighting(1, ago(fields.pop("polled_s", 0.5)), TRAINS)
    memory = Memory(swept_to=1, started=1, sighting=seen, hearing=hearing)
    given = {"job": job(**LAUNCHED), "full": full(), "pods": gang(), "memory": memory, **fields}
    return decide(view(running(), **given))


def test_a_lost_node_ends_the_attempt_and_is_avoided_before_kubernetes_knows() -> None:
    made = trained(LOST)
    last = failure_of(made.view.status)
    assert (last.reason, last.node, made.view.status.disruptions) == ("NodeLost", "node-1", 1)
    assert last.message == "node node-1 has not answered for 3 s, and no step was made after step 7"
    assert [node.name for node in made.view.status.avoided_nodes] == ["node-1"]
    planned = condition(made.view.status, ConditionType.PLANNED)
    assert planned is not None
    assert (planned.status, planned.reason) == ("False", "Disrupted")
    assert trained(UNSURE).view.status.attempt == 1
    assert not trained(UNSURE).view.status.avoided_nodes


def test_the_pod_on_a_lost_node_is_not_waited_for() -> None:
    over = status(1, Planned=(False, "Disrupted")).model_copy(
        update={"avoided_nodes": (AvoidedNode(name="node-1", until=at(300)),)}
    )
    ending = (pod(0), pod(1, delete_by=at(20)), pod(2))
    known = {"job": job(**LAUNCHED), "pods": ending}
    made = decide(view(over, memory=Memory(swept_to=1, hearing=LOST), **known))
    assert RequestPlan() in [action for _, action in made.actions]
    waits = decide(view(over, memory=Memory(swept_to=1, hearing=UNSURE), **known))
    assert waits.requeue_after_s == 50


@pytest.mark.parametrize(("reason", "ends_s"), [("NodeLost", "0"), ("Error", None)])
def test_ranks_that_wait_for_a_lost_node_end_at_once(reason: str, ends_s: str | None) -> None:
    last = failure_of(trained(LOST).view.status).model_copy(update={"reason": reason})
    later = deploying(2).model_copy(
        update={"last_failure": last, "avoided_nodes": (AvoidedNode(name="node-1", until=at(300)),)}
    )
    one, plan = job(**LAUNCHED), full(2)
    made = decide(view(later, job=one, full=plan, pods=(pod(0), pod(2)), memory=Memory(swept_to=2)))
    expected = gang_config_map(one, plan.plan, plan.blob, NO_ORDERS, is_broken=ends_s is not None)
    assert [action for _, action in made.actions if isinstance(action, Write)] == [Write(CONFIG_MAPS, expected)]
    assert (f'"{names.ENV_END_SECONDS}": "0"' in expected["data"][names.GANG_ENVIRONMENT_KEY]) == (ends_s is not None)


@pytest.mark.parametrize(
    ("name", "hearing", "polled_s", "after_s"),
    [
        ("long ago", heard((-9, TRAINS, ALL)), 9.0, 0.0),
        ("a moment ago", heard((-9, TRAINS, ALL)), 1.25, 1.75),
        ("a moment ago, and a node was silent", UNSURE, 0.25, 0.75),
        ("a node was silent, and it is asked again", UNSURE, 1.5, 0.0),
    ],
)
def test_every_node_is_knocked_at_and_sooner_again_while_one_is_silent(
    name: str, hearing: Hearing, polled_s: float, after_s: float
) -> None:
    made = trained(hearing, polled_s=polled_s)
    (poll,) = [action for _, action in made.calls]
    assert isinstance(poll, Poll)
    assert poll.doors == {node: f"10.0.0.{n + 1}:9400" for n, node in enumerate(NODES)}
    assert poll.after_s == after_s, name


class Gang:
    """Workers that answer with their own step, by address."""

    def __init__(self, **steps: int) -> None:
        self.steps = steps

    async def metrics(self, ip: str, expected: Expected) -> Observation:
        if ip not in self.steps:
            raise ObserveError("silent")
        return own(self.steps[ip])

    async def preflight(self, ip: str, expected: Expected) -> None:
        raise NotImplementedError

    async def start(self, ip: str, attempt: int, order: str) -> None:
        raise NotImplementedError

    async def answers(self, ip: str) -> bool:
        return ip in self.steps


async def test_the_survivor_that_has_come_furthest_is_believed() -> None:
    workers = Gang(a=4, b=6)
    assert await furthest(workers, ("a", "b", "gone"), Expected()) == own(6)
    assert await furthest(workers, ("gone",), Expected()) is None
    assert await knock(workers, {"node-0": "a", "node-1": "gone"}) == {"node-0": True, "node-1": False}
