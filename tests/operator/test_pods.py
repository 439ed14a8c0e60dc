"""Plan and job -> manifests, and pods -> facts: nothing of the user's template is lost or changed."""

import json
from base64 import b64decode
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.api import CheckpointStatus
from hulk_operator.pods import (
    free_run,
    is_worker,
    metrics_readers,
    network_policy,
    owner_reference,
    peer_secret,
    plan_config_map,
    pods,
    ports,
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


@pytest.mark.parametrize("accelerators", [1, 2])
def test_every_launcher_finds_one_world(accelerators: int) -> None:
    one = job(workers={"min": 3, "max": 3, "acceleratorsPerWorker": accelerators})
    (pod,) = pods(one, plan(2, accelerators=accelerators), [1])
    found = env(pod)
    own = {
        "RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "1",
        "NODE_RANK": "1",
    }
    address = {"MASTER_ADDR": "demo-2.lab.svc", "MASTER_PORT": "29400"}
    torchrun = {
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": str(accelerators),
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "demo-2.lab.svc",
        "PET_MASTER_PORT": "29400",
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": "demo-2.lab.svc:29400",
        "PET_RDZV_ID": "u1-2",
    }
    assert {name: found.get(name) for name in (*own, *address, *torchrun)} == {**own, **address, **torchrun}
    assert (found["HULK_JOB"], found["HULK_JOB_UID"]) == ("lab/demo", "u1")
    assert (found["HULK_ATTEMPT"], found["HULK_WORKER"]) == ("2", "1")
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == str(accelerators)


def test_the_only_worker_of_several_accelerators_may_start_its_own_processes() -> None:
    one = job(workers={"min": 1, "max": 1, "acceleratorsPerWorker": 2})
    found = env(pods(one, plan(2, accelerators=2, nodes=("node-0",)), [0])[0])
    assert not {"LOCAL_RANK", "LOCAL_WORLD_SIZE"} & found.keys()
    assert (found["RANK"], found["WORLD_SIZE"], found["PET_NPROC_PER_NODE"]) == ("0", "1", "2")


def test_the_interface_is_not_assumed() -> None:
    assert not {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} & env(pods(job(), plan(2), [1])[0]).keys()


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
    assert (found["HULK_CHECKPOINT_STEP"], found["HULK_CHECKPOINT_TRUST_STORE"]) == ("0", "0")
    if "secretName" in storage:
        assert first["envFrom"] == [{"secretRef": {"name": "s3"}}]
    else:
        assert {"name": names.CHECKPOINT_VOLUME, "mountPath": "/var/hulk/checkpoint"} in first["volumeMounts"]
        claims = [
            volume["persistentVolumeClaim"] for volume in pod["spec"]["volumes"] if "persistentVolumeClaim" in volume
        ]
        assert claims == [{"claimName": "claim"}]
        assert pod["spec"]["securityContext"]["fsGroup"] == 65532


def test_a_worker_is_told_the_stores_of_all_regions() -> None:
    own = [{"region": "eu", "url": "s3://eu/x"}, {"region": "us", "url": "s3://us/x"}]
    found = env(pods(job(checkpoint={"storage": {"url": "s3://all/x", "regional": own}}), plan(), [0])[0])
    assert json.loads(found["HULK_CHECKPOINT_STORES"]) == {"eu": "s3://eu/x", "us": "s3://us/x"}
    assert "HULK_CHECKPOINT_STORES" not in env(pods(job(checkpoint=claim()), plan(), [0])[0])


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


def test_a_worker_is_told_which_step_was_committed_and_whether_to_trust_the_store() -> None:
    """By the first an older copy of the job's own checkpoints is noticed, which its signature cannot tell."""
    one = job(checkpoint={**claim(), "trustStore": True})
    saved = CheckpointStatus(step=40, where="pvc/claim")
    one = one.model_copy(update={"status": one.status.model_copy(update={"checkpoint": saved})})
    found = env(pods(one, plan(), [0])[0])
    assert (found["HULK_CHECKPOINT_STEP"], found["HULK_CHECKPOINT_TRUST_STORE"]) == ("40", "1")


@pytest.mark.parametrize(
    ("mode", "saves", "expected"),
    [("auto", False, True), ("ring", False, False), ("ring", True, True), ("wan", False, True), ("local", False, True)],
)
def test_only_a_job_that_may_use_the_wan_collective_or_signs_checkpoints_has_a_secret(
    mode: str, saves: bool, expected: bool
) -> None:
    (pod,) = pods(job(sync={"mode": mode}, checkpoint=claim() if saves else None), plan(), [0])
    assert ("hulk-peers" in {volume["name"] for volume in pod["spec"]["volumes"]}) is expected
    assert ("HULK_PEER_SECRET" in env(pod)) is expected


def test_a_worker_has_as_much_shared_memory_as_its_limit_allows() -> None:
    (pod,) = pods(job(template=TEMPLATE), plan(), [0])
    volume, mount = pod["spec"]["volumes"][-1], pod["spec"]["containers"][0]["volumeMounts"][-1]
    assert volume == {"name": mount["name"], "emptyDir": {"medium": "Memory"}}
    assert mount["mountPath"] == "/dev/shm"
    assert "volumeMounts" not in pod["spec"]["containers"][1]


def test_shared_memory_of_the_users_own_is_kept() -> None:
    (ipc,) = pods(job(template={"spec": {**TEMPLATE["spec"], "hostIPC": True}}), plan(), [0])
    assert "hulk-shared-memory" not in [volume["name"] for volume in ipc["spec"]["volumes"]]
    own = {"name": "data", "mountPath": "/dev/shm/"}
    container = {**TEMPLATE["spec"]["containers"][0], "volumeMounts": [own]}
    (pod,) = pods(job(template={"spec": {**TEMPLATE["spec"], "containers": [container]}}), plan(), [0])
    paths = [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
    assert paths.count("/dev/shm/") == 1
    assert "/dev/shm" not in paths
    assert "hulk-shared-memory" not in [volume["name"] for volume in pod["spec"]["volumes"]]


ON_HOST: dict[str, Any] = {"spec": {"hostNetwork": True, "containers": [{"name": "worker", "image": "hulk:0.1.0"}]}}


def test_pods_on_their_nodes_network_have_ports_of_the_attempt_and_find_rank_0() -> None:
    one, made = job(template=ON_HOST), plan(2, nodes=("node-0", "node-1", "node-0"))
    run = free_run(one, made, [])
    assert run is not None
    assert run.count == 3  # rank 0's, and the metrics of two workers on node-0
    found = ports(made, run)
    assert [found.metrics(worker) - run.first for worker in range(3)] == [1, 1, 2]
    first, _, third = pods(one, made, range(3), found)
    declared = [{"name": "hulk-metrics", "containerPort": run.first + 2, "hostPort": run.first + 2}]
    assert third["spec"]["containers"][0]["ports"] == declared
    assert {port["hostPort"] for port in first["spec"]["containers"][0]["ports"]} == {run.first, run.first + 1}
    assert first["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    exported = {"spec": {**ON_HOST["spec"], "dnsPolicy": "ClusterFirst"}}
    assert pods(job(template=exported), made, [0], found)[0]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    told = env(third)
    assert (told["MASTER_PORT"], told["PET_MASTER_PORT"]) == (str(run.first), str(run.first))
    assert (told["HULK_METRICS_PORT"], told["HULK_COLLECTIVE_PORT"]) == (str(run.first + 2), "0")
    assert [port["targetPort"] for port in service(one, 2, found)["spec"]["ports"]] == [run.first, run.first + 1]
    stored = {**third, "metadata": {**third["metadata"], "uid": "p"}, "status": {"podIP": "fd00::7"}}
    assert worker_pod(stored).address == f"[fd00::7]:{run.first + 2}"


def test_no_two_jobs_in_force_share_a_port() -> None:
    made = plan(1, nodes=("node-0", "node-0", "node-1"))
    taken: list[range] = []
    for number in range(200):
        one = job(template=ON_HOST)
        one = one.model_copy(update={"metadata": one.metadata.model_copy(update={"uid": f"u{number}"})})
        run = free_run(one, made, taken)
        assert run is not None
        assert not any(set(run.run) & set(other) for other in taken)
        assert run.run[0] >= names.FIRST_HOST_PORT
        assert run.run[-1] <= names.LAST_HOST_PORT
        taken.append(run.run)
    assert free_run(one, made, [range(names.FIRST_HOST_PORT, names.LAST_HOST_PORT + 1)]) is None


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
    policy = network_policy(one, 2, metrics_readers("system"))
    for child in (config_map, headless, policy):
        assert child["metadata"]["ownerReferences"][0]["uid"] == "u1"
        assert child["metadata"]["labels"] == names.attempt_labels("demo", 2)


def namespace(name: str) -> dict[str, Any]:
    return {"matchLabels": {"kubernetes.io/metadata.name": name}}


def test_workers_reach_each_other_and_operator_and_prometheus_their_metrics() -> None:
    spec = network_policy(job(), 2, metrics_readers("system", ("monitoring", "grafana")))["spec"]
    operator = {"app.kubernetes.io/name": "hulk", "app.kubernetes.io/component": "operator"}
    readers = [
        {"namespaceSelector": namespace("system"), "podSelector": {"matchLabels": operator}},
        {"namespaceSelector": namespace("monitoring")},
        {"namespaceSelector": namespace("grafana")},
    ]
    assert spec["ingress"] == [
        {"from": [{"podSelector": spec["podSelector"]}]},
        {"from": readers, "ports": [{"protocol": "TCP", "port": 9400}]},
    ]
    assert spec["podSelector"] == {"matchLabels": names.attempt_labels("demo", 2)}


def test_a_jobs_own_rules_come_after_hulks_as_they_were_written() -> None:
    mine = {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}], "ports": [{"port": "debug"}]}
    spec = network_policy(job(networkPolicy={"ingress": [mine]}), 2, metrics_readers("system"))["spec"]
    assert spec["ingress"][2:] == [mine]
    assert len(network_policy(job(), 2, metrics_readers("system"))["spec"]["ingress"]) == 2


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


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (137, "ContainerStatusUnknown", "ContainerLost"),
        (255, "Unknown", "ContainerLost"),
        (255, "Error", None),
        (137, "OOMKilled", None),
        (137, "Error", None),
    ],
)
def test_a_container_that_its_node_lost_is_disrupted(code: int, reason: str, expected: str | None) -> None:
    ended = {"name": "worker", "state": {"terminated": {"exitCode": code, "reason": reason}}}
    found = worker_pod(stored(phase="Failed", containerStatuses=[ended])).disruption
    assert (found.reason if found else None) == expected


def test_the_worker_is_its_container_by_name_wherever_a_webhook_put_it() -> None:
    raw = stored(
        phase="Running",
        containerStatuses=[
            {"name": "proxy", "state": {"running": {}}},
            {"name": "worker", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        ],
    )
    raw["spec"] = {**raw["spec"], "containers": [{"name": "proxy"}, *raw["spec"]["containers"]]}
    found = worker_pod(raw)
    assert (found.succeeded, found.failed, found.running, found.others_run) == (True, False, False, True)


@pytest.mark.parametrize(("restarts", "container"), [(None, "fetch"), ("Always", None)])
def test_an_init_container_that_failed_is_how_the_worker_ended(restarts: str | None, container: str | None) -> None:
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no data at /x"}}
    raw = stored(phase="Failed", initContainerStatuses=[{"name": "fetch", "state": ended}])
    raw["spec"] = {**raw["spec"], "initContainers": [{"name": "fetch", "restartPolicy": restarts}]}
    found = worker_pod(raw)
    assert found.failed
    assert (found.exit.container if found.exit else None) == container
    assert found.exit is None or (found.exit.code, found.exit.message) == (3, "no data at /x")


@pytest.mark.parametrize(
    ("status", "succeeded"),
    [
        ({"phase": "Succeeded"}, True),
        ({"phase": "Running"}, True),  # as the kubelet has it while it cleans up
        ({"phase": "Failed"}, True),  # another container failed
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, False),
        ({"phase": "Failed", "reason": "Evicted"}, False),
    ],
)
def test_exit_code_0_is_success_unless_the_pod_as_a_whole_failed(status: dict[str, Any], succeeded: bool) -> None:
    ended = {"name": "worker", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    found = worker_pod(stored(**status, containerStatuses=[ended]))
    assert (found.succeeded, found.failed) == (succeeded, not succeeded)


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
    ("proxy", "worker", "expected"),
    [
        ("ImagePullBackOff", {"running": {}}, "container proxy: no"),
        ("CreateContainerConfigError", {"running": {}}, "container proxy: no"),
        ("ImagePullBackOff", {"waiting": {"reason": "ContainerCreating"}}, "container proxy: no"),
        ("ImagePullBackOff", {"waiting": {"reason": "InvalidImageName", "message": "own"}}, "own"),
        ("ContainerCreating", {"running": {}}, None),
        ("PodInitializing", {"running": {}}, None),
    ],
)
def test_another_container_that_cannot_start_is_what_the_pod_waits_for(
    proxy: str, worker: dict[str, Any], expected: str | None
) -> None:
    statuses = [
        {"name": "worker", "state": worker},
        {"name": "proxy", "state": {"waiting": {"reason": proxy, "message": "no"}}},
    ]
    found = worker_pod(stored(phase="Pending", containerStatuses=statuses)).waiting
    assert (found.message if found else None) == expected


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {names.LABEL_JOB: "demo"},
        {**names.job_labels("demo"), names.LABEL_ATTEMPT: "x", names.LABEL_WORKER: "0"},
        {names.LABEL_JOB: "demo", names.LABEL_ATTEMPT: "1", names.LABEL_WORKER: "0"},
    ],
)
def test_pods_that_only_look_like_workers_are_left_out(labels: dict[str, str]) -> None:
    raw = stored()
    assert is_worker(raw)
    assert not is_worker({**raw, "metadata": {**raw["metadata"], "labels": labels}})


@pytest.mark.parametrize(
    "owners",
    [[], [{"controller": False}], [{"apiVersion": "batch.example/v1"}], [{"kind": "Job"}]],
    ids=["nobody", "a job in part", "a kind of that name", "another kind"],
)
def test_pods_that_no_job_manages_are_left_out(owners: list[dict[str, object]]) -> None:
    raw = stored()
    claimed = [{**raw["metadata"]["ownerReferences"][0], **change} for change in owners]
    assert not is_worker({**raw, "metadata": {**raw["metadata"], "ownerReferences": claimed}})


@pytest.mark.parametrize(
    ("restarts", "status", "reason"),
    [
        (None, {"state": {"running": {}}}, "InitContainerRuns"),
        ("Always", {"state": {"running": {}}, "started": False}, "SidecarNotStarted"),
        ("Always", {"state": {"running": {}}, "started": True}, "PodInitializing"),
        (None, {"state": {"terminated": {"exitCode": 0}}}, "PodInitializing"),
    ],
)
def test_an_init_container_that_still_runs_is_what_the_worker_waits_for(
    restarts: str | None, status: dict[str, Any], reason: str
) -> None:
    initializing = {"name": "worker", "state": {"waiting": {"reason": "PodInitializing"}}}
    raw = stored(phase="Pending", initContainerStatuses=[{"name": "fetch", **status}], containerStatuses=[initializing])
    raw["spec"] = {**raw["spec"], "initContainers": [{"name": "fetch", "restartPolicy": restarts}]}
    found = worker_pod(raw)
    assert found.waiting is not None
    assert found.waiting.reason == reason
    assert found.initializing is (reason != "PodInitializing")


SIDECAR_CRASHES = {"name": "logs", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}}


@pytest.mark.parametrize(
    ("state", "running", "waits"),
    [
        ({"running": {}}, True, None),
        ({"waiting": {"reason": "PodInitializing"}}, False, "init container logs: back-off 5m0s"),
    ],
)
def test_a_native_sidecar_holds_up_a_worker_only_until_that_runs(
    state: dict[str, Any], running: bool, waits: str | None
) -> None:
    statuses = [{"name": "worker", "state": state}]
    phase = "Running" if running else "Pending"
    found = worker_pod(stored(phase=phase, containerStatuses=statuses, initContainerStatuses=[SIDECAR_CRASHES]))
    assert found.running is running
    assert (found.waiting and found.waiting.message) == waits
