"""Starts that fail: whose fault it is decides whether they count, which nodes are avoided, and when the job ends."""

from dataclasses import replace
from typing import Any

import pytest
from hulk_operator.api import ConditionType, HulkJobStatus
from hulk_operator.cluster import EVENTS, Forbidden, Object
from hulk_operator.pods import Exit, Reason, WorkerPod
from hulk_operator.reconcile.recipe import Decision, decide
from hulk_operator.reconcile.steps.start_failures import MAX_FAILED_STARTS
from hulk_operator.reconcile.types import Memory, ReadWarnings, Warnings
from hulk_operator.status import condition, finished, holds
from test_reconcile_pass import World
from views import NOW, ago, decision, deploying, full, gang, job, pod, view

NOT_FOUND = 'Back-off pulling image "hulk:9": ErrImagePull: failed to resolve reference "hulk:9": not found'
NO_ANSWER = 'Back-off pulling image "hulk:9": ErrImagePull: dial tcp 10.0.0.9:443: i/o timeout'
UNMOUNTED = 'MountVolume.SetUp failed for volume "keys" : secret "keys" not found'
NO_CLAIM = '0/3 nodes are available: persistentvolumeclaim "data" not found.'
JOBS_OWN = {
    "ImagePullBackOff": NOT_FOUND,
    "InvalidImageName": 'couldn\'t parse image name "Hulk:9"',
    "CreateContainerConfigError": 'secret "s3" not found',
    "RunContainerError": 'exec: "pyton": executable file not found in $PATH',
}


def told(found: HulkJobStatus, kind: ConditionType) -> str:
    known = condition(found, kind)
    assert known is not None
    return known.message


def starting(why: Reason, failures: int = 0, memory: Memory | None = None, **spec: Any) -> Decision:
    """A gang of which no container starts, for that reason."""
    stuck = gang(phase="Pending", waiting=why)
    known = deploying().model_copy(update={"failures": failures})
    return decide(view(known, job=job(**spec), full=full(), memory=memory or Memory(swept_to=1), pods=stuck))


@pytest.mark.parametrize("reason", JOBS_OWN)
def test_what_the_template_cannot_have_counts_up_to_the_limit_and_blames_no_node(reason: str) -> None:
    why = Reason(reason, JOBS_OWN[reason])
    first = starting(why).view.status
    assert (first.failures, first.avoided_nodes) == (1, ())
    assert not finished(first)
    assert told(first, ConditionType.DEPLOYED).endswith("; failure 1 of at most 3")
    last = starting(why, failures=3).view.status
    assert holds(last, "Failed")
    assert last.failures == 4
    assert told(last, ConditionType.FAILED).startswith("4 failures are more than backoffLimit = 3; the last: " + reason)
    assert JOBS_OWN[reason] in told(last, ConditionType.FAILED)


def test_a_registry_that_does_not_answer_does_not_count_but_is_not_asked_for_ever() -> None:
    why = Reason("ImagePullBackOff", NO_ANSWER)
    found = starting(why, failures=3).view.status
    assert (found.failures, finished(found)) == (3, False)
    ended = starting(why, memory=Memory(swept_to=1, unfit=MAX_FAILED_STARTS - 1)).view.status
    assert holds(ended, "Failed")
    assert NO_ANSWER in told(ended, ConditionType.FAILED)


CREATING = Reason("ContainerCreating", "")
PASSING = {
    "DNS": "dial tcp: lookup r.example on 10.96.0.10:53: no such host",
    "DNS fails": "dial tcp: lookup r.example: server misbehaving",
    "disk": "failed to extract layer: write /var/lib/containerd/x: no space left on device",
    "network": "dial tcp 10.0.0.9:443: connect: network is unreachable",
    "route": "dial tcp 10.0.0.9:443: connect: no route to host",
    "certificate": "tls: failed to verify certificate: x509: certificate signed by unknown authority",
    "client": "net/http: request canceled while waiting for connection (Client.Timeout exceeded)",
    "timeout": "dial tcp 10.0.0.9:443: i/o timeout",
    "refused": "dial tcp 10.0.0.9:443: connect: connection refused",
    "broken": "container says nothing that anybody knows",
}


def one_stuck(why: Reason, memory: Memory | None = None, **peers: Any) -> HulkJobStatus:
    """What becomes of a gang of which worker 1 does not start, for that reason."""
    stuck = (pod(0, **peers), pod(1, phase="Pending", waiting=why), pod(2, **peers))
    return decide(view(deploying(), full=full(), memory=memory or Memory(swept_to=1), pods=stuck)).view.status


@pytest.mark.parametrize("cause", PASSING)
@pytest.mark.parametrize("peers", [{}, {"phase": "Pending", "waiting": CREATING}], ids=["run", "start"])
def test_one_bad_node_is_avoided_and_never_ends_the_job(cause: str, peers: dict[str, Any]) -> None:
    why = Reason("ImagePullBackOff", f"Back-off pulling image: ErrImagePull: {PASSING[cause]}")
    found = one_stuck(why, **peers)
    assert (found.failures, [node.name for node in found.avoided_nodes]) == (0, ["node-1"])


@pytest.mark.parametrize(("cause", "reason"), [("DNS", "RegistryUnavailable"), ("disk", "NodesUnfit")])
def test_a_bad_node_is_not_tried_for_ever(cause: str, reason: str) -> None:
    why = Reason("ImagePullBackOff", PASSING[cause])
    found = one_stuck(why, Memory(swept_to=1, unfit=MAX_FAILED_STARTS - 1))
    assert PASSING[cause] in told(found, ConditionType.FAILED)
    assert condition(found, ConditionType.FAILED).reason == reason  # type: ignore[union-attr]


@pytest.mark.parametrize("cause", PASSING)
def test_what_all_nodes_say_blames_none_of_them(cause: str) -> None:
    found = starting(Reason("ImagePullBackOff", PASSING[cause])).view.status
    assert (found.failures, found.avoided_nodes) == (1 if cause == "broken" else 0, ())


@pytest.mark.parametrize("cause", ["DNS", "refused"])
def test_a_node_whose_kubelet_is_the_first_to_back_off_is_not_blamed_for_what_all_say(cause: str) -> None:
    pulling = Reason("ErrImagePull", PASSING[cause])
    found = one_stuck(Reason("ImagePullBackOff", PASSING[cause]), phase="Pending", waiting=pulling)
    assert (found.failures, found.avoided_nodes) == (0, ())


@pytest.mark.parametrize("words", [NOT_FOUND, "401 Unauthorized", "pull access denied", "manifest unknown"])
@pytest.mark.parametrize("peers", [{}, {"phase": "Pending", "waiting": CREATING}], ids=["run", "start"])
def test_an_image_that_is_refused_is_the_jobs_own_though_a_peers_node_has_it(words: str, peers: dict[str, Any]) -> None:
    found = one_stuck(Reason("ImagePullBackOff", words), **peers)
    assert (found.failures, found.avoided_nodes) == (1, ())


def test_the_jobs_own_fault_counts_though_another_pod_has_its_nodes() -> None:
    stuck = tuple(
        pod(worker, phase="Pending", waiting=Reason("ImagePullBackOff", words))
        for worker, words in enumerate((PASSING["DNS"], NOT_FOUND, PASSING["disk"]))
    )
    found = decide(view(deploying(), full=full(), memory=Memory(swept_to=1), pods=stuck)).view.status
    assert (found.failures, found.avoided_nodes) == (1, ())
    assert NOT_FOUND in told(found, ConditionType.DEPLOYED)


def test_a_container_that_runs_elsewhere_is_its_nodes_fault_and_does_not_count() -> None:
    found = one_stuck(Reason("RunContainerError", 'exec: "nvidia-hook": executable file not found in $PATH'))
    assert (found.failures, [node.name for node in found.avoided_nodes]) == (0, ["node-1"])


NO_DRIVER = "nvidia-container-cli: initialization error: nvml error: driver not loaded"
NO_NUMA = "Resources cannot be allocated with Topology locality"
UNSTARTED: dict[str, dict[str, Any]] = {
    "StartError": {"phase": "Failed", "exit": Exit(128, "StartError", NO_DRIVER, NOW)},
    "StartError of an init container": {"phase": "Failed", "exit": Exit(128, "StartError", NO_DRIVER, NOW, "prep")},
    **{
        reason: {"phase": "Failed", "failure": Reason(reason, NO_NUMA), "disruption": Reason(reason, NO_NUMA)}
        for reason in ("TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError")
    },
}


@pytest.mark.parametrize("name", UNSTARTED)
@pytest.mark.parametrize("peers", [{}, {"phase": "Pending", "waiting": CREATING}], ids=["run", "start"])
def test_a_node_that_cannot_start_a_container_or_refuses_a_pod_is_avoided(name: str, peers: dict[str, Any]) -> None:
    pods = (pod(0, **peers), pod(1, **UNSTARTED[name]), pod(2, **peers))
    found = decide(view(deploying(), full=full(), memory=Memory(swept_to=1), pods=pods)).view.status
    assert (found.failures, found.disruptions, [node.name for node in found.avoided_nodes]) == (0, 0, ["node-1"])
    assert not holds(found, ConditionType.PLANNED)
    often = Memory(swept_to=1, unfit=MAX_FAILED_STARTS - 1)
    assert holds(decide(view(deploying(), full=full(), memory=often, pods=pods)).view.status, "Failed")


def test_a_command_that_no_node_can_start_counts_as_an_end_of_the_runtime_too() -> None:
    stuck = gang(phase="Failed", exit=Exit(128, "StartError", JOBS_OWN["RunContainerError"], NOW))
    found = decide(view(deploying(), full=full(), memory=Memory(swept_to=1), pods=stuck)).view.status
    assert (found.failures, found.avoided_nodes) == (1, ())


@pytest.mark.parametrize("words", [NO_DRIVER, PASSING["broken"]])
def test_a_gang_that_is_all_on_one_node_blames_that_first_and_not_for_ever(words: str) -> None:
    stuck = gang(phase="Pending", waiting=Reason("CreateContainerError", words), node="node-1")
    found = decide(view(deploying(), full=full(), memory=Memory(swept_to=1), pods=stuck)).view.status
    assert (found.failures, [node.name for node in found.avoided_nodes]) == (0, ["node-1"])
    often = Memory(swept_to=1, unfit=MAX_FAILED_STARTS - 1)
    assert holds(decide(view(deploying(), full=full(), memory=often, pods=stuck)).view.status, "Failed")


def late(since_s: float, warnings: Warnings | None = None) -> Decision:
    waiting = (pod(0), pod(1, phase="Pending", waiting=CREATING), pod(2))
    memory = Memory(swept_to=1, warnings=warnings)
    return decide(view(deploying(since_s=since_s), full=full(), memory=memory, pods=waiting))


def warned(message: str, attempt: int = 1, age_s: float = 1) -> Warnings:
    return Warnings(attempt, ago(age_s), {"demo-1-1": Reason("FailedMount", message)})


@pytest.mark.parametrize(
    ("since_s", "warnings", "asked"),
    [
        (10, None, False),
        (40, None, True),
        (40, warned("x", attempt=0), True),
        (40, warned("nfs: connection timed out"), False),
        (120, warned("nfs: connection timed out", age_s=61), True),
    ],
)
def test_kubelets_warnings_of_a_late_pod_are_read_now_and_then(
    since_s: float, warnings: Warnings | None, asked: bool
) -> None:
    made = late(since_s, warnings)
    found = [action for _, action in made.actions if isinstance(action, ReadWarnings)]
    assert found == ([ReadWarnings(("demo-1-1",))] if asked else [])
    assert made.requeue_after_s is not None
    assert holds(made.view.status, "Planned")


def test_a_secret_that_no_kubelet_can_mount_is_the_jobs_own_and_named_long_before_the_timeout() -> None:
    found = late(40, warned(UNMOUNTED)).view.status
    assert (found.failures, found.avoided_nodes) == (1, ())
    assert UNMOUNTED in told(found, ConditionType.DEPLOYED)
    assert (found.last_failure or pytest.fail("no failure")).reason == "FailedMount"


def test_a_gang_that_is_late_for_another_warning_says_it_at_the_timeout() -> None:
    found = late(300, warned("nfs: connection timed out")).view.status
    assert "FailedMount: nfs: connection timed out" in told(found, ConditionType.DEPLOYED)
    assert (found.failures, [node.name for node in found.avoided_nodes]) == (0, ["node-1"])


FOREIGN: dict[str, dict[str, Any]] = {
    "no image": {
        "phase": "Pending",
        "waiting": Reason("ImagePullBackOff", "no match for platform in manifest: not found"),
    },
    "StartError": {
        "phase": "Failed",
        "exit": Exit(128, "StartError", 'exec: "/bin/train": exec format error', NOW),
    },
    "its last step": {"phase": "Failed", "exit": Exit(255, "Error", "exec /bin/train: exec format error\n", NOW)},
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("peers", [{}, {"phase": "Pending", "waiting": CREATING}], ids=["run", "start"])
def test_a_node_of_another_cpu_architecture_is_avoided_and_that_is_said(name: str, peers: dict[str, Any]) -> None:
    pods = (pod(0, **peers), pod(1, **FOREIGN[name]), pod(2, **peers))
    found = decide(view(deploying(), full=full(), memory=Memory(swept_to=1), pods=pods)).view.status
    assert (found.failures, [node.name for node in found.avoided_nodes]) == (0, ["node-1"])
    assert "the image is not for this node's CPU architecture" in told(found, ConditionType.DEPLOYED)


@pytest.mark.parametrize("name", FOREIGN)
def test_an_image_for_none_of_the_nodes_counts(name: str) -> None:
    found = decide(view(deploying(), full=full(), memory=Memory(swept_to=1), pods=gang(**FOREIGN[name]))).view.status
    assert (found.failures, found.avoided_nodes) == (1, ())
    assert "kubernetes.io/arch" in told(found, ConditionType.DEPLOYED)


MULTI_ATTACH = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) demo-1-0'
NO_CSI_DRIVER = "driver name nfs.csi.k8s.io not found in the list of registered CSI drivers"


def too_late(*pods: WorkerPod, memory: Memory | None = None, warnings: Warnings | None = None) -> HulkJobStatus:
    """What becomes of a gang that is not up after startTimeoutSeconds."""
    known = replace(memory or Memory(swept_to=1), warnings=warnings)
    return decide(view(deploying(since_s=300), full=full(), memory=known, pods=pods)).view.status


def slow(worker: int, reason: str = "ContainerCreating", message: str = "", **fields: Any) -> WorkerPod:
    return pod(worker, phase="Pending", waiting=Reason(reason, message), **fields)


def test_a_node_that_holds_a_gang_back_is_avoided_but_not_for_ever() -> None:
    pods, warnings = (pod(0), slow(1), pod(2)), warned(NO_CSI_DRIVER)
    found = too_late(*pods, warnings=warnings)
    assert (found.failures, finished(found), [node.name for node in found.avoided_nodes]) == (0, False, ["node-1"])
    ended = too_late(*pods, memory=Memory(swept_to=1, unfit=MAX_FAILED_STARTS - 1), warnings=warnings)
    assert condition(ended, ConditionType.FAILED).reason == "NodesUnfit"  # type: ignore[union-attr]
    assert NO_CSI_DRIVER in told(ended, ConditionType.FAILED)


def test_a_gang_that_no_node_has_taken_yet_is_tried_for_as_long_as_it_takes() -> None:
    waiting = gang(phase="Pending", node="", unschedulable="0/3 nodes are available: 3 Insufficient cpu.")
    often = Memory(swept_to=1, unstable=1000, unfit=MAX_FAILED_STARTS - 1)
    assert not finished(too_late(*waiting, memory=often))


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("InitContainerRuns", "read what it waits for with kubectl logs -c, or raise runPolicy.startTimeoutSeconds"),
        ("SidecarNotStarted", "mend the sidecar or its startupProbe"),
        ("CrashLoopBackOff", "read why it crashes with kubectl logs -c"),
    ],
)
def test_an_init_container_that_goes_on_for_ever_counts_and_blames_no_node(reason: str, says: str) -> None:
    found = too_late(pod(0), slow(1, reason, "init container wait"), pod(2))
    assert (found.failures, found.avoided_nodes) == (1, ())
    assert f"{reason} init container wait" in told(found, ConditionType.DEPLOYED)
    assert says in told(found, ConditionType.DEPLOYED)


def test_an_init_container_that_waits_for_a_peer_whose_node_is_slow_leaves_that_node_to_blame() -> None:
    found = too_late(slow(0, "InitContainerRuns"), slow(1), slow(2, "InitContainerRuns"))
    assert (found.failures, [node.name for node in found.avoided_nodes]) == (0, ["node-1"])


def test_a_volume_that_one_node_at_a_time_may_have_counts_and_says_what_to_do() -> None:
    found = too_late(pod(0), slow(1), pod(2), warnings=warned(MULTI_ATTACH))
    assert (found.failures, found.avoided_nodes) == (1, ())
    assert "give the workers a ReadWriteMany claim" in told(found, ConditionType.DEPLOYED)


@pytest.mark.parametrize(
    "words",
    [
        NO_CLAIM,
        "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 nodes",
        '0/3 nodes are available: storageclass.storage.k8s.io "fast" not found.',
    ],
)
def test_a_volume_that_no_node_can_have_is_no_nodes_fault_and_counts(words: str) -> None:
    waiting = gang(phase="Pending", node="", unschedulable=words)
    found = decide(view(deploying(since_s=300), full=full(), memory=Memory(swept_to=1), pods=waiting)).view.status
    assert (found.failures, found.avoided_nodes) == (1, ())
    assert words in told(found, ConditionType.DEPLOYED)


@pytest.mark.parametrize(("since_s", "failures"), [(5, 0), (40, 1)])
def test_a_volume_claim_that_is_not_there_is_named_long_before_the_timeout(since_s: float, failures: int) -> None:
    waiting = gang(phase="Pending", node="", unschedulable=NO_CLAIM)
    found = decide(view(deploying(since_s=since_s), full=full(), memory=Memory(swept_to=1), pods=waiting)).view.status
    assert (found.failures, found.avoided_nodes) == (failures, ())
    assert (NO_CLAIM in told(found, ConditionType.DEPLOYED)) == bool(failures)


def event(pod: str, message: str, time: str = "01", kind: str = "Warning", reason: str = "FailedMount") -> Object:
    """An event about the pod of that uid; `time`: by the clock of whoever wrote it."""
    return {
        "metadata": {"name": f"{pod}.{message}", "namespace": "lab"},
        "involvedObject": {"kind": "Pod", "name": "demo-1-0", "uid": pod},
        "type": kind,
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-05-04T12:00:{time}Z",
    }


def uid(world: World, worker: int) -> str:
    found: str = world.cluster.objects["pods", "lab", f"demo-1-{worker}"]["metadata"]["uid"]
    return found


def creating(worker: int) -> Object:
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "worker", "state": {"waiting": {"reason": CREATING.reason}}}],
    }


async def test_the_last_warning_of_a_pod_is_read_from_its_events() -> None:
    other = event("1", "of another pod")
    well = event("0", "a volume is there", kind="Normal", reason="SuccessfulAttachVolume")
    found = (await after_events(event("0", "an older one"), event("0", UNMOUNTED), well, other)).job().status
    assert (found.last_failure or pytest.fail("no failure")).message == UNMOUNTED
    assert found.failures == 1


@pytest.mark.parametrize("progress", ["Scheduled", "Pulling", "Pulled", "Created", "Started"])
async def test_a_warning_is_over_when_the_pod_came_further_whatever_the_clocks_say(progress: str) -> None:
    """The Secret came a little later, and the image takes its time."""
    older = event("0", "pulling", "01", kind="Normal", reason=progress)
    world = await after_events(event("0", UNMOUNTED, "50"), older)
    assert holds(world.job().status, "Planned")
    assert world.job().status.failures == 0
    again = await after_events(older, event("0", UNMOUNTED, "01"))
    assert again.job().status.failures == 1


async def test_a_warning_of_a_pod_that_had_the_name_before_says_nothing() -> None:
    world = await after_events(event("gone", UNMOUNTED))
    assert holds(world.job().status, "Planned")


async def after_events(*events: Object) -> World:
    """A gang that is late, after a look at these events, each of the worker of that number, or of nobody's."""
    world = World(decision())
    await world.passes(2)
    world.pods_become(creating)
    for one in events:
        about = one["involvedObject"]
        known = {**about, "uid": uid(world, int(about["uid"]))} if about["uid"].isdecimal() else about
        await world.cluster.create(EVENTS, {**one, "involvedObject": known})
    world._wait(31)
    await world.passes(2)
    return world


async def test_another_container_that_cannot_start_is_named_at_once() -> None:
    world = World(decision())
    await world.passes(2)
    message = "Back-off: manifest unknown"
    statuses = [
        {"name": "worker", "state": {"running": {}}},
        {"name": "proxy", "state": {"waiting": {"reason": "ImagePullBackOff", "message": message}}},
    ]
    world.pods_become(lambda _: {"phase": "Pending", "containerStatuses": statuses})
    await world.passes(1)
    found = world.job().status
    assert (found.failures, found.avoided_nodes) == (1, ())
    assert f"container proxy: {message}" in told(found, ConditionType.DEPLOYED)


async def test_an_operator_that_may_not_read_events_waits_for_the_timeout() -> None:
    world = World(decision())
    await world.passes(2)
    world.pods_become(creating)

    async def forbidden(*_: Any, **__: Any) -> Any:
        raise Forbidden(403, "Forbidden", "no")

    world.cluster.list = forbidden  # type: ignore[method-assign]
    world._wait(31)
    await world.passes(2)
    assert holds(world.job().status, "Planned")
    world._wait(300)
    await world.passes(1)
    assert (world.job().status.last_failure or pytest.fail("no failure")).reason == "StartTimeout"
    assert world.now > NOW
