"""Hulk's all-reduce in images that lack it: which pods have the init container, and what it leaves as it was."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import Forbidden
from hulk_operator.inputs.pod_size import limits, requests
from hulk_operator.pods import Instrumentation, gang_config_map, pods, sample_pod, stays
from hulk_operator.pods.orders import NO_ORDERS
from hulk_operator.reconcile.recipe import decide
from hulk_operator.reconcile.types import Admission, Create, Memory, TryPod
from hulk_operator.status import condition
from hulk_placement.collective.classes import plan_collective
from hulk_placement.collective.network import Network
from hulk_placement.plan import Layout, Plan
from views import GENERATION, NOW, deploying, full, job, plan, view

SOURCE = Instrumentation("registry.example/hulk:7", "Always")
NETWORK = Network(
    regions=("eu", "us"),
    ranks=((0, 1), (2,)),
    rate=((0.0, 1e7), (1e7, 0.0)),
    latency_s=((0.0, 0.05), (0.05, 0.0)),
    egress=(1e9, 1e9),
    ingress=(1e9, 1e9),
    inside_rate=(1e9, 1e9),
    inside_latency_s=(1e-4, 1e-4),
)
HULK_INIT = names.INSTRUMENTATION_VOLUME


def between_regions() -> Plan:
    """A plan that uses Hulk's all-reduce."""
    return replace(plan(), algorithm="wan", collective=plan_collective(NETWORK, [1 << 20]))


def asking(spec: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **container: Any) -> HulkJob:
    worker = {"name": "worker", "image": "mine:1", **container}
    return job(template={"spec": {"containers": [worker], **(pod or {})}}, **(spec or {}))


def pod_spec(one: HulkJob, planned: Plan | None = None) -> dict[str, Any]:
    (pod,) = pods(one, planned or between_regions(), [1], instrumentation=SOURCE)
    found: dict[str, Any] = pod["spec"]
    return found


def env(spec: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in spec["containers"][0]["env"]}


def inits(spec: dict[str, Any]) -> list[str]:
    return [container["name"] for container in spec.get("initContainers", ())]


LAUNCH = ["/opt/hulk/bin/hulk-launch", "train.py"]
BROUGHT, LAUNCHED, LEFT = (True, True), (False, True), (False, False)
"""Whether there is an init container, and whether the environment asks for the all-reduce."""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (None, BROUGHT),
        (["torchrun", "train.py"], BROUGHT),
        (["python", "-m", "my.hulk_runtime_copy"], BROUGHT),
        (["python", "train.py", "--launcher=hulk-launch"], BROUGHT),
        (["sh", "-c", "cd /app; python train.py"], BROUGHT),
        (LAUNCH, LAUNCHED),
        (["sh", "-c", "cd /app && exec /opt/hulk/bin/hulk-launch train.py"], LAUNCHED),
        (["python", "-m", "hulk_runtime.examples.gpt"], LEFT),
        ([LAUNCH[0], "-m", "hulk_runtime.examples.gpt"], LEFT),
    ],
)
def test_who_brings_it_in_follows_from_the_command(command: list[str] | None, expected: tuple[bool, bool]) -> None:
    spec = pod_spec(asking(**({"command": command} if command else {})))
    assert (inits(spec) == [HULK_INIT], env(spec).get("HULK_INSTRUMENTATION") == "auto") == expected
    assert ("PYTHONPATH" in env(spec)) is expected[0]


@pytest.mark.parametrize("command", [["torchrun", "train.py"], LAUNCH])
def test_none_leaves_the_program_alone(command: list[str]) -> None:
    spec = pod_spec(asking({"instrumentation": "none"}, command=command))
    assert not inits(spec)
    assert not {"HULK_INSTRUMENTATION", "PYTHONPATH"} & env(spec).keys()


def test_a_plan_that_torch_runs_alone_needs_no_init_container() -> None:
    spec = pod_spec(asking(), plan())
    assert not inits(spec)
    assert not {"HULK_INSTRUMENTATION", "PYTHONPATH"} & env(spec).keys()


@pytest.mark.parametrize(
    "needing",
    [{"inner_steps": 50}, {"layout": Layout(1, shard=3)}, {"layout": Layout(1, tensor=3)}],
    ids=["replicas that train apart", "shards", "tensor ranks"],
)
def test_a_plan_in_one_region_needs_it_for_more_than_sums(needing: dict[str, Any]) -> None:
    shares = {"shares": (6,)} if "layout" in needing else {}
    planned = replace(plan(), **needing, **shares)
    assert planned.collective is None
    spec = pod_spec(asking(command=["torchrun", "train.py"]), planned)
    assert inits(spec) == [HULK_INIT]
    assert env(spec)["HULK_INSTRUMENTATION"] == "auto"
    assert not inits(pod_spec(asking({"instrumentation": "none"}), planned))
    assert not inits(pod_spec(asking(command=LAUNCH), planned))


def test_pods_that_stay_are_told_whatever_the_plan_that_they_were_made_for() -> None:
    """The next attempt's plan may use it, and changes only what the gang's ConfigMap says."""
    one = asking(command=LAUNCH)
    assert stays(one)
    specs = [pod_spec(one, planned) for planned in (plan(), between_regions())]
    assert [env(spec)["HULK_INSTRUMENTATION"] for spec in specs] == ["auto", "auto"]
    assert not any(map(inits, specs))
    assert "INSTRUMENTATION" not in gang_config_map(one, between_regions(), b"", NO_ORDERS)["data"]["environment.json"]


def test_the_init_container_is_the_first_and_fills_what_the_worker_reads() -> None:
    own = [{"name": "fetch", "image": "fetch:1"}]
    spec = pod_spec(asking(pod={"initContainers": own, "volumes": [{"name": "data", "emptyDir": {}}]}))
    assert inits(spec) == [HULK_INIT, "fetch"]
    first = spec["initContainers"][0]
    assert (first["image"], first["imagePullPolicy"]) == ("registry.example/hulk:7", "Always")
    assert first["command"] == ["cp", "-R", "/opt/hulk/instrumentation/.", "/opt/hulk-instrumentation"]
    assert first["terminationMessagePolicy"] == "FallbackToLogsOnError"
    mount = {"name": HULK_INIT, "mountPath": "/opt/hulk-instrumentation"}
    assert first["volumeMounts"] == [mount]
    assert {**mount, "readOnly": True} in spec["containers"][0]["volumeMounts"]
    assert {"name": HULK_INIT, "emptyDir": {}} in spec["volumes"]
    assert "instrumentation" not in str(spec["initContainers"][1])


@pytest.mark.parametrize(
    "pod",
    [
        {"initContainers": [{"name": HULK_INIT, "image": "mine:1"}]},
        {"containers": [{"name": "worker", "image": "mine:1"}, {"name": HULK_INIT, "image": "mine:2"}]},
        {"volumes": [{"name": HULK_INIT, "emptyDir": {}}, {"name": f"{HULK_INIT}-2", "emptyDir": {}}]},
    ],
    ids=["init container", "container", "volumes"],
)
def test_the_templates_own_names_are_kept(pod: dict[str, Any]) -> None:
    spec = pod_spec(asking(pod=pod))
    containers = [container["name"] for container in (*spec["initContainers"], *spec["containers"])]
    volumes = [volume["name"] for volume in spec["volumes"]]
    assert len(set(containers)) == len(containers)
    assert len(set(volumes)) == len(volumes)
    (filled,) = (mount["name"] for mount in spec["initContainers"][0]["volumeMounts"])
    assert filled in {mount["name"] for mount in spec["containers"][0]["volumeMounts"] if mount.get("readOnly")}
    assert filled in volumes[len(pod.get("volumes", ())) :]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([], ["/opt/hulk-instrumentation"]),
        ([{"name": "PYTHONPATH", "value": ""}], ["/opt/hulk-instrumentation"]),
        ([{"name": "PYTHONPATH", "value": "/a:/b"}], ["/opt/hulk-instrumentation:/a:/b"]),
        (
            [{"name": "HOME", "value": "/h"}, {"name": "PYTHONPATH", "value": "$(HOME)/lib"}, {"name": "Z"}],
            ["/opt/hulk-instrumentation:$(HOME)/lib"],
        ),
        (
            [{"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "paths", "key": "python"}}}],
            ["/opt/hulk-instrumentation:$(HULK_TEMPLATE_PYTHONPATH)"],
        ),
    ],
    ids=["none", "empty", "text", "reference", "from elsewhere"],
)
def test_the_templates_python_path_comes_behind(own: list[dict[str, Any]], expected: list[str]) -> None:
    found = pod_spec(asking(env=own))["containers"][0]["env"]
    assert [entry["value"] for entry in found if entry["name"] == "PYTHONPATH"] == expected
    order = [entry["name"] for entry in found]
    for before, after in pairwise([entry["name"] for entry in own]):
        assert order.index(before) < order.index(after), "what refers to another comes after it"
    sources = {entry["name"]: entry["valueFrom"] for entry in found if "valueFrom" in entry}
    assert list(sources.values()) == [entry["valueFrom"] for entry in own if "valueFrom" in entry]
    if sources:
        assert order.index(names.ENV_TEMPLATE_PYTHON_PATH) < order.index("PYTHONPATH")


@pytest.mark.parametrize(
    ("user", "expected"),
    [(None, {}), ({"runAsUser": 1000}, {}), ({"runAsUser": 0}, {"runAsUser": 65532, "runAsGroup": 65532}), ({}, {})],
    ids=["Hulk's", "own", "root", "the image's"],
)
def test_it_is_restricted_whoever_the_pod_runs_as(user: dict[str, int] | None, expected: dict[str, int]) -> None:
    spec = pod_spec(asking(pod={} if user is None else {"securityContext": user}))
    security = spec["initContainers"][0]["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        **expected,
    }


def quality(spec: dict[str, Any]) -> str:
    """The QoS class, as Kubernetes' documentation has it."""
    found = [container.get("resources") or {} for container in (*spec["initContainers"], *spec["containers"])]
    counted = [
        {kind: {n: v for n, v in of.get(kind, {}).items() if n in ("cpu", "memory")} for kind in of} for of in found
    ]
    if not any(any(of.values()) for of in counted):
        return "BestEffort"
    is_exact = all(
        len(of.get("limits", {})) == 2 and of.get("requests", of["limits"]) == of["limits"] for of in counted
    )
    return "Guaranteed" if is_exact else "Burstable"


FULL = {"cpu": "4", "memory": "8Gi"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "2"}, "limits": {"memory": "1Gi", "ephemeral-storage": "9Gi"}}, "Burstable"),
        ({"requests": FULL, "limits": {**FULL, "rdma/hca": "1", "hugepages-2Mi": "64Mi"}}, "Guaranteed"),
    ],
)
def test_a_pod_is_as_large_as_without_it_and_has_the_same_quality(resources: dict[str, Any], expected: str) -> None:
    side = {"name": "side", "image": "log:1", "resources": {"limits": {"cpu": "1", "memory": "64Mi"}}}
    side = side if expected == "Guaranteed" else {"name": "side", "image": "log:1"}
    one = asking(pod={"containers": [{"name": "worker", "image": "mine:1", "resources": resources}, side]})
    spec, without = pod_spec(one), pod_spec(one, plan())
    assert requests(spec) == requests(without)
    assert limits(spec) == limits(without)
    assert quality(spec) == expected
    assert "nvidia.com/gpu" not in str(spec["initContainers"][0]["resources"])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, True),
        ({"sync": {"mode": "wan"}}, True),
        ({"sync": {"mode": "local"}}, True),
        ({"sync": {"mode": "ring"}}, True),
        ({"sync": {"mode": "ring"}, "parallelism": {"shard": 1}}, False),
        ({"sync": {"mode": "ring"}, "parallelism": {"shard": 3}}, True),
        ({"sync": {"mode": "ring"}, "parallelism": {"tensor": 3, "shard": 1}}, True),
        ({"sync": {"mode": "ring"}, "model": None}, False),
        ({"instrumentation": "none"}, False),
        ({"model": None}, True),
        ({"parallelism": {"pipeline": 2}}, False),
        ({"parallelism": {"pipeline": 2, "shard": 2}}, True),
    ],
)
def test_the_dry_run_has_it_where_some_plan_may(spec: dict[str, Any], expected: bool) -> None:
    one = asking(spec)
    assert (inits(sample_pod(one, SOURCE)["spec"]) == [HULK_INIT]) is expected
    asked = replace(view(job=one), memory=Memory())
    (tried,) = (action.body for _, action in decide(asked).actions if isinstance(action, TryPod))
    assert (inits(tried["spec"]) == [HULK_INIT]) is expected


@pytest.mark.parametrize(
    ("message", "is_its"),
    [
        ("policy images: spec.initContainers[0].image registry.example/hulk:7 is of no allowed registry", True),
        ('violates PodSecurity: container "hulk-instrumentation" must not', True),
        ("maximum cpu usage per Container is 1, but limit is 2", False),
    ],
)
def test_a_refusal_of_the_init_container_says_what_does_without(message: str, is_its: bool) -> None:
    refused = Admission(GENERATION, NOW, Forbidden(403, "Forbidden", message), 1)
    decided = decide(replace(view(job=asking()), memory=Memory(admission=refused), instrumentation=SOURCE))
    found = condition(decided.view.status, "Planned")
    assert found is not None
    assert message in found.message
    assert ("spec.instrumentation: none" in found.message) is is_its


def test_the_releases_image_reaches_the_pods_that_are_made() -> None:
    made = view(deploying(), job=asking(), full=replace(full(), plan=between_regions()))
    decided = decide(replace(made, instrumentation=SOURCE))
    bodies = [body for _, action in decided.actions if isinstance(action, Create) for body in action.bodies]
    workers = [body["spec"] for body in bodies if body["kind"] == "Pod"]
    assert [spec["initContainers"][0]["image"] for spec in workers] == [SOURCE.image] * 3
