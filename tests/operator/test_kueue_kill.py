"""SIGKILL before and after every write to Kueue's objects: a job in a queue goes its whole way under a real Kueue.

It is admitted, gets another priority, is evicted, changes while it waits, runs again, changes while it runs, is
suspended and resumed, and succeeds. The kill points are the writes of one such way without a kill.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from faults import JOB, prepare, running, runs_as
from hulk_lab import up
from hulk_operator import names
from hulk_operator.cluster import HULK_JOBS, WORKLOADS, connect
from hulk_operator.reconcile.recipe import KUEUE, RECIPE, STATUS_WRITE, writes
from hulk_operator.status import holds as holds_of_job
from kill_cases import CASE_S, LOOK_S, MOMENTS, Operator, Seen, events_said_once, failures, nothing_left, selected
from killing import SILENT, KillPoint, Record
from kueue_team import CLUSTER_QUEUES, QUEUE, Team, holds, waits

pytestmark = [pytest.mark.controlplane, pytest.mark.whole]  # as test_kueue_server

OURS = {(step, write) for step, write in writes() if step in KUEUE}


async def whole_way(team: Team) -> None:
    """One job from its creation to its end."""
    queue = await team.queue({await team.flavor("any"): 3})
    idle, urgent = await team.priority("idle", 1), await team.priority("urgent", 2)
    await team.submit(labels={**QUEUE, names.LABEL_WORKLOAD_PRIORITY: idle})
    await team.until(running)
    await team.label(JOB, names.LABEL_WORKLOAD_PRIORITY, urgent)
    await team.until_workload(lambda body: body["spec"]["priority"] == 2)
    await team.cluster.patch(CLUSTER_QUEUES, queue, None, {"spec": {"stopPolicy": "HoldAndDrain"}})
    await team.until(waits)
    await team.until_workload(lambda body: holds(body, "QuotaReserved", "False"))
    await team.change({"workers": {"min": 1, "max": 2}})
    await team.until_workload(lambda body: "minCount" in body["spec"]["podSets"][0])
    await team.cluster.patch(CLUSTER_QUEUES, queue, None, {"spec": {"stopPolicy": "None"}})
    second = await team.until(runs_as(2))
    await team.change({"workers": {"min": 3, "max": 3}})
    third = await team.until(runs_as(second.status.attempt + 1))
    await team.change({"suspend": True})
    await team.until(lambda job: holds_of_job(job.status, "Suspended"))
    await team.change({"suspend": False})
    await team.until(runs_as(third.status.attempt + 1))
    await team.finish()
    await team.until_workload(lambda body: holds(body, "Finished"))


async def told(team: Team, operator: Operator, seen: Seen, kills: int) -> None:
    """The way under an operator that is started again, and what is left of it."""
    operator.keep_running()
    try:
        telling = asyncio.create_task(whole_way(team))
        following: asyncio.Task[None] | None = None
        try:
            while not telling.done():
                operator.keep_running()
                if following is None and (found := await team.cluster.list(HULK_JOBS, team.name)).items:
                    following = asyncio.create_task(seen.follow(team.cluster, found.items[0]))
                await asyncio.sleep(LOOK_S)
            await telling
            await operator.until_killed(kills)
            await team.cluster.delete(HULK_JOBS, JOB, team.name)
            assert following is not None
            await following
        finally:
            telling.cancel()
            if following is not None:
                following.cancel()
        seen.check()
        last = seen.statuses[-1].status
        assert (last.failures, last.disruptions) == (0, 0)
        await nothing_left(team.cluster, team.name)
        await events_said_once(team.cluster, team.name, {"QueuedByKueue", "EvictedByKueue", "Suspended", "Succeeded"})
        while (await team.cluster.list(WORKLOADS, team.name)).items:
            await asyncio.sleep(LOOK_S)
    finally:
        await operator.stop()


def cases(recorded: Counter[tuple[str, str]]) -> Iterator[tuple[str, KillPoint]]:
    """Before and after each of the writes, and the first status write in which each of the steps has a part."""
    for step, write in sorted(OURS):
        for number in range(1, recorded[step, write] + 1):
            for moment in MOMENTS:
                yield (
                    f"{step}-{write.replace(' ', '-').replace('/', '-')}-{number}-{moment}",
                    KillPoint(step, write, number, moment),
                )
    for step in sorted(KUEUE - SILENT - {"workload"}):
        for moment in MOMENTS:
            yield f"{step}-changes-the-status-{moment}", KillPoint(*STATUS_WRITE, 1, moment, because=step)


@pytest.mark.timeout(1800)
async def test_killed_anywhere_a_job_of_a_queue_goes_its_way(
    kueue_lab: up.Lab, forks: ForkServerContext, tmp_path: Path
) -> None:
    kubeconfig = kueue_lab.control.kubeconfig
    cluster = await connect(str(kubeconfig))
    await prepare(cluster)

    async def way(number: int, point: KillPoint | Record, log: Path, seen: Seen, kills: int = 1) -> None:
        team = Team(cluster, f"kueue-kill-{number}")
        operator = Operator(forks, team.name, kubeconfig, log, point, trains=True)
        try:
            await team.open(3)
            await told(team, operator, seen, kills)
        finally:
            await team.close()

    async def case(number: int, point: KillPoint, log: Path, seen: Seen) -> None:
        await way(number, point, log, seen)

    try:
        async with asyncio.timeout(CASE_S):
            await way(999, Record(tmp_path / "written"), tmp_path / "record.log", Seen(), kills=0)
        lines = (tmp_path / "written").read_text().splitlines()
        recorded = Counter((step, write) for step, _, write in (line.partition("\t") for line in lines))
        assert recorded.keys() >= OURS, "every write to Kueue's objects is on the way"
        failed = await failures(selected(cases(recorded)), tmp_path, case)
    finally:
        await cluster.close()
    assert not failed, "\n\n".join(failed)


def test_the_steps_are_those_of_the_recipe() -> None:
    assert {step.name for step in RECIPE} >= KUEUE
