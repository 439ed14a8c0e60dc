"""Whole passes over a HulkSweep on a fake cluster: what is written, what a refusal leaves, what a crash loses."""

import math
from datetime import timedelta
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.api import ConditionType, HulkSweep, SweepPhase, TrialPhase
from hulk_operator.cli.job_state import state_of, states
from hulk_operator.cli.output import plain
from hulk_operator.cluster import (
    EVENTS,
    HULK_JOBS,
    HULK_SWEEPS,
    ClusterError,
    Forbidden,
    LeaseLost,
    NotFound,
    Object,
    Unavailable,
)
from hulk_operator.metrics import Health, Snapshot, registry
from hulk_operator.observation import Expected, Observation, Preflight
from hulk_operator.sweeps.owned_objects import sweep_key_of
from hulk_operator.sweeps.reconciler import REFUSED_RETRY_S, SweepReconciler
from hulk_operator.watched import Store
from sweep_cases import document, ran
from views import NOW

KEY = "lab/rates"


class Silent:
    """Workers that nobody is to ask in mode jobs."""

    async def metrics(self, ip: str, expected: Expected) -> Observation:
        raise AssertionError(ip)

    async def preflight(self, ip: str, expected: Expected) -> Preflight | None:
        raise AssertionError(ip)

    async def start(self, ip: str, attempt: int, order: str) -> None:
        raise AssertionError(ip)

    async def answers(self, ip: str) -> bool:
        raise AssertionError(ip)


class World:
    """An operator over a fake cluster, driven pass by pass; `restart` forgets all that is not in the cluster."""

    def __init__(self, **spec: Any) -> None:
        self.cluster = FakeCluster((HULK_SWEEPS, document(**spec)))
        self.acts, self.now = True, NOW
        self.restart()

    def restart(self) -> None:
        self.store = Store()
        for (plural, *_), body in self.cluster.objects.items():
            (self.store.sweeps if plural == names.SWEEP_PLURAL else self.store.jobs).put(body)
        self.reconciler = SweepReconciler(self.cluster, self.store, Silent(), lambda: self.now, lambda: self.acts)

    async def until_quiet(self) -> float | None:
        """Passes until one writes nothing."""
        for _ in range(20):
            before = len(self.cluster.writes)
            self.now += timedelta(seconds=20)
            after_s = await self.reconciler.reconcile(KEY)
            if len(self.cluster.writes) == before:
                return after_s
        raise AssertionError(self.cluster.writes[-10:])

    @property
    def sweep(self) -> HulkSweep:
        return HulkSweep.model_validate(self.cluster.objects[names.SWEEP_PLURAL, "lab", "rates"])

    def jobs(self) -> dict[str, Object]:
        """By name, in the order of their creation."""
        return {name: body for (plural, _, name), body in self.cluster.objects.items() if plural == names.JOB_PLURAL}

    def says(self, number: int, step: int, loss: str, *conditions: ConditionType) -> None:
        """A trial's HulkJob gets a status."""
        job = self.store.job(f"lab/rates-t{number}")
        assert job is not None
        key = (names.JOB_PLURAL, "lab", f"rates-t{number}")
        body = {**self.cluster.objects[key], "status": ran(job, step, loss, *conditions)["status"]}
        self.store.jobs.put(self.cluster._store(HULK_JOBS, body))

    def finish(self, number: int, loss: str, step: int = 40) -> None:
        self.says(number, step, loss, ConditionType.SUCCEEDED)

    def suspended(self) -> set[str]:
        return {name for name, body in self.jobs().items() if body["spec"].get("suspend")}

    def labels(self, number: int) -> dict[str, str]:
        found: dict[str, str] = self.jobs()[f"rates-t{number}"]["metadata"]["labels"]
        return found


async def test_trials_run_in_their_order_and_the_best_is_told() -> None:
    world = World()
    await world.until_quiet()
    assert list(world.jobs()) == ["rates-t0", "rates-t1"]
    world.finish(0, "2.5")
    await world.until_quiet()
    assert list(world.jobs()) == ["rates-t0", "rates-t1", "rates-t2"]
    for number, loss in ((1, "1.5"), (2, "3")):
        world.finish(number, loss)
    await world.until_quiet()
    world.finish(3, "2")
    await world.until_quiet()
    status = world.sweep.status
    assert (status.phase, status.trials.succeeded) == (SweepPhase.SUCCEEDED, 4)
    assert status.best is not None
    assert (status.best.name, status.best.metric, dict(status.best.parameters)) == ("rates-t1", "1.5", {"rate": "0.2"})
    assert [row.metric for row in status.table] == ["2.5", "1.5", "3", "2"]


async def test_a_pass_without_news_writes_nothing() -> None:
    world = World()
    await world.until_quiet()
    before = len(world.cluster.writes)
    assert await world.reconciler.reconcile(KEY) is None
    assert len(world.cluster.writes) == before


async def test_a_trial_that_diverges_is_failed_and_the_others_end() -> None:
    world = World()
    await world.until_quiet()
    world.says(0, 3, "nan", ConditionType.RUNNING)
    await world.until_quiet()
    assert world.labels(0)[names.LABEL_STOPPED] == "NotFinite"
    assert world.suspended() == {"rates-t0"}
    assert list(world.jobs()) == ["rates-t0", "rates-t1", "rates-t2"]
    for number in (1, 2):
        world.finish(number, "1.5")
    await world.until_quiet()
    world.finish(3, "2")
    await world.until_quiet()
    told = [body for (plural, *_), body in world.cluster.objects.items() if plural == EVENTS.plural]
    (failed,) = [body for body in told if body["reason"] == "TrialFailed"]
    assert (failed["involvedObject"]["kind"], failed["type"]) == ("HulkSweep", "Warning")
    assert failed["message"] == "trial rates-t0 failed after step 3: NotFinite"
    assert "Succeeded" in {body["reason"] for body in told}
    status = world.sweep.status
    assert (status.phase, status.trials.failed, status.trials.succeeded) == (SweepPhase.SUCCEEDED, 1, 3)
    assert (status.table[0].phase, status.table[0].reason) == (TrialPhase.FAILED, "NotFinite")


async def test_bad_parameters_create_nothing_and_are_told() -> None:
    world = World(parameters={"list": [{"rate": "1", "width": "2"}]})
    await world.until_quiet()
    assert world.jobs() == {}
    said = world.sweep.status.conditions[0]
    assert (said.type, said.status, said.reason) == ("Valid", "False", "BadParameters")
    assert "parameter width is used nowhere" in said.message


async def test_suspending_releases_all_and_resuming_goes_on() -> None:
    world = World()
    await world.until_quiet()
    world.cluster.objects[names.SWEEP_PLURAL, "lab", "rates"]["spec"]["suspend"] = True
    world.restart()
    await world.until_quiet()
    assert world.suspended() == {"rates-t0", "rates-t1"}
    for number in (0, 1):
        world.says(number, 5, "2", ConditionType.SUSPENDED)
    await world.until_quiet()
    assert (world.sweep.status.phase, world.sweep.status.trials.paused) == (SweepPhase.SUSPENDED, 2)
    world.cluster.objects[names.SWEEP_PLURAL, "lab", "rates"]["spec"]["suspend"] = False
    world.restart()
    await world.until_quiet()
    assert world.suspended() == set()
    assert list(world.jobs()) == ["rates-t0", "rates-t1"]


def halving() -> World:
    return World(halving={"eta": 2, "minSteps": 10}, parallelism=4)


async def to_the_first_choice(world: World) -> None:
    await world.until_quiet()
    for number, loss in enumerate(("2", "1", "3", "1.5")):
        world.says(number, 10, loss, ConditionType.RUNNING)
    await world.until_quiet()
    for number, loss in enumerate(("2", "1", "3", "1.5")):
        world.says(number, 11, loss, ConditionType.SUSPENDED)


async def test_halving_lets_the_best_go_on() -> None:
    world = halving()
    await to_the_first_choice(world)
    await world.until_quiet()
    assert world.suspended() == {"rates-t0", "rates-t2"}
    assert [world.labels(n).get(names.LABEL_RUNG) for n in range(4)] == [None, "1", None, "1"]
    status = world.sweep.status
    assert [row.phase for row in status.table] == ["Stopped", "Running", "Stopped", "Running"]
    assert (status.table[0].reason, status.trials.stopped) == ("Halved", 2)


@pytest.mark.parametrize("killed_at", range(9))
@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
async def test_an_operator_that_is_killed_at_any_write_loses_nothing(killed_at: int, written: bool) -> None:
    expected = halving()
    await to_the_first_choice(expected)
    await expected.until_quiet()
    world = halving()
    await to_the_first_choice(world)
    begin = len(world.cluster.writes)

    def kill(write: str, body: Object) -> ClusterError | None:
        at = len(world.cluster.writes) - begin - 1
        return Unavailable(0, "", "killed") if at >= killed_at + written else None

    world.cluster.refuse = kill
    try:
        await world.until_quiet()
        killed = False
    except Unavailable:
        killed = True
    assert killed == (killed_at + written < len(expected.cluster.writes) - begin)
    world.cluster.refuse = lambda write, body: None
    world.restart()
    await world.until_quiet()
    assert world.suspended() == expected.suspended()
    assert [world.labels(n) for n in range(4)] == [expected.labels(n) for n in range(4)]
    assert world.sweep.status.table == expected.sweep.status.table


async def test_a_job_that_was_made_before_a_crash_is_taken_for_what_it_is() -> None:
    world = World()
    await world.until_quiet()
    before = world.jobs()
    store = Store()  # which the watch has told nothing of jobs yet
    store.sweeps.put(world.cluster.objects[names.SWEEP_PLURAL, "lab", "rates"])
    again = SweepReconciler(world.cluster, store, Silent(), lambda: NOW)
    await again.reconcile(KEY)
    assert world.jobs() == before
    assert {key for key, _ in store.jobs.items()} == {"lab/rates-t0", "lab/rates-t1"}


async def test_a_name_that_is_someone_elses_is_told() -> None:
    world = World()
    await world.cluster.create(HULK_JOBS, {"metadata": {"name": "rates-t0", "namespace": "lab"}, "spec": {}})
    assert await world.reconciler.reconcile(KEY) == REFUSED_RETRY_S
    said = next(found for found in world.sweep.status.conditions if found.type == "Running")
    assert (said.reason, said.message) == ("TrialRefused", "HulkJob rates-t0 exists and belongs to another object")


async def test_a_trial_that_the_cluster_refuses_is_told_and_tried_again() -> None:
    world = World()
    world.cluster.refuse = lambda write, body: (
        Forbidden(403, "Forbidden", "exceeded quota: team") if write == "create hulkjobs" else None
    )
    assert await world.reconciler.reconcile(KEY) == REFUSED_RETRY_S
    said = next(found for found in world.sweep.status.conditions if found.type == "Running")
    assert (said.status, said.message) == ("False", "exceeded quota: team")
    world.cluster.refuse = lambda write, body: None
    await world.until_quiet()
    assert world.sweep.status.phase is SweepPhase.RUNNING


async def test_without_the_lease_nothing_is_changed() -> None:
    world = World()
    await world.until_quiet()
    world.says(0, 3, "nan", ConditionType.RUNNING)
    world.acts = False
    with pytest.raises(LeaseLost):
        await world.reconciler.reconcile(KEY)
    assert world.suspended() == set()


async def test_a_sweep_that_is_deleted_is_left_to_its_owner_references() -> None:
    world = World()
    world.cluster.objects[names.SWEEP_PLURAL, "lab", "rates"]["metadata"]["deletionTimestamp"] = "2026-05-04T12:00:00Z"
    world.restart()
    assert await world.reconciler.reconcile(KEY) is None
    assert world.cluster.writes == []


async def test_a_jobs_label_names_the_sweep_to_look_at() -> None:
    world = World()
    await world.until_quiet()
    assert sweep_key_of(world.jobs()["rates-t0"]) == KEY
    assert sweep_key_of({"metadata": {"namespace": "lab", "name": "other"}}) is None


STATUS = {
    "phase": "Running",
    "trials": {"total": 4, "running": 1, "failed": 1, "pending": 2},
    "best": {"name": "rates-t0", "metric": "2.5", "step": 12, "parameters": {"rate": "0.1"}},
    "plan": {"version": 1, "makespanSeconds": 120, "boundSeconds": 110, "madeAt": "2026-07-14T10:00:00Z"},
    "table": [
        {"name": "rates-t0", "phase": "Running", "metric": "2.5", "step": 12, "place": "worker 1"},
        {"name": "rates-t1", "phase": "Failed", "metric": "nan", "step": 3, "reason": "NotFinite"},
        {"name": "rates-t2", "phase": "Pending"},
    ],
}


def test_metrics_tell_how_the_trials_are() -> None:
    seen = HulkSweep.model_validate({**document(), "status": STATUS})
    found = registry(lambda: Snapshot(sweeps=(seen,)), Health(), lambda: NOW)
    key = {"namespace": "lab", "sweep": "rates"}
    for name, labels, value in (
        ("hulk_sweep_trials", {**key, "phase": "Running"}, 1),
        ("hulk_sweep_trials", {**key, "phase": "Pending"}, 2),
        ("hulk_sweep_trials", {**key, "phase": "Stopped"}, 0),
        ("hulk_sweep_best_metric", key, 2.5),
        ("hulk_sweep_plan_makespan_seconds", key, 120),
        ("hulk_sweep_plan_bound_seconds", key, 110),
        ("hulk_sweep_trial_metric", {**key, "trial": "rates-t0"}, 2.5),
        ("hulk_sweep_trial_metric", {**key, "trial": "rates-t1"}, math.nan),
        ("hulk_sweep_trial_metric", {**key, "trial": "rates-t2"}, None),
        ("hulk_sweep_trial_step", {**key, "trial": "rates-t1"}, 3),
    ):
        assert found.get_sample_value(name, labels) == (value if value is None else pytest.approx(value, nan_ok=True))
    phases = {phase.value for phase in TrialPhase}
    assert all(found.get_sample_value("hulk_sweep_trials", {**key, "phase": phase}) is not None for phase in phases)


async def test_the_command_line_shows_a_sweeps_trials() -> None:
    cluster = FakeCluster((HULK_SWEEPS, {**document(), "status": STATUS}))
    wire, people = await state_of(cluster, "lab", "rates", NOW)
    assert (wire["sweep"], wire["status"]["table"][1]["reason"]) == ("lab/rates", "NotFinite")
    lines = plain(people).splitlines()
    assert lines[0].split(maxsplit=1) == ["lab/rates", "Running, 4 trials: 2 pending, 1 running, 1 failed"]
    assert "rates-t0: hulk_worker_loss 2.5 after step 12 with rate 0.1" in lines[1]
    rows = [line.split() for line in lines if line.startswith("rates-t")]
    assert rows[0] == ["rates-t0", "Running", "2.5", "12", "0", "worker", "1"]
    assert rows[1] == ["rates-t1", "Failed", "nan", "3", "0", "NotFinite"]
    with pytest.raises(NotFound, match="nothing"):
        await state_of(cluster, "lab", "nothing", NOW)


async def test_the_command_line_lists_sweeps_below_jobs() -> None:
    cluster = FakeCluster((HULK_SWEEPS, {**document(), "status": STATUS}))
    wire, people = await states(cluster, None, NOW)
    assert [one["sweep"] for one in wire["sweeps"]] == ["lab/rates"]
    headings, line = plain(people).splitlines()[-2:]
    assert headings.split() == ["NAMESPACE", "SWEEP", "PHASE", "TRIALS", "BEST", "METRIC", "AGE"]
    assert line.split()[:4] == ["lab", "rates", "Running", "4"]
    assert line.split()[-3:-1] == ["rates-t0", "2.5"]
    nothing, plainly = await states(FakeCluster(), None, NOW)
    assert nothing == {"jobs": [], "sweeps": []}
    assert "SWEEP" not in plain(plainly)
