"""Carries out the actions of a pass: the only place where a reconcile writes anything but the status.

Every action can be repeated: what exists already is left, what is gone already is fine.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Protocol

from hulk_operator import background, names
from hulk_operator.api import AcceleratorStatus, HulkJob, NodeProfile
from hulk_operator.api.base import MAX_COUNT
from hulk_operator.cluster import (
    CONFIG_MAPS,
    EVENTS,
    HULK_JOBS,
    NETWORK_POLICIES,
    NODE_PROFILES,
    ORIGIN,
    POD_GROUPS,
    PODS,
    SECRETS,
    SERVICES,
    AlreadyExists,
    ApiResource,
    Cluster,
    Conflict,
    LeaseLost,
    NameTaken,
    NotFound,
    Object,
    Refused,
)
from hulk_operator.inputs import speeds
from hulk_operator.observation import Preflight
from hulk_operator.pods import Reason, owner_name, owner_reference, owner_uid, peer_secret, reason_of
from hulk_operator.reconcile.kueue_actions import KueueActions
from hulk_operator.reconcile.types import (
    Action,
    Admission,
    Calibrate,
    Calibration,
    Create,
    DeleteJob,
    DeletePods,
    Dequeue,
    Enqueue,
    KeepSpeeds,
    MakeSecret,
    Memory,
    ReadWarnings,
    RecordSpeeds,
    Relabel,
    Remember,
    RequestPlan,
    Step,
    Sweep,
    TellKueue,
    TryPod,
    View,
    Warnings,
    Write,
)
from hulk_operator.status import whole_second

logger = logging.getLogger(__name__)

NUM_IN_FLIGHT: Final = 32
NUM_IN_SELECTOR: Final = 256
NUM_CONFLICT_TRIES: Final = 5
_PROGRESS: Final = frozenset({"Scheduled", "Pulling", "Pulled", "Created", "Started"})
"""Events of a pod that came further: what it was warned of before is over."""
_NO_DRY_RUN: Final = "does not support dry run"  # in the API server's words, of a webhook
SWEPT: Final = (PODS, SERVICES, NETWORK_POLICIES, CONFIG_MAPS)


class Plans(Protocol):
    """What the executor asks of the planning pass."""

    def request(self, key: str) -> None:
        """Plan this job as soon as possible; again when it could not be planned."""
        ...

    async def calibrate(self, view: View, preflight: Preflight) -> Calibration | None:
        """The prediction that follows from what the ranks measured; None when they measured something else."""
        ...


class Executor:
    """Carries out actions.

    `created` is told of every object that was made, `remember` replaces a job's memory, `acts` says whether this
    operator may still delete and change: one that slept through the end of its lease would undo what its successor
    made. Creating needs no such question, because names tell the attempts apart. `random` answers that many bytes that
    nobody can guess.
    """

    def __init__(
        self,
        cluster: Cluster,
        plans: Plans,
        created: Callable[[ApiResource, Object], None],
        remember: Callable[[HulkJob, Callable[[Memory], Memory]], None],
        acts: Callable[[], bool] = lambda: True,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._plans = plans
        self._created = created
        self._remember = remember
        self._acts = acts
        kueue = KueueActions(cluster, created, remember, self._check_lease)
        self._perform: dict[type[Any], Callable[[View, Any], Awaitable[None]]] = {
            Calibrate: self._calibrate,
            Create: self._create,
            DeleteJob: self._delete_job,
            DeletePods: self._delete_pods,
            Dequeue: kueue.dequeue,
            Enqueue: kueue.enqueue,
            KeepSpeeds: self._keep_speeds,
            MakeSecret: self._make_secret,
            ReadWarnings: self._read_warnings,
            RecordSpeeds: self._record_speeds,
            Relabel: self._relabel,
            Remember: self._replace_memory,
            RequestPlan: self._request_plan,
            Sweep: self._sweep,
            TellKueue: kueue.tell,
            TryPod: self._try_pod,
            Write: self._write,
        }

    async def run(self, view: View, actions: Sequence[tuple[Step, Action]]) -> tuple[Refused, ...]:
        """Carry out all actions in order; stops at, and answers, an object that the API server refused for good.

        `Refused` of anything but an object of the gang is raised: it says nothing about the gang.
        """
        for step, action in actions:
            token = ORIGIN.set(step.name)
            try:
                await self._perform[type(action)](view, action)
            except Refused as error:
                if not isinstance(action, Create | Write | MakeSecret):
                    raise
                return (error,)
            finally:
                ORIGIN.reset(token)
        return ()

    async def _create(self, view: View, action: Create) -> None:
        """All bodies, NUM_IN_FLIGHT at a time; the first error ends it."""
        left = iter(action.bodies)
        uid = view.job.metadata.uid or ""

        async def work() -> None:
            for body in left:
                self._created(action.resource, await self._create_one(action.resource, body, uid))

        await background.all_of(work() for _ in range(min(NUM_IN_FLIGHT, len(action.bodies))))

    async def _create_one(self, resource: ApiResource, body: Object, uid: str) -> Object:
        try:
            return await self._try_to_create(resource, body)
        except AlreadyExists:
            return await self._existing(resource, body, uid)

    async def _try_to_create(self, resource: ApiResource, body: Object) -> Object:
        for remaining in reversed(range(NUM_CONFLICT_TRIES)):
            try:
                return await self._cluster.create(resource, body)
            except Conflict:  # concurrent updates of a ResourceQuota
                if not remaining:
                    raise
            except NotFound as error:
                if resource is not POD_GROUPS:
                    raise
                message = f"podGroups.enabled needs {POD_GROUPS.api_version} of the API server: {error.message}"
                raise Refused(error.status, "PodGroupsNotServed", message) from None
        raise AssertionError("the last try returns or raises")

    async def _make_secret(self, view: View, _: MakeSecret) -> None:
        """One that is there was made by an earlier pass: nobody knew its name before the job had its uid."""
        value = self._random(names.PEER_SECRET_BYTES)
        with suppress(AlreadyExists):
            await self._try_to_create(SECRETS, peer_secret(view.job, owner_reference(view.job), value))

    async def _existing(self, resource: ApiResource, body: Object, uid: str) -> Object:
        """The object of that name, which an earlier pass created.

        `Conflict` while it is of a deleted job of the same name, `NameTaken` when it is someone else's.
        """
        name = body["metadata"]["name"]
        found = await self._cluster.get(resource, name, body["metadata"].get("namespace"))
        if owner_uid(found) == uid:
            return found
        message = f"{resource.kind} {name} exists and belongs to another object"
        if owner_name(found) == owner_name(body):
            raise Conflict(409, "Conflict", message)
        raise NameTaken(409, "NameTaken", message)

    def _check_lease(self) -> None:
        if not self._acts():
            raise LeaseLost("the lease is over; nothing is deleted or changed any more")

    async def _write(self, view: View, action: Write) -> None:
        """One object that is there already gets the new one's labels and content; `_existing` says whose it may be."""
        body, uid = action.body, view.job.metadata.uid or ""
        found = await self._create_one(action.resource, body, uid)
        content = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
        if all(found.get(key) == value for key, value in content.items()):
            return
        self._check_lease()
        change = {**content, "metadata": {"labels": body["metadata"]["labels"]}}
        await self._cluster.patch(action.resource, body["metadata"]["name"], view.job.metadata.namespace, change)

    async def _relabel(self, view: View, action: Relabel) -> None:
        """All pods, NUM_IN_FLIGHT at a time; one that is gone by now is left to the next pass."""
        left = iter(action.labels.items())

        async def work() -> None:
            for name, labels in left:
                self._check_lease()
                with suppress(NotFound):
                    change = {"metadata": {"labels": dict(labels)}}
                    patched = await self._cluster.patch(PODS, name, view.job.metadata.namespace, change)
                    self._created(PODS, patched)

        await background.all_of(work() for _ in range(min(NUM_IN_FLIGHT, len(action.labels))))

    async def _sweep(self, view: View, action: Sweep) -> None:
        meta = view.job.metadata
        labels = f"{names.LABEL_JOB}={meta.name},{names.LABEL_MANAGED_BY}={names.MANAGER}"
        if action.keep:
            labels += f",{names.LABEL_ATTEMPT}!={action.keep}"
        for resource in SWEPT:
            self._check_lease()
            await self._cluster.delete_all(resource, meta.namespace or "", labels=labels)
        if view.pod_groups:
            with suppress(NotFound):  # where the API server serves none
                await self._cluster.delete_all(POD_GROUPS, meta.namespace or "", labels=labels)
        self._remember(view.job, lambda memory: replace(memory, swept_to=action.keep))

    async def _delete_job(self, view: View, action: DeleteJob) -> None:
        meta = view.job.metadata
        self._check_lease()
        try:
            await self._cluster.delete(HULK_JOBS, meta.name, meta.namespace, uid=action.uid)
        except (NotFound, Conflict):
            logger.info("%s: is gone already", view.job.key)

    async def _delete_pods(self, view: View, action: DeletePods) -> None:
        """By labels, some at a time: the operator may delete collections of pods only, and an address has its limit."""
        meta, left = view.job.metadata, iter(action.workers)
        labels = ",".join(f"{key}={value}" for key, value in names.attempt_labels(meta.name, action.attempt).items())
        while some := tuple(islice(left, NUM_IN_SELECTOR)):
            self._check_lease()
            of_these = f"{labels},{names.LABEL_WORKER} in ({','.join(map(str, some))})"
            await self._cluster.delete_all(PODS, meta.namespace or "", labels=of_these)

    async def _request_plan(self, view: View, _: RequestPlan) -> None:
        self._plans.request(view.job.key)

    async def _try_pod(self, view: View, action: TryPod) -> None:
        """A webhook that cannot be asked by a dry run says nothing about the pod."""
        refused: Refused | None = None
        try:
            await self._cluster.try_create(PODS, action.body)
        except AlreadyExists:
            pass
        except Refused as error:
            refused = None if _NO_DRY_RUN in error.message else error
        generation, known = view.job.metadata.generation, view.memory.admission
        before = known.num_refusals if known and known.generation == generation else 0
        admission = Admission(generation, view.now, refused, before + 1 if refused else 0)
        self._remember(view.job, lambda memory: replace(memory, admission=admission))

    async def _read_warnings(self, view: View, action: ReadWarnings) -> None:
        """Only events say why a volume is not mounted; an operator that may not read them goes on without."""
        found: dict[str, Reason] = {}
        for pod in (one for one in view.gang if one.name in action.pods):
            fields = f"involvedObject.kind=Pod,involvedObject.uid={pod.uid}"  # others had the name before
            try:
                listing = await self._cluster.list(EVENTS, view.job.metadata.namespace, fields=fields)
            except Refused as error:
                logger.warning("%s: events are not read: %s", view.job.key, error.message)
                break
            if last := _last_warning(listing.items):
                found[pod.name] = last
        warnings = Warnings(view.status.attempt, view.now, found)
        self._remember(view.job, lambda memory: replace(memory, warnings=warnings))

    async def _replace_memory(self, view: View, action: Remember) -> None:
        self._remember(view.job, lambda memory: replace(memory, **action.fields))

    async def _calibrate(self, view: View, action: Calibrate) -> None:
        try:
            calibration = await self._plans.calibrate(view, action.preflight)
        except (NotFound, ValueError) as error:  # such as a model whose ConfigMap was deleted meanwhile
            logger.warning("%s: no prediction from the preflight: %s", view.job.key, error)
            calibration = None
        if calibration is None:
            logger.warning("%s: the preflight does not fit the plan; it is read again", view.job.key)
            self._remember(view.job, _without_preflight)
            return
        self._remember(view.job, lambda memory: replace(memory, calibration=calibration))

    async def _keep_speeds(self, view: View, action: KeepSpeeds) -> None:
        """Once for each attempt, whatever comes of it."""
        self._remember(view.job, lambda memory: replace(memory, kept=action.seen.attempt, first_steps=()))
        try:
            calibration = await self._plans.calibrate(view, action.seen)
        except (NotFound, ValueError) as error:
            logger.warning("%s: no speeds from the first steps: %s", view.job.key, error)
            return
        if calibration is not None:
            await self._record_all(view, calibration, calibration.new)

    async def _record_speeds(self, view: View, action: RecordSpeeds) -> None:
        await self._record_all(view, action.calibration, action.calibration.flops_per_s)

    async def _record_all(self, view: View, calibration: Calibration, nodes: Iterable[str]) -> None:
        left = iter(sorted(nodes))

        async def work() -> None:
            for node in left:
                await self._record_speed(view, calibration, node)

        await background.all_of(work() for _ in range(NUM_IN_FLIGHT))

    async def _record_speed(self, view: View, calibration: Calibration, node: str) -> None:
        new = AcceleratorStatus(
            namespace=view.job.namespace,
            job=view.job.metadata.name,
            product=calibration.products[node],
            workload=calibration.workload,
            flops_per_second=max(1, round(min(calibration.flops_per_s[node], MAX_COUNT))),
            micro_batch=calibration.micro_batch,
            time=whole_second(view.now),
        )
        try:
            profile = NodeProfile.model_validate(await self._cluster.get(NODE_PROFILES, node))
            entries = [entry.wire() for entry in speeds.kept(profile.status.accelerators, new)]
            change = {"status": {"accelerators": entries}}
            await self._cluster.patch(NODE_PROFILES, node, None, change, subresource="status")
        except NotFound:
            logger.info("node %s has no NodeProfile; its speed is not kept", node)
        except (Refused, ValueError) as error:  # a courtesy to later jobs, no matter of this one
            logger.warning("the speed of node %s is not kept: %s", node, error)


def _without_preflight(memory: Memory) -> Memory:
    return replace(memory, sighting=memory.sighting and replace(memory.sighting, preflight=None))


def _last_warning(events: Sequence[Object]) -> Reason | None:
    """What a pod was warned of since it last came further, in the order in which the API server wrote it down."""
    written = sorted(events, key=lambda event: int(event["metadata"]["resourceVersion"]))
    news = [event for event in written if event.get("type") == "Warning" or event.get("reason") in _PROGRESS]
    if not news or news[-1].get("type") != "Warning":
        return None
    return Reason(reason_of(news[-1].get("reason") or ""), news[-1].get("message") or "")
