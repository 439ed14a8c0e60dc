"""Plan and job -> manifests, and pods -> facts: nothing of the user's template is lost or changed."""

from base64 import b64decode
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.pods import (
    is_worker,
    network_policy,
    owner_reference,
    peer_secret,
    plan_config_map,
    pods,
    service,
    worker_pod,
)
from views import NODES, job, plan

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "mine"}, "finalizers": ["example.com/keep"]},
    "spec": {
        "initContainers": [{"name": "fetch", "image": "fetch:1"}],
        "containers": [
            {
                "name": "worker",
                "image": "hulk:0.1.0",
                "env": [{"name": "GLOO_SOCKET_IFNAME", "value": "net1"}, {"name": "RANKS", "value": "$(WORLD_SIZE)"}],
                "envFrom": [{"configMapRef": {"name": "more"}}],
                "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
            {"name": "sidecar", "image": "log:1", "securityContext": {"privileged": True}},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []},
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [],
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                        {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
                    ]
                },
            },
        },
        "runtimeClassName": "nvidia",
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
    },
}


def env(pod: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}


def contains(whole: Any, part: Any) -> bool:
    """Whether everything in `part` is in `whole`, lists in order."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contains(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        rest = iter(whole)
        return all(any(contains(have, want) for have in rest) for want in part)
    return bool(whole == part)


def test_nothing_of_the_template_is_lost() -> None:
    one = job(template=TEMPLATE)
    (pod,) = pods(one, plan(2), [1])
    wanted = {**TEMPLATE["spec"]}
    affinity = wanted.pop("affinity")
    assert contains(pod["spec"], wanted)
    assert contains(pod["spec"]["affinity"], affinity)
    assert contains(pod["metadata"], TEMPLATE["metadata"])


def test_every_alternative_of_the_users_affinity_is_narrowed_to_the_node() -> None:
    for worker, pod in enumerate(pods(job(template=TEMPLATE), plan(), range(3))):
        required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        field = {"key": "metadata.name", "operator": "In", "values": [NODES[worker]]}
        assert [term["matchFields"] for term in required["nodeSelectorTerms"]] == [[field], [field]]
        assert "nodeName" not in pod["spec"]


def test_a_pod_has_its_name_labels_owner_and_policy() -> None:
    (pod,) = pods(job(priorityClassName="high"), plan(2), [1])
    assert pod["metadata"]["name"] == "demo-2-1"
    assert pod["metadata"]["labels"] == names.worker_labels("demo", 2, 1)
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("u1", True, False)
    spec = pod["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("demo-2-1", "demo-2")
    assert (spec["restartPolicy"], spec["priorityClassName"]) == ("Never", "high")
    assert spec["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_one_accelerator_per_worker_gets_ranks() -> None:
    found = env(pods(job(), plan(2), [1])[0])
    assert (found["RANK"], found["WORLD_SIZE"], found["LOCAL_RANK"], found["LOCAL_WORLD_SIZE"]) == ("1", "3", "0", "1")
    assert found["MASTER_ADDR"] == "demo-2.lab.svc"
    assert found["MASTER_PORT"] == "29400"
    assert (found["GLOO_SOCKET_IFNAME"], found["NCCL_SOCKET_IFNAME"]) == ("eth0", "eth0")
    assert (found["HULK_JOB"], found["HULK_JOB_UID"]) == ("lab/demo", "u1")
    assert (found["HULK_ATTEMPT"], found["HULK_WORKER"]) == ("2", "1")
    assert not any(name.startswith("PET_") for name in found)


def test_several_accelerators_per_worker_get_a_static_rendezvous() -> None:
    one = job(workers={"min": 3, "max": 3, "acceleratorsPerWorker": 2})
    (pod,) = pods(one, plan(accelerators=2), [2])
    found = env(pod)
    assert (found["PET_NNODES"], found["PET_NPROC_PER_NODE"], found["PET_NODE_RANK"]) == ("3", "2", "2")
    assert (found["PET_MASTER_ADDR"], found["PET_MASTER_PORT"]) == (found["MASTER_ADDR"], "29400")
    assert "RANK" not in found
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_the_users_interfaces_are_kept_and_hulks_names_come_first() -> None:
    (pod,) = pods(job(template=TEMPLATE), plan(), [0])
    order = [entry["name"] for entry in pod["spec"]["containers"][0]["env"]]
    assert env(pod)["GLOO_SOCKET_IFNAME"] == "net1"
    assert order.count("GLOO_SOCKET_IFNAME") == 1
    assert order.index("WORLD_SIZE") < order.index("RANKS")


def test_restricted_security_is_the_default_and_the_users_own_is_kept() -> None:
    (plain,) = pods(job(), plan(), [0])
    assert plain["spec"]["securityContext"]["runAsNonRoot"] is True
    assert plain["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert plain["spec"]["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert plain["spec"]["automountServiceAccountToken"] is False
    (own,) = pods(job(template=TEMPLATE), plan(), [0])
    assert own["spec"]["containers"][1]["securityContext"] == {"privileged": True}
    assert "securityContext" in own["spec"]["initContainers"][0]


@pytest.mark.parametrize(("own", "group"), [({"runAsUser": 7}, 65532), ({"runAsUser": 7, "fsGroup": 8}, 8)])
def test_whoever_writes_to_a_claim_is_in_the_group_that_owns_it(own: dict[str, int], group: int) -> None:
    one = job(template={"spec": {**TEMPLATE["spec"], "securityContext": own}}, checkpoint=claim())
    (pod,) = pods(one, plan(), [0])
    policy = {"fsGroupChangePolicy": "OnRootMismatch"}
    assert pod["spec"]["securityContext"] == {**own, **policy, "fsGroup": group}


def claim() -> dict[str, Any]:
    return {"storage": {"persistentVolumeClaim": "claim"}}


@pytest.mark.parametrize(
    ("storage", "url"),
    [
        ({"url": "s3://bucket/x", "secretName": "s3"}, "s3://bucket/x"),
        ({"persistentVolumeClaim": "claim"}, "file:///var/hulk/checkpoint"),
    ],
)
def test_checkpoint_storage_reaches_the_worker(storage: dict[str, str], url: str) -> None:
    (pod,) = pods(job(checkpoint={"storage": storage, "everySteps": 7, "keep": 2}), plan(), [0])
    found, first = env(pod), pod["spec"]["containers"][0]
    assert (found["HULK_CHECKPOINT_URL"], found["HULK_CHECKPOINT_EVERY_STEPS"]) == (url, "7")
    assert found["HULK_CHECKPOINT_KEEP"] == "2"
    if "secretName" in storage:
        assert first["envFrom"] == [{"secretRef": {"name": "s3"}}]
    else:
        assert {"name": names.CHECKPOINT_VOLUME, "mountPath": "/var/hulk/checkpoint"} in first["volumeMounts"]
        assert pod["spec"]["volumes"][-1]["persistentVolumeClaim"] == {"claimName": "claim"}
        assert pod["spec"]["securityContext"]["fsGroup"] == 65532


@pytest.mark.parametrize(
    ("name", "security", "mode"),
    [
        ("Hulk's own settings have a group", None, 0o440),
        ("the user's have one", {"runAsUser": 7, "fsGroup": 8}, 0o440),
        ("root, with a group", {"fsGroup": 8}, 0o440),
        ("the user's have none: or user 7 could not read it", {"runAsNonRoot": True, "runAsUser": 7}, 0o444),
        ("root, without a group", {}, 0o444),
    ],
)
def test_the_worker_container_alone_has_the_file_that_peers_know_each_other_by(
    name: str, security: dict[str, Any] | None, mode: int
) -> None:
    template = {"spec": {**TEMPLATE["spec"], **({} if security is None else {"securityContext": security})}}
    (pod,) = pods(job(template=template), plan(2), [1])
    assert env(pod)["HULK_PEER_SECRET"] == "/etc/hulk/peers/secret", name
    (volume,) = [found for found in pod["spec"]["volumes"] if found["name"] == "hulk-peers"]
    assert volume["secret"] == {"secretName": "demo-peers-u1", "defaultMode": mode}
    first, sidecar = pod["spec"]["containers"]
    (mount,) = [found for found in first["volumeMounts"] if found["name"] == "hulk-peers"]
    assert mount == {"name": "hulk-peers", "mountPath": "/etc/hulk/peers", "readOnly": True}
    assert "volumeMounts" not in sidecar
    assert "volumeMounts" not in pod["spec"]["initContainers"][0]
    assert security in (None, pod["spec"]["securityContext"])


@pytest.mark.parametrize(("mode", "expected"), [("auto", True), ("ring", False), ("wan", True), ("local", True)])
def test_only_a_job_that_may_use_the_wan_collective_has_a_secret(mode: str, expected: bool) -> None:
    (pod,) = pods(job(sync={"mode": mode}), plan(), [0])
    assert ("hulk-peers" in {volume["name"] for volume in pod["spec"]["volumes"]}) is expected
    assert ("HULK_PEER_SECRET" in env(pod)) is expected


def test_the_secret_belongs_to_the_job_and_to_no_attempt() -> None:
    made = peer_secret(job(), owner_reference(job()), bytes(range(32)))
    assert (made["type"], made["immutable"]) == ("Opaque", True)
    assert b64decode(made["data"]["secret"]) == bytes(range(32))
    assert made["metadata"]["labels"] == {"hulk.dev/job": "demo", "app.kubernetes.io/managed-by": "hulk"}
    assert made["metadata"]["ownerReferences"] == [owner_reference(job())]


def test_the_children_of_an_attempt() -> None:
    one = job()
    config_map = plan_config_map(one, 2, b"plan", "digest", ("because", "so"))
    assert config_map["metadata"]["name"] == "demo-plan-2"
    assert config_map["immutable"] is True
    assert b64decode(config_map["binaryData"]["plan.json.gz"]) == b"plan"
    assert config_map["data"] == {"why": "because\nso"}
    headless = service(one, 2)
    assert (headless["spec"]["clusterIP"], headless["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert headless["spec"]["selector"] == names.worker_labels("demo", 2, 0)
    assert headless["spec"]["ipFamilyPolicy"] == "SingleStack"  # all ranks meet in one family
    policy = network_policy(one, 2)
    peers, metrics = policy["spec"]["ingress"]
    assert peers == {"from": [{"podSelector": policy["spec"]["podSelector"]}]}
    assert metrics == {"ports": [{"protocol": "TCP", "port": 9400}]}
    for child in (config_map, headless, policy):
        assert child["metadata"]["ownerReferences"][0]["uid"] == "u1"
        assert child["metadata"]["labels"] == names.attempt_labels("demo", 2)


def stored(**status: Any) -> dict[str, Any]:
    """A pod as the API server has it."""
    (pod,) = pods(job(), plan(2), [1])
    metadata = {**pod["metadata"], "uid": "p", "resourceVersion": "1"}
    return {**pod, "metadata": metadata, "status": status}


def test_a_worker_is_read_back() -> None:
    ended = {"exitCode": 3, "reason": "Error", "message": "boom", "finishedAt": "2026-05-04T12:00:00Z"}
    raw = stored(
        phase="Failed",
        podIP="10.0.0.1",
        containerStatuses=[{"name": "side", "state": {}}, {"name": "worker", "state": {"terminated": ended}}],
    )
    found = worker_pod(raw)
    assert (found.attempt, found.worker, found.job_uid, found.ip) == (2, 1, "u1", "10.0.0.1")
    assert found.exit is not None
    assert (found.exit.code, found.exit.message) == (3, "boom")
    assert found.failed
    assert not found.running


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "Evicted"),
        ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu"}, "OutOfResource"),
        (
            {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
            "PreemptionByScheduler",
        ),
        ({"phase": "Failed", "reason": "OutOfcpu"}, "OutOfcpu"),
        ({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "moved_by team/a"}]}, "MovedByTeamA"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, None),
    ],
)
def test_disruptions_are_told_from_failures(status: dict[str, Any], reason: str | None) -> None:
    found = worker_pod(stored(**status)).disruption
    assert (found.reason if found else None) == reason


def test_an_init_container_that_waits_is_the_reason() -> None:
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    raw = stored(
        phase="Pending",
        initContainerStatuses=[{"name": "fetch", "state": waits}],
        containerStatuses=[{"name": "worker", "state": {}}],
    )
    found = worker_pod(raw).waiting
    assert found is not None
    assert found.reason == "ImagePullBackOff"


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {names.LABEL_JOB: "demo"},
        {names.LABEL_JOB: "demo", names.LABEL_ATTEMPT: "x", names.LABEL_WORKER: "0"},
    ],
)
def test_pods_that_only_look_like_workers_are_left_out(labels: dict[str, str]) -> None:
    raw = stored()
    assert is_worker(raw)
    assert not is_worker({**raw, "metadata": {**raw["metadata"], "labels": labels}})
    assert not is_worker({**raw, "metadata": {**raw["metadata"], "ownerReferences": []}})
