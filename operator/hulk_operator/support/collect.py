"""A cluster -> a bundle: versions, objects, then logs and metrics of the pods that were found."""

import json
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hulk_operator import background, names, version
from hulk_operator.cluster import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    HULK_JOBS,
    HULK_SWEEPS,
    HULK_TOPOLOGIES,
    LEASES,
    NODE_PROFILES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    ApiResource,
    Object,
    Refused,
)
from hulk_operator.support import trimming
from hulk_operator.support.archive import Bundle
from hulk_operator.support.reading import MAX_TEXT_BYTES, Reading, Server

MAX_AGENTS: Final = 10  # whose logs are read: first those that are not well
MAX_WORKERS: Final = 16  # of each job that is named: rank 0, then those that are not well
MAX_NAMESPACES: Final = 32  # whose pods' events are read
NUM_IN_FLIGHT: Final = 8
MAX_SENT_BYTES: Final = 16 << 20  # of a log; its end is kept
HULK_LABEL: Final = "app.kubernetes.io/name=hulk"
COMPONENT: Final = "app.kubernetes.io/component"
PLURALS: Final = (names.JOB_PLURAL, names.SWEEP_PLURAL, names.PROFILE_PLURAL, names.TOPOLOGY_PLURAL)
KINDS: Final = (names.JOB_KIND, names.SWEEP_KIND, names.PROFILE_KIND, names.TOPOLOGY_KIND)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asks for: where Hulk is, which namespace is theirs, and whose workers' logs are read."""

    system_namespace: str
    namespace: str
    jobs: tuple[str, ...] = ()
    log_lines: int = 2000


async def collect(server: Server, bundle: Bundle, wanted: Wanted) -> None:
    """Fill the bundle. A server that does not answer at all raises `ClusterError`."""
    try:
        bundle.add("versions/kubernetes.json", await server.tail("/version", {}, MAX_TEXT_BYTES))
    except Refused as error:
        bundle.lacks("version of Kubernetes", error.message)
    bundle.add("versions/hulk.json", json.dumps({"cli": version(), "api": names.API_VERSION}))
    reading = Reading(server, bundle, wanted.namespace)
    own = await _own_objects(reading, wanted.system_namespace)
    workers = await _job_objects(reading)
    await _events(reading, wanted.system_namespace, [*own, *workers])
    await _logs_and_metrics(reading, wanted, own)


async def _own_objects(reading: Reading, namespace: str) -> list[Object]:
    """What the chart made, as it is now; Hulk's own pods."""
    found = [
        one
        for plural in PLURALS
        for one in await reading.one(
            f"definition of {plural}", DEFINITIONS, f"{plural}.{names.GROUP}", None, trimming.definition
        )
    ]
    reading.bundle.add_list("versions/definitions.json", found)
    for name, resource in (("deployments", DEPLOYMENTS), ("daemonsets", DAEMON_SETS)):
        made = await reading.inside(f"Hulk's {name}", resource, namespace, trimming.own_object, labels=HULK_LABEL)
        reading.bundle.add_list(f"objects/hulk-{name}.json", made)
    lease = await reading.one("the Lease", LEASES, names.LEASE, namespace, trimming.own_object)
    reading.bundle.add_list("objects/lease.json", lease)
    pods: list[Object] = []
    for component, trim in (("operator", trimming.own_object), ("agent", trimming.agent)):
        labels = f"{HULK_LABEL},{COMPONENT}={component}"
        pods += await reading.inside(f"the {component}s' pods", PODS, namespace, trim, labels=labels)
    reading.bundle.add_list("objects/hulk-pods.json", pods)
    return pods


async def _job_objects(reading: Reading) -> list[Object]:
    """What users made, and what Hulk made for it; the pods of jobs."""
    users = trimming.user_object
    for name, resource in (("hulkjobs", HULK_JOBS), ("hulksweeps", HULK_SWEEPS)):
        reading.bundle.add_list(f"objects/{name}.json", await reading.everywhere(name, resource, users))
    of_cluster: tuple[tuple[str, ApiResource, trimming.Trim], ...] = (
        ("nodeprofiles", NODE_PROFILES, users),
        ("hulktopologies", HULK_TOPOLOGIES, users),
        ("nodes", NODES, trimming.node),
        ("priorityclasses", PRIORITY_CLASSES, users),
    )
    for name, resource, trim in of_cluster:
        reading.bundle.add_list(f"objects/{name}.json", await reading.inside(name, resource, None, trim))
    plans = await reading.everywhere("sizes of plans", CONFIG_MAPS, trimming.sizes, labels=names.LABEL_JOB)
    reading.bundle.add_list("objects/plan-configmaps.json", plans)
    pods = await reading.everywhere("pods of jobs", PODS, users, labels=names.LABEL_JOB)
    reading.bundle.add_list("objects/job-pods.json", pods)
    return pods


async def _events(reading: Reading, system_namespace: str, pods: Sequence[Object]) -> None:
    """Of Hulk's kinds everywhere, and of these pods."""
    found: list[Object] = []
    for kind in KINDS:
        found += await reading.inside(
            f"events of {kind}", EVENTS, None, trimming.event, fields=f"involvedObject.kind={kind}"
        )
    names_of = {_place(pod) for pod in pods}
    namespaces = sorted({system_namespace, *(namespace for namespace, _ in names_of)})
    for namespace in namespaces[:MAX_NAMESPACES]:
        of_pods = await reading.inside(
            f"events of pods in {namespace}", EVENTS, namespace, trimming.event, fields="involvedObject.kind=Pod"
        )
        found += [one for one in of_pods if (namespace, one["involvedObject"].get("name")) in names_of]
    if len(namespaces) > MAX_NAMESPACES:
        reading.bundle.lacks("events of pods in other namespaces", f"there are {len(namespaces)} with jobs")
    reading.bundle.add_list("objects/events.json", found)


async def _logs_and_metrics(reading: Reading, wanted: Wanted, own: Sequence[Object]) -> None:
    operators = [pod for pod in own if _label(pod, COMPONENT) == "operator"]
    agents = sorted((pod for pod in own if _label(pod, COMPONENT) == "agent"), key=_is_well)
    chosen = [(pod, names.OPERATOR_METRICS_PORT) for pod in operators]
    chosen += [(pod, names.AGENT_METRICS_PORT) for pod in agents[:MAX_AGENTS]]
    if len(agents) > MAX_AGENTS:
        reading.bundle.lacks(f"logs of {len(agents) - MAX_AGENTS} other agents", f"at most {MAX_AGENTS} are read")
    for job in wanted.jobs:
        what, labels = f"logs of job {wanted.namespace}/{job}", f"{names.LABEL_JOB}={job}"
        gang = _gang(await reading.inside(what, PODS, wanted.namespace, trimming.user_object, labels=labels))
        if not gang:
            reading.bundle.lacks(what, "it has no pods")
        if len(gang) > MAX_WORKERS:
            reading.bundle.lacks(f"{what}, {len(gang) - MAX_WORKERS} workers", f"at most {MAX_WORKERS} are read")
        chosen += [(pod, names.WORKER_METRICS_PORT) for pod in gang[:MAX_WORKERS]]
    await _side_by_side(
        work for pod, port in chosen for work in (*_logs(reading, pod, wanted.log_lines), _metrics(reading, pod, port))
    )


def _logs(reading: Reading, pod: Object, num_lines: int) -> Iterable[Coroutine[Any, Any, None]]:
    """The log of every container, and of the run before where it was started again."""
    namespace, name = _place(pod)
    restarted = {one["name"] for one in _statuses(pod) if one.get("restartCount")}
    for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
        for is_previous in (False, True) if container["name"] in restarted else (False,):
            asked = {"container": container["name"], "tailLines": str(num_lines), "limitBytes": str(MAX_SENT_BYTES)}
            asked["timestamps"] = "true"
            asked |= {"previous": "true"} if is_previous else {}
            file = f"logs/{namespace}/{name}/{container['name']}{'.previous' if is_previous else ''}.log"
            yield _text(reading, file, PODS.path(namespace, name, "log"), asked)


def _metrics(reading: Reading, pod: Object, port: int) -> Coroutine[Any, Any, None]:
    namespace, name = _place(pod)
    path = PODS.path(namespace, f"{name}:{port}", "proxy/metrics")
    return _text(reading, f"metrics/{namespace}/{name}.txt", path, {})


async def _text(reading: Reading, file: str, path: str, query: dict[str, str]) -> None:
    text = await reading.text(file, path, query)
    if text is not None:
        reading.bundle.add(file, text)


async def _side_by_side(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Some at a time: a node that does not answer holds up its own pods only."""
    left = iter(works)

    async def some() -> None:
        for work in left:
            await work

    await background.all_of(some() for _ in range(NUM_IN_FLIGHT))


def _gang(pods: Sequence[Object]) -> list[Object]:
    """Of a job's pods those of its newest attempt: rank 0, then those that are not well."""
    newest = max((int(_label(pod, names.LABEL_ATTEMPT) or 0) for pod in pods), default=0)
    gang = [pod for pod in pods if int(_label(pod, names.LABEL_ATTEMPT) or 0) == newest]
    return sorted(gang, key=lambda pod: (_label(pod, names.LABEL_WORKER) != "0", _is_well(pod)))


def _is_well(pod: Object) -> bool:
    """Whether it runs and was never started again."""
    statuses = _statuses(pod)
    return bool(statuses) and all(one.get("ready") and not one.get("restartCount") for one in statuses)


def _statuses(pod: Object) -> list[Object]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _place(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("namespace") or "", pod["metadata"]["name"]


def _label(pod: Object, key: str) -> str:
    found: str = (pod["metadata"].get("labels") or {}).get(key, "")
    return found
