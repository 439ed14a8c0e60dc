"""A pod that the API server will not take: asked once, told in its words, nothing planned; pods of one spec only."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hulk_operator.api import HulkJob
from hulk_operator.cluster import HULK_JOBS, ClusterError, Forbidden, Invalid, QuotaExceeded
from hulk_operator.reconcile.recipe import RECIPE, decide
from hulk_operator.reconcile.spec_digest import spec_digest
from hulk_operator.reconcile.types import Admission, Create, Memory, RequestPlan, View
from hulk_operator.status import condition
from test_reconcile_pass import KEY, World
from views import GENERATION, LAUNCHED, NOW, decision, deploying, full, gang, job, running, status, summary, view

INVALID = Invalid(422, "Invalid", 'Pod "demo-1-0" is invalid: spec.containers[0].image: Required value')
SECURITY = Forbidden(
    403, "Forbidden", 'pods "demo-1-0" is forbidden: violates PodSecurity "restricted:latest": hostPID'
)
LIMIT = Forbidden(403, "Forbidden", "maximum cpu usage per Container is 1, but limit is 2")
QUOTA = QuotaExceeded(403, "Forbidden", "exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2")
SUSPEND = "set spec.suspend: true in the change that mends spec.template"


def refusing(error: ClusterError) -> World:
    world = World(decision())
    world.cluster.refuse = lambda write, _: error if write == "try pods" else None
    return world


def planned_of(world: World) -> tuple[str, str]:
    found = condition(world.job().status, "Planned")
    assert found is not None
    assert found.status == "False"
    return found.reason, found.message


REFUSALS = {
    "InvalidTemplate": (INVALID, SUSPEND),
    "PodSecurity": (SECURITY, "mend what refuses it in the namespace"),
    "Forbidden": (LIMIT, "mend what refuses it in the namespace"),
    "QuotaExceeded": (QUOTA, "the job waits until the quota has room"),
}


@pytest.mark.parametrize("reason", REFUSALS)
async def test_a_pod_that_is_not_taken_is_told_in_the_servers_words_and_nothing_is_reserved(reason: str) -> None:
    error, to_do = REFUSALS[reason]
    world = refusing(error)
    await world.passes(3)
    said = planned_of(world)
    assert said[0] == reason
    assert error.message in said[1]
    assert to_do in said[1]
    assert world.plans.requests == []
    assert world.plans.answer is None, "what was reserved is given back"
    assert [write for _, write in world.cluster.writes if "create" in write] == ["create events"]
    assert len(world.cluster.tried) == 1
    assert world.job().status.failures == 0


async def test_it_is_asked_again_with_a_back_off_and_goes_on_once_that_is_mended() -> None:
    world = refusing(SECURITY)
    assert await world.passes() == pytest.approx(10.0)
    world.now += timedelta(seconds=10)
    assert await world.passes() == pytest.approx(20.0)
    assert len(world.cluster.tried) == 2
    world.cluster.refuse = lambda write, body: None
    world.now += timedelta(seconds=20)
    world.plans.answer = decision()
    await world.passes(2)
    assert world.job().status.attempt == 1
    assert len(world.cluster.tried) == 3


async def test_a_new_generation_is_asked_about_at_once_and_the_same_one_never_twice() -> None:
    world = refusing(INVALID)
    await world.passes()
    world.cluster.refuse = lambda write, body: None
    template = {"spec": {"containers": [{"name": "worker", "image": "mended"}]}}
    change = {"metadata": {"generation": 4}, "spec": {"template": template}}
    world.store.jobs.put(await world.cluster.patch(HULK_JOBS, "demo", "lab", change))
    world.plans.answer = decision(generation=4)
    await world.passes(5)
    assert world.job().status.attempt == 1
    assert [body["spec"]["containers"][0]["image"] for body in world.cluster.tried] == ["hulk:0.1.0", "mended"]


async def test_a_webhook_that_knows_no_dry_run_is_no_refusal() -> None:
    world = refusing(Invalid(400, "BadRequest", 'admission webhook "a.b.c" does not support dry run'))
    await world.passes(2)
    assert world.job().status.attempt == 1


async def test_a_pod_that_was_refused_after_all_is_asked_about_before_the_next_plan() -> None:
    world = World(decision())
    memory = world.reconciler.memory
    world.cluster.refuse = lambda write, _: SECURITY if write == "create pods" else None
    await world.passes(2)
    assert memory[KEY].admission is None
    world.cluster.refuse = lambda write, _: SECURITY if write == "try pods" else None
    world.now += timedelta(seconds=60)
    requests = len(world.plans.requests)
    await world.passes(2)
    reason, message = planned_of(world)
    assert reason == "StartFailed"
    assert SECURITY.message in message
    assert len(world.plans.requests) == requests


REFUSED_AT_ONCE = Memory(swept_to=1, admission=Admission(GENERATION, NOW, QUOTA, 1))


def test_a_job_whose_own_pods_fill_the_quota_is_planned_and_keeps_them() -> None:
    over = status(1, since_s=100, Planned=(False, "AttemptFailed"))
    made = decide(view(over, job=job(**LAUNCHED), memory=REFUSED_AT_ONCE, pods=gang()))
    assert [action for _, action in made.actions] == [RequestPlan()]
    alone = decide(view(over, job=job(**LAUNCHED), memory=REFUSED_AT_ONCE))
    assert RequestPlan() not in [action for _, action in alone.actions]
    assert "exceeded quota" in (condition(alone.view.status, "Planned") or pytest.fail("none")).message


@pytest.mark.parametrize("reason", ["AttemptFailed", "Disrupted", "Stopped", "Grown", "PreemptedByUtility"])
def test_a_refusal_leaves_why_the_last_attempt_was_released_and_so_its_pods(reason: str) -> None:
    over = status(1, since_s=100, Planned=(False, reason))
    refused = replace(REFUSED_AT_ONCE, admission=Admission(GENERATION, NOW, SECURITY, 1))
    one = view(over, job=job(**LAUNCHED), memory=refused, pods=gang())
    after = decide(one, [step for step in RECIPE if step.name == "admit"]).view.status
    found = condition(after, "Planned") or pytest.fail("none")
    assert found.reason == reason
    assert SECURITY.message in found.message
    assert "what is reserved is its pods (3)" in found.message


async def test_the_pod_that_is_asked_about_is_a_workers() -> None:
    world = World(decision(), workers={"min": 3, "max": 3, "acceleratorsPerWorker": 2})
    await world.passes()
    (asked,) = world.cluster.tried
    assert asked["metadata"]["name"] == "demo-1-0"
    assert asked["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}


OTHER_TEMPLATE = {"template": {"spec": {"hostIPC": True, "containers": [{"name": "worker", "image": "hulk:0.1.0"}]}}}


def of_spec(before: HulkJob, after: HulkJob, *, up_already: bool) -> View:
    """A view of a job whose attempt was made of the spec `before`."""
    found = running() if up_already else deploying()
    found = found.model_copy(update={"plan": summary().model_copy(update={"made_of": spec_digest(before)})})
    return view(found, job=after, pods=gang() if up_already else gang()[:1], full=full())


@pytest.mark.parametrize("up_already", [True, False])
@pytest.mark.parametrize(
    "spec",
    [
        OTHER_TEMPLATE,
        {"priorityClassName": "high"},
        {"sync": {"mode": "ring"}},
        {"instrumentation": "none"},
        {"placement": {"regions": ["a"]}},
    ],
)
def test_an_attempt_of_another_spec_is_released_whatever_the_operator_missed(
    spec: dict[str, Any], up_already: bool
) -> None:
    decided = decide(of_spec(job(), job(**spec), up_already=up_already))
    found = condition(decided.view.status, "Planned")
    assert found is not None
    assert (found.status, found.reason) == ("False", "SpecChanged")
    assert not any(isinstance(action, Create) for _, action in decided.actions)
    assert (decided.view.status.failures, decided.view.status.disruptions) == (0, 0)


CHECKPOINT = {"checkpoint": {"storage": {"url": "s3://b"}, "everySteps": 50}}
LATER = {"checkpoint": {"storage": {"url": "s3://b"}, "everySteps": 60}}


@pytest.mark.parametrize(("up_already", "reason"), [(True, "Planned"), (False, "SpecChanged")])
def test_checkpoint_settings_change_with_the_next_attempt_and_never_within_one(up_already: bool, reason: str) -> None:
    decided = decide(of_spec(job(**CHECKPOINT), job(**LATER), up_already=up_already))
    found = condition(decided.view.status, "Planned")
    assert found is not None
    assert found.reason == reason


def test_what_may_change_any_time_and_defaults_that_are_spelled_out_release_nothing() -> None:
    after = job(runPolicy={"startTimeoutSeconds": 900}, suspend=False, sync={"mode": "auto"})
    decided = decide(of_spec(job(), after, up_already=False))
    found = condition(decided.view.status, "Planned")
    assert found is not None
    assert found.status == "True"
    assert any(isinstance(action, Create) for _, action in decided.actions)


def test_pods_of_another_spec_are_not_kept_for_the_next_attempt() -> None:
    found = status(1, Planned=(False, "AttemptFailed"))
    before = job(**LAUNCHED)
    found = found.model_copy(update={"plan": summary().model_copy(update={"made_of": spec_digest(before)})})
    other = job(template={"spec": {**LAUNCHED["template"]["spec"], "hostNetwork": True}})

    def swept(one: HulkJob) -> bool:
        return any(step.name == "sweep" for step, _ in decide(view(found, job=one, pods=gang())).actions)

    assert not swept(before)
    assert swept(other)
