"""Sweeps whose trials share devices: how they are divided, when anew, and what is known of each trial."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.api import ConditionType, HulkJob, HulkSweep, SweepPhase, TrialPhase
from hulk_operator.cluster import CONFIG_MAPS, HULK_JOBS, HULK_SWEEPS, ClusterError, Forbidden, Object, Unavailable
from hulk_operator.observation import Expected, Observation, ObservedTrial, ObserveError, Preflight
from hulk_operator.pods import Exit, WorkerPod
from hulk_operator.sweeps.reconciler import SweepReconciler
from hulk_operator.sweeps.shared_scheduling import (
    ChangeShared,
    CreateShared,
    SharedView,
    WriteDivision,
    decide_shared,
    farewells,
    merged,
    shared_job,
    shared_states,
)
from hulk_operator.sweeps.trial_assignment import Division, Left, config_map, divide, divide_again, read
from hulk_operator.sweeps.trials import mistakes, trials
from hulk_operator.watched import Store
from hulk_operator.worker_answers import parse_metrics
from sweep_cases import document, ran
from views import NOW, ago

KEY = "lab/rates"
COMMAND = ["/opt/hulk/bin/python", "-m", "hulk_runtime.sweep"]
POD = {"spec": {"containers": [{"name": "worker", "image": "hulk:0.1.0", "command": COMMAND}]}}
JOB = {"workers": {"max": 2, "acceleratorsPerWorker": 2}, "template": POD}
SHARP = {"model": "models:make", "devices": "host", "deviceMemoryBytes": 1000}


def shared_document(job: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return document(job={**JOB, **(job or {})}, mode="sharp", sharp=SHARP, **spec)


def shared(job: dict[str, Any] | None = None, **spec: Any) -> HulkSweep:
    return HulkSweep.model_validate(shared_document(job, **spec))


def job_of(sweep: HulkSweep, version: int = 1, *conditions: ConditionType, suspend: bool = False) -> HulkJob:
    job = HulkJob.model_validate(shared_job(sweep, version))
    body = ran(job, 0, "1", *conditions)
    return HulkJob.model_validate({**body, "spec": {**body["spec"], "suspend": suspend}})


def division(version: int = 1, *rows: tuple[int, ...]) -> Division:
    return Division(version, rows or ((0, 1), (2, 3)), dict.fromkeys(range(4), 1.0), 80.0, 80.0)


def view(sweep: HulkSweep, **fields: Any) -> SharedView:
    return SharedView(sweep, NOW, trials(sweep), **fields)


# The division.


def test_trials_are_divided_evenly_before_anything_is_measured() -> None:
    found = divide([Left(n, 40) for n in range(4)], num_workers=2, num_devices=1)
    assert sorted(len(row) for row in found.trials_of) == [2, 2]
    assert sorted(number for row in found.trials_of for number in row) == [0, 1, 2, 3]
    assert (found.makespan_s, found.bound_s, found.num_measured) == (80.0, 80.0, 0)


def test_what_was_measured_decides_once_it_is_known() -> None:
    left = [Left(0, 10, 6.0), *(Left(n, 10, 2.0) for n in (1, 2, 3))]
    found = divide(left, num_workers=2, num_devices=1, version=2)
    assert sorted(map(sorted, found.trials_of)) == [[0], [1, 2, 3]]


def slow(*step_s: float, steps: int = 100) -> list[Left]:
    return [Left(n, steps, seconds) for n, seconds in enumerate(step_s)]


def test_a_drift_that_pays_divides_anew() -> None:
    found = divide_again(division(), slow(5.0, 5.0, 1.0, 1.0), num_devices=1, tolerance=1.25)
    assert found is not None
    assert (found.version, found.num_measured) == (2, 4)
    assert sorted(sum(5 if n < 2 else 1 for n in row) for row in found.trials_of) == [6, 6]
    assert found.drift == pytest.approx(3.0)


def test_a_drift_within_the_tolerance_changes_nothing() -> None:
    assert divide_again(division(), slow(1.2, 1.2, 1.0, 1.0), num_devices=1, tolerance=1.25) is None


def test_a_drift_that_saves_less_than_a_restart_takes_changes_nothing() -> None:
    assert divide_again(division(), slow(5.0, 5.0, 1.0, 1.0, steps=10), num_devices=1, tolerance=1.25) is None


def test_nothing_is_divided_anew_before_all_that_is_left_is_measured() -> None:
    rows = slow(5.0, 5.0, 1.0, 1.0)
    assert divide_again(division(), [*rows[:3], replace(rows[3], step_s=None)], 1, 1.25) is None
    assert divide_again(division(), [], 1, 1.25) is None


def test_a_config_map_holds_each_workers_file_and_the_division() -> None:
    sweep = shared(parameters={"list": [{"rate": "0.1", "kind": "wide"}, {"rate": "64", "kind": "true"}]})
    made = Division(3, ((1,), (), (0,)), {0: 1.5, 1: 2.0}, 80.0, 60.0, 2, 1.75)
    body = config_map(sweep, made, dict(enumerate(trials(sweep))))
    assert body["metadata"]["name"] == "rates-trials-3"
    assert (body["immutable"], set(body["data"])) == (True, {"plan.json", "worker-0.json", "worker-2.json"})
    assert json.loads(body["data"]["worker-0.json"]) == {
        "version": 1,
        "devices": {"kind": "host", "count": 2, "memoryBytes": 1000},
        "scheduler": "lrtf",
        "doubleBuffer": True,
        "trials": [
            {"name": "t1", "model": "models:make", "parameters": {"rate": 64, "kind": True}, "steps": 40, "seed": 0}
        ],
    }
    assert read(body) == made


# Decisions.


def test_first_a_division_then_the_job_with_its_files() -> None:
    sweep = shared()
    assert isinstance(decide_shared(view(sweep)), WriteDivision)
    found = decide_shared(view(sweep, division=division()))
    assert isinstance(found, CreateShared)
    job = HulkJob.model_validate(found.body)
    assert (job.metadata.name, job.spec.workers.min, job.spec.workers.max) == ("rates-shared", 2, 2)
    assert job.metadata.labels[names.LABEL_TRIALS] == "1"
    pod = job.spec.template.pod_spec()
    assert pod["volumes"][-1] == {"name": "hulk-trials", "configMap": {"name": "rates-trials-1"}}
    assert pod["containers"][0]["volumeMounts"][-1]["mountPath"] == "/etc/hulk/trials"
    assert decide_shared(view(sweep, division=division(), job=job)) is None


def test_a_suspended_sweep_begins_nothing_and_suspends_its_job() -> None:
    sweep = shared(suspend=True)
    assert decide_shared(view(sweep, division=division())) is None
    found = decide_shared(view(sweep, division=division(), job=job_of(sweep)))
    assert found == ChangeShared({"spec": {"suspend": True}})


def test_a_new_division_is_taken_up_through_a_suspension() -> None:
    sweep, newer = shared(), division(2)
    assert decide_shared(view(sweep, division=newer, job=job_of(sweep))) == ChangeShared({"spec": {"suspend": True}})
    assert decide_shared(view(sweep, division=newer, job=job_of(sweep, suspend=True))) is None
    waiting = job_of(sweep, 1, ConditionType.SUSPENDED, suspend=True)
    found = decide_shared(view(sweep, division=newer, job=waiting))
    assert isinstance(found, ChangeShared)
    assert found.change["metadata"]["labels"] == {names.LABEL_TRIALS: "2"}
    assert found.change["spec"]["suspend"] is False
    assert found.change["spec"]["template"]["spec"]["volumes"][-1]["configMap"] == {"name": "rates-trials-2"}


def test_times_that_drift_are_divided_anew_only_where_there_are_checkpoints() -> None:
    seen = {n: ObservedTrial("running", 1, 2.0, 50.0 if n < 2 else 1.0) for n in range(4)}
    sweep = shared({"workers": {"max": 2}})
    assert isinstance(decide_shared(view(sweep, division=division(), job=job_of(sweep), seen=seen)), WriteDivision)
    body = shared_document({"workers": {"max": 2}})
    body["spec"]["template"]["spec"] = {k: v for k, v in body["spec"]["template"]["spec"].items() if k != "checkpoint"}
    without = HulkSweep.model_validate(body)
    assert decide_shared(view(without, division=division(), job=job_of(without), seen=seen)) is None


# What is known of trials.


def test_a_worker_tells_of_its_trials_on_its_port() -> None:
    text = (
        'hulk_worker_trial_state{trial="t0",state="running"} 1\nhulk_worker_trial_state{trial="t1",state="failed"} 1\n'
        'hulk_worker_trial_step{trial="t0"} 7\nhulk_worker_trial_step{trial="t1"} 2\n'
        'hulk_worker_trial_metric{trial="t0"} 2.5\nhulk_worker_trial_metric{trial="t1"} NaN\n'
        'hulk_worker_trial_step_seconds{trial="t0"} 0.25\nhulk_worker_trial_step_seconds{trial="t1"} -1\n'
    )
    found = parse_metrics(text).trials
    assert found["t0"] == ObservedTrial("running", 7, 2.5, 0.25)
    assert (found["t1"].state, found["t1"].step, str(found["t1"].metric), found["t1"].step_s) == (
        "failed",
        2,
        "nan",
        None,
    )


def worker_pod(worker: int, message: str = "", attempt: int = 1) -> WorkerPod:
    ended = Exit(0, "Completed", message, ago(1.0)) if message else None
    phase = "Succeeded" if message else "Running"
    name = f"rates-shared-{attempt}-{worker}"
    return WorkerPod(name, name, "j1", attempt, worker, ip=f"10.0.0.{worker}", phase=phase, exit=ended)


def test_a_worker_that_ended_has_said_what_became_of_its_trials() -> None:
    pods = [
        worker_pod(0, "trials t0=succeeded,40,2.25 t3=failed,2,nan"),
        worker_pod(1, "Traceback: boom"),
        worker_pod(2),
    ]
    found = farewells(pods)
    assert found[0] == ObservedTrial("succeeded", 40, 2.25)
    assert (found[3].state, str(found[3].metric), sorted(found)) == ("failed", "nan", [0, 3])


def test_a_trial_that_has_ended_stays_so_when_the_job_is_started_again() -> None:
    known = {0: ObservedTrial("succeeded", 40, 2.0), 1: ObservedTrial("running", 5, 3.0, 0.5)}
    found = merged(known, {0: ObservedTrial("running", 1, 9.0), 1: ObservedTrial("running", 6, 2.9)})
    assert found == {0: known[0], 1: ObservedTrial("running", 6, 2.9, 0.5)}


def test_trials_say_where_they_are_and_why_they_failed() -> None:
    sweep = shared()
    seen = {0: ObservedTrial("failed", 2, math.nan), 1: ObservedTrial("running", 5, 3.0), 2: ObservedTrial("failed")}
    states = shared_states(view(sweep, division=division(), job=job_of(sweep), seen=seen))
    assert [(one.phase, one.reason, one.place) for one in states] == [
        (TrialPhase.FAILED, "NotFinite", "worker 0"),
        (TrialPhase.RUNNING, "", "worker 0"),
        (TrialPhase.FAILED, "TrialFailed", "worker 1"),
        (TrialPhase.PENDING, "", "worker 1"),
    ]


def test_a_job_that_fails_fails_what_had_not_ended() -> None:
    sweep = shared()
    seen = {0: ObservedTrial("succeeded", 40, 2.0), 1: ObservedTrial("running", 5, 3.0)}
    states = shared_states(view(sweep, division=division(), job=job_of(sweep, 1, ConditionType.FAILED), seen=seen))
    assert [(one.phase, one.reason) for one in states] == [
        (TrialPhase.SUCCEEDED, ""),
        *[(TrialPhase.FAILED, "JobFailed")] * 3,
    ]


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (["python", "train.py"], [], "the first container's command must run hulk_runtime.sweep"),
        (COMMAND, ["$(sweep.rate)"], "$(sweep.rate) in the template: in mode sharp trials share a pod"),
    ],
)
def test_a_pod_that_trials_cannot_share_is_told(command: list[str], args: list[str], expected: str) -> None:
    container = {"name": "worker", "image": "i", "command": command, "args": args}
    said = list(mistakes(shared({"template": {"spec": {"containers": [container]}}})))
    assert len(said) == 1
    assert expected in said[0]
    assert list(mistakes(shared())) == []


async def test_more_workers_than_the_job_can_have_are_told() -> None:
    world = World()
    body = world.cluster.objects[names.SWEEP_PLURAL, "lab", "rates"]
    body["spec"]["template"]["spec"]["workers"] = {"max": 7}  # of a global batch of 6
    world.restart()
    await world.settle()
    assert "training.globalBatch must be at least workers.min" in world.sweep.status.conditions[0].message
    assert world.maps() == []


async def test_a_job_that_the_cluster_refuses_is_told() -> None:
    world = World()
    world.cluster.refuse = lambda write, body: (
        Forbidden(403, "Forbidden", "exceeded quota: team") if write == "create hulkjobs" else None
    )
    await world.settle()
    said = next(found for found in world.sweep.status.conditions if found.type == "Running")
    assert (said.reason, said.message) == ("TrialRefused", "exceeded quota: team")
    world.cluster.refuse = lambda write, body: None
    await world.settle()
    assert world.job["metadata"]["name"] == "rates-shared"


# Whole passes.


class Workers:
    """What each worker says, by address."""

    def __init__(self) -> None:
        self.says: dict[str, dict[str, ObservedTrial]] = {}

    async def metrics(self, ip: str, expected: Expected) -> Observation:
        if ip not in self.says:
            raise ObserveError("silent")
        return Observation(trials=self.says[ip])

    async def preflight(self, ip: str, expected: Expected) -> Preflight | None:
        raise AssertionError(ip)

    async def start(self, ip: str, attempt: int, order: str) -> None:
        raise AssertionError(ip)

    async def answers(self, ip: str) -> bool:
        raise AssertionError(ip)


class World:
    """An operator over a fake cluster; `restart` forgets all that is not in the cluster."""

    def __init__(self, **spec: Any) -> None:
        self.cluster, self.workers = (
            FakeCluster((HULK_SWEEPS, shared_document({"workers": {"max": 2}}, **spec))),
            Workers(),
        )
        self.pods: tuple[WorkerPod, ...] = ()
        self.restart()

    def restart(self) -> None:
        self.store = Store()
        for (plural, *_), body in self.cluster.objects.items():
            if plural in (names.SWEEP_PLURAL, names.JOB_PLURAL):
                (self.store.sweeps if plural == names.SWEEP_PLURAL else self.store.jobs).put(body)
        self.store.pods_of = lambda key: self.pods  # type: ignore[method-assign]
        self.reconciler = SweepReconciler(self.cluster, self.store, self.workers, lambda: NOW)

    async def settle(self) -> None:
        for _ in range(8):
            await self.reconciler.reconcile(KEY)

    @property
    def sweep(self) -> HulkSweep:
        return HulkSweep.model_validate(self.cluster.objects[names.SWEEP_PLURAL, "lab", "rates"])

    @property
    def job(self) -> Object:
        return self.cluster.objects[names.JOB_PLURAL, "lab", "rates-shared"]

    def maps(self) -> list[str]:
        return [name for (plural, _, name) in self.cluster.objects if plural == CONFIG_MAPS.plural]

    def says(self, *conditions: ConditionType, attempt: int = 1) -> None:
        """The job gets a status; its pods belong to it."""
        body = {**self.job, "status": {**ran(HulkJob.model_validate(self.job), 0, "1", *conditions)["status"]}}
        body["status"]["attempt"] = attempt
        self.store.jobs.put(self.cluster._store(HULK_JOBS, body))
        self.pods = tuple(replace(pod, job_uid=self.job["metadata"]["uid"]) for pod in self.pods)


async def test_a_sweep_is_divided_run_and_told() -> None:
    world = World()
    await world.settle()
    assert world.maps() == ["rates-trials-1"]
    rows = read(world.cluster.objects["configmaps", "lab", "rates-trials-1"]).trials_of
    assert world.sweep.status.plan is not None
    assert (world.sweep.status.plan.version, world.sweep.status.plan.measured) == (1, 0)
    world.pods = (worker_pod(0), worker_pod(1))
    world.says(ConditionType.RUNNING)
    running = {f"t{n}": ObservedTrial("running", 3, 2.0 + n, 1.0) for n in range(4)}
    for worker, row in enumerate(rows):
        world.workers.says[f"10.0.0.{worker}:9400"] = {f"t{n}": running[f"t{n}"] for n in row}
    await world.settle()
    assert world.sweep.status.trials.running == 4
    assert [row.metric for row in world.sweep.status.table] == ["2", "3", "4", "5"]
    world.pods = tuple(
        worker_pod(worker, "trials " + " ".join(f"t{n}=succeeded,40,{1 + n}" for n in row))
        for worker, row in enumerate(rows)
    )
    world.says(ConditionType.SUCCEEDED)
    await world.settle()
    status = world.sweep.status
    assert (status.phase, status.trials.succeeded) == (SweepPhase.SUCCEEDED, 4)
    assert status.best is not None
    assert (status.best.name, status.best.metric) == ("rates-t0", "1")


async def test_measured_times_that_drift_move_trials_through_checkpoint_and_restart() -> None:
    world = World()
    await world.settle()
    first = read(world.cluster.objects["configmaps", "lab", "rates-trials-1"]).trials_of
    world.pods = (worker_pod(0), worker_pod(1))
    world.says(ConditionType.RUNNING)
    slow = set(first[0])  # both of the first worker's: guessed alike, they take 50 times as long
    said = {n: ObservedTrial("running", 1, 2.0, 50.0 if n in slow else 1.0) for n in range(4)}
    world.workers.says = {"10.0.0.0:9400": {f"t{n}": one for n, one in said.items()}}
    await world.settle()
    assert world.maps() == ["rates-trials-1", "rates-trials-2"]
    assert world.job["spec"]["suspend"] is True
    world.restart()  # between stop and restart
    world.says(ConditionType.SUSPENDED)
    await world.settle()
    assert world.job["spec"]["suspend"] is False
    assert world.job["metadata"]["labels"][names.LABEL_TRIALS] == "2"
    second = read(world.cluster.objects["configmaps", "lab", "rates-trials-2"]).trials_of
    assert all(len(slow & set(row)) == 1 for row in second)
    assert world.sweep.status.plan is not None
    assert (world.sweep.status.plan.version, world.sweep.status.plan.measured) == (2, 4)


@pytest.mark.parametrize("killed_at", range(4))
@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
async def test_an_operator_that_is_killed_at_any_write_begins_each_thing_once(killed_at: int, written: bool) -> None:
    expected = World()
    await expected.settle()
    world = World()

    def kill(write: str, body: Object) -> ClusterError | None:
        at = len(world.cluster.writes) - 1
        return Unavailable(0, "", "killed") if at >= killed_at + written else None

    world.cluster.refuse = kill
    killed = False
    try:
        await world.settle()
    except Unavailable:
        killed = True
    assert killed == (killed_at + written < len(expected.cluster.writes))
    world.cluster.refuse = lambda write, body: None
    world.restart()
    await world.settle()
    assert world.maps() == expected.maps() == ["rates-trials-1"]
    assert world.job["spec"] == expected.job["spec"]
    assert world.sweep.status.trials == expected.sweep.status.trials


async def test_an_operator_that_starts_anew_remembers_what_has_ended() -> None:
    world = World()
    await world.settle()
    world.pods = (worker_pod(0, "trials t0=succeeded,40,2"),)
    world.says(ConditionType.RUNNING)
    await world.settle()
    world.pods = ()
    world.restart()
    await world.settle()
    assert (world.sweep.status.table[0].phase, world.sweep.status.table[0].metric) == (TrialPhase.SUCCEEDED, "2")
