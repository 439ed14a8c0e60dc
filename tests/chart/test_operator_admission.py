"""A stolen token of the operator, on a real API server: what it may touch, and what the policy keeps from it.

Written as its thief would try. What the operator itself does with its token is in `test_operator_rights`.
"""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hulk_lab.processes import wait_until
from hulk_operator import names
from rendering import CHART, INSTALLED_IN, Run

pytestmark = pytest.mark.controlplane

TENANT = "hulk-chart-tenant"
JSON, MERGE = "application/json", "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"  # which Kubernetes' own kinds know
HULKS = {"app.kubernetes.io/managed-by": "hulk", "hulk.dev/job": "demo"}
Object = dict[str, Any]


def owner(kind: str = "HulkJob", **changes: Any) -> Object:
    return {
        "apiVersion": "hulk.dev/v1alpha1",
        "kind": kind,
        "name": "demo",
        "uid": "11111111-2222-3333-4444-555555555555",
        "controller": True,
        **changes,
    }


def meta(name: str, labels: Object | None = None, *owners: Object) -> Object:
    return {"name": name, "labels": labels or {}, "ownerReferences": list(owners)}


def pod(name: str, labels: Object | None = None, *owners: Object) -> Object:
    spec = {"containers": [{"name": "worker", "image": "none"}], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta(name, labels, *owners), "spec": spec}


def placeholder(of_class: str) -> Object:
    found = pod("x", {**HULKS, names.LABEL_PLACEHOLDER: "1"}, owner())
    return {**found, "spec": {**found["spec"], **({"priorityClassName": of_class} if of_class else {})}}


def config_map(name: str, labels: Object | None = None, *owners: Object) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name, labels, *owners), "data": {"a": "b"}}


def secret(name: str, labels: Object | None = None, *owners: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta(name, labels, *owners), "data": {}}


def job(name: str, labels: Object | None = None, *owners: Object, **policy: Any) -> Object:
    template = {"spec": {"containers": [{"name": "worker", "image": "none"}]}}
    spec = {"workers": {"max": 1}, "template": template, "suspend": True, "runPolicy": policy}
    return {
        "apiVersion": "hulk.dev/v1alpha1",
        "kind": "HulkJob",
        "metadata": meta(name, labels, *owners),
        "spec": spec,
    }


@pytest.fixture(scope="module")
def admin(installed: Run) -> Iterator[Run]:
    """The administrator of a cluster with the chart and a tenant's namespace, where nobody collects garbage at once."""
    installed("kubectl", "create", "namespace", TENANT)
    try:
        yield installed
    finally:
        installed("kubectl", "delete", "namespace", TENANT)


@pytest.fixture(scope="module")
def thief(admin: Run, control_plane: Path) -> Callable[..., str]:
    """thief(method, path, body): one request with the operator's token; the refusal's message, "" when accepted."""
    cluster = yaml.safe_load(control_plane.read_text())["clusters"][0]["cluster"]
    authority = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    token = admin("kubectl", "create", "token", "hulk-operator", "-n", INSTALLED_IN).stdout.strip()

    def send(method: str, path: str, body: Object | None = None) -> str:
        patch = STRATEGIC if path.startswith("/api/v1/") else MERGE
        headers = {"Authorization": f"Bearer {token}", "Content-Type": patch if method == "PATCH" else JSON}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(cluster["server"] + path, content, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=authority, timeout=30):
                return ""
        except urllib.error.HTTPError as error:
            return str(json.load(error)["message"])

    wait_until(lambda: NOT_HULKS in send("POST", core("pods") + DRY, pod("x")), "the policy's effect", timeout_s=60)
    return send


def core(plural: str, namespace: str = TENANT, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def jobs(name: str = "") -> str:
    return f"/apis/hulk.dev/v1alpha1/namespaces/{TENANT}/hulkjobs" + (f"/{name}" if name else "")


POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{TENANT}/networkpolicies"
DRY = "?dryRun=All"
LONG_AGO = "2026-01-01T00:00:00Z"
NOT_HULKS = "only what is labelled as Hulk's and owned by a HulkJob or a HulkSweep"


def event(about: str) -> Object:
    involved = {"apiVersion": about, "kind": "X", "name": "x", "namespace": TENANT}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": involved, "reason": "R"}


def service(**spec: Any) -> Object:
    ports = [{"port": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta("s", HULKS, owner()),
        "spec": {"ports": ports, **spec},
    }


def fence(labels: Object) -> Object:
    spec = {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"]}
    group = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return {**group, "metadata": meta("n", HULKS, owner()), "spec": spec}


def lease(name: str) -> Object:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}}


LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{INSTALLED_IN}/leases"


@pytest.mark.parametrize(
    ("name", "path", "body", "expected"),
    [
        ("a pod of its own", core("pods"), pod("x"), NOT_HULKS),
        ("with the label", core("pods"), pod("x", HULKS), NOT_HULKS),
        ("with an owner, without the label", core("pods"), pod("x", {}, owner()), NOT_HULKS),
        ("with another label", core("pods"), pod("x", {"app.kubernetes.io/managed-by": "Helm"}, owner()), NOT_HULKS),
        ("of another kind", core("pods"), pod("x", HULKS, owner("Deployment", apiVersion="apps/v1")), NOT_HULKS),
        ("of a kind with that name", core("pods"), pod("x", HULKS, owner(apiVersion="evil.dev/v1")), NOT_HULKS),
        ("of a node's profile", core("pods"), pod("x", HULKS, owner("NodeProfile")), NOT_HULKS),
        ("of an owner that does not manage it", core("pods"), pod("x", HULKS, owner(controller=False)), NOT_HULKS),
        ("as if of a job, in kube-system", core("pods", "kube-system"), pod("x", HULKS, owner()), "no job runs in"),
        ("beside the operator", core("pods", INSTALLED_IN), pod("x", HULKS, owner()), "no job runs in"),
        ("a placeholder that pushes others aside", core("pods"), placeholder(""), "give way to every other pod"),
        ("a Secret that makes a token", core("secrets"), secret("x"), NOT_HULKS),
        ("a key for the operator's successor", core("secrets"), secret(names.ORDER_SECRET), NOT_HULKS),
        ("another Secret beside the operator", core("secrets", INSTALLED_IN), secret("x"), NOT_HULKS),
        ("settings of others", core("configmaps", "kube-system"), config_map("x", HULKS, owner()), "no job runs in"),
        ("an address of others", core("services"), service(clusterIP="None", externalIPs=["1.1.1.1"]), "headless"),
        ("a service for all", core("services"), service(type="NodePort"), "headless"),
        ("a fence around everything", POLICIES, fence({}), "about the pods of one job"),
        ("a fence around others' pods", POLICIES, fence({"app": "bank"}), "about the pods of one job"),
        ("a job", jobs(), job("x"), NOT_HULKS),
        ("a job as if of a job", jobs(), job("x", HULKS, owner()), NOT_HULKS),
        ("a false word about a pod", core("events"), event("v1"), NOT_HULKS),
        ("another's lease", LEASES, lease("scheduler"), NOT_HULKS),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" not in value else "",
)
def test_nothing_is_created_that_is_not_a_jobs(
    thief: Callable[..., str], name: str, path: str, body: Object, expected: str
) -> None:
    assert expected in thief("POST", path + DRY, body), name


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (core("pods"), pod("x", HULKS, owner())),
        (core("pods"), placeholder(names.PLACEHOLDER_CLASS)),
        (core("configmaps"), config_map("x", HULKS, owner("HulkSweep"))),
        (core("secrets"), secret("x", HULKS, owner())),
        (core("secrets", INSTALLED_IN), secret(names.ORDER_SECRET)),
        (core("services"), service(clusterIP="None")),
        (POLICIES, fence({"hulk.dev/job": "demo"})),
        (jobs(), job("x", HULKS, owner("HulkSweep"))),
        (core("events"), event("hulk.dev/v1alpha1")),
        (LEASES, lease(names.LEASE)),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_what_the_operator_creates_is_let_through(thief: Callable[..., str], path: str, body: Object) -> None:
    assert thief("POST", path + DRY, body) == ""


@pytest.fixture
def theirs(admin: Run) -> Iterator[None]:
    """A tenant's own objects."""
    made = [pod("bank", {"app": "bank"}), config_map("settings"), job("own"), job("kept", ttlSecondsAfterFinished=9)]
    for body in made:
        admin("kubectl", "create", "-n", TENANT, "-f", "-", stdin=json.dumps(body))
    yield
    for kind in ("pods", "configmaps", "hulkjobs"):
        admin("kubectl", "delete", kind, "--all", "-n", TENANT)


@pytest.mark.usefixtures("theirs")
@pytest.mark.parametrize(
    ("name", "path", "change"),
    [
        ("a pod's labels", core("pods", name="bank"), {"metadata": {"labels": {"app": "evil"}}}),
        (
            "a pod, to be Hulk's from now on",
            core("pods", name="bank"),
            {"metadata": {"labels": HULKS, "ownerReferences": [owner()]}},
        ),
        ("settings", core("configmaps", name="settings"), {"data": {"a": "evil"}}),
        (
            "settings, to be Hulk's",
            core("configmaps", name="settings"),
            {"data": {"a": "evil"}, "metadata": {"labels": HULKS, "ownerReferences": [owner()]}},
        ),
        ("a job that runs", jobs("own"), {"spec": {"suspend": False}}),
        (
            "a job, to be a sweep's",
            jobs("own"),
            {"spec": {"suspend": False}, "metadata": {"labels": HULKS, "ownerReferences": [owner("HulkSweep")]}},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" not in value else "",
)
def test_nothing_of_a_tenant_is_changed(thief: Callable[..., str], name: str, path: str, change: Object) -> None:
    assert NOT_HULKS in thief("PATCH", path, change), name


@pytest.mark.usefixtures("theirs")
def test_nothing_of_a_tenant_is_deleted(admin: Run, thief: Callable[..., str]) -> None:
    """Not one by one, which RBAC keeps from it, nor all at once, which admission sees object by object."""
    assert 'cannot delete resource "pods"' in thief("DELETE", core("pods", name="bank"))
    for plural in ("pods", "configmaps"):
        assert NOT_HULKS in thief("DELETE", core(plural))
    assert NOT_HULKS in thief("DELETE", jobs("own"))
    assert NOT_HULKS in thief("DELETE", jobs("kept")), "its time to live has not begun"
    left = admin("kubectl", "get", "pods,configmaps,hulkjobs", "-n", TENANT, "-o", "name").stdout.split()
    assert {"pod/bank", "configmap/settings", "hulkjob.hulk.dev/own", "hulkjob.hulk.dev/kept"} <= set(left)


@pytest.mark.usefixtures("theirs")
def test_a_job_is_deleted_when_its_time_is_over(admin: Run, thief: Callable[..., str]) -> None:
    ended = {
        "type": "Failed",
        "status": "True",
        "reason": "X",
        "message": "",
        "lastTransitionTime": LONG_AGO,
    }
    for name in ("own", "kept"):
        status = json.dumps({"status": {"conditions": [ended]}})
        admin("kubectl", "patch", "hulkjob", name, "-n", TENANT, "--subresource=status", "--type=merge", "-p", status)
    assert NOT_HULKS in thief("DELETE", jobs("own")), "it shall be kept"
    assert thief("DELETE", jobs("kept")) == ""


@pytest.fixture
def hulks(admin: Run) -> Iterator[Object]:
    """A worker's pod of a job that is there, so that no garbage is collected; what owns it."""
    admin("kubectl", "create", "-n", TENANT, "-f", "-", stdin=json.dumps(job("demo")))
    uid = json.loads(admin("kubectl", "get", "hulkjob", "demo", "-n", TENANT, "-o", "json").stdout)["metadata"]["uid"]
    body = pod("worker", HULKS, owner(uid=uid))
    admin("kubectl", "create", "-n", TENANT, "-f", "-", stdin=json.dumps(body))
    yield owner(uid=uid)
    admin("kubectl", "delete", "pods,hulkjobs", "--all", "-n", TENANT)


@pytest.mark.usefixtures("hulks")
def test_a_jobs_pod_gets_other_labels_and_nothing_else(thief: Callable[..., str]) -> None:
    worker = core("pods", name="worker")
    image = {"spec": {"containers": [{"name": "worker", "image": "evil"}]}}
    assert "not what it runs" in thief("PATCH", worker, image)
    another = {"metadata": {"ownerReferences": [owner("HulkSweep", controller=False)]}}
    assert "whose an object is" in thief("PATCH", worker, another)
    assert NOT_HULKS in thief("PATCH", worker, {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})
    assert thief("PATCH", worker, {"metadata": {"labels": {"hulk.dev/attempt": "2"}}}) == ""
    assert thief("DELETE", core("pods") + "?labelSelector=hulk.dev/job=demo") == ""


@pytest.mark.parametrize("is_owned", [False, True], ids=["of-nobody", "of-the-job-in-part"])
def test_a_tenants_pod_with_hulks_labels_does_not_keep_a_job_from_being_swept(
    admin: Run, thief: Callable[..., str], hulks: Object, is_owned: bool
) -> None:
    """Collections are deleted by labels, and end at the first object that is refused."""
    owners = [{**hulks, "controller": False}] if is_owned else []
    for body in (pod("a-stranger", HULKS, *owners), config_map("a-stranger", HULKS, *owners)):
        admin("kubectl", "create", "-n", TENANT, "-f", "-", stdin=json.dumps(body))
    admin("kubectl", "create", "-n", TENANT, "-f", "-", stdin=json.dumps(pod("bank", {"hulk.dev/job": "demo"})))
    selector = f"labelSelector={','.join(f'{key}={value}' for key, value in HULKS.items())}"
    assert NOT_HULKS in thief("PATCH", core("pods", name="a-stranger"), {"metadata": {"labels": {"a": "b"}}})
    for plural in ("pods", "configmaps"):
        assert thief("DELETE", f"{core(plural)}?{selector}") == ""
    left = admin("kubectl", "get", "pods,configmaps", "-n", TENANT, "-o", "name").stdout.split()
    assert [name for name in left if "kube-root-ca.crt" not in name] == ["pod/bank"]


def test_a_sweeps_trial_is_suspended_and_resumed(admin: Run, thief: Callable[..., str]) -> None:
    grid = [{"name": "rate", "values": ["1", "2"]}]
    template = {"spec": {"workers": {"max": 1}, "template": {"spec": {"containers": [{"name": "w", "image": "none"}]}}}}
    spec = {"parameters": {"grid": grid}, "objective": {"metric": "hulk_worker_loss"}, "template": template}
    kind = {"apiVersion": "hulk.dev/v1alpha1", "kind": "HulkSweep", "metadata": {"name": "rates"}}
    body = json.dumps({**kind, "spec": {**spec, "suspend": True}})
    admin("kubectl", "create", "-n", TENANT, "-f", "-", stdin=body)
    uid = json.loads(admin("kubectl", "get", "hulksweep", "rates", "-n", TENANT, "-o", "json").stdout)["metadata"][
        "uid"
    ]
    trial = job("rates-0", HULKS, owner("HulkSweep", name="rates", uid=uid))
    assert thief("POST", jobs(), trial) == ""
    assert thief("PATCH", jobs("rates-0"), {"spec": {"suspend": False}}) == ""
    assert "whose an object is" in thief(
        "PATCH", jobs("rates-0"), {"metadata": {"ownerReferences": [owner("HulkSweep")]}}
    )
    assert NOT_HULKS in thief("DELETE", jobs("rates-0"))
    admin("kubectl", "delete", "hulksweep", "rates", "-n", TENANT)


def test_the_policy_has_no_type_warning(admin: Run) -> None:
    policy = json.loads(admin("kubectl", "get", "validatingadmissionpolicy", "hulk-operator", "-o", "json").stdout)
    assert policy.get("status", {}).get("typeChecking", {}) == {}


def test_jobs_may_be_bound_to_namespaces_that_say_so(admin: Run, thief: Callable[..., str]) -> None:
    target = ("hulk", str(CHART), "-n", INSTALLED_IN)
    label = ("namespace", TENANT, "hulk.example/jobs=allowed")

    def attempt() -> str:
        return thief("POST", core("pods") + DRY, pod("x", HULKS, owner()))

    admin("helm", "upgrade", *target, "--set", "admissionPolicy.jobNamespaceLabels.hulk\\.example/jobs=allowed")
    try:
        refused = eventually(attempt, bool)
        assert "which has no label hulk.example/jobs=allowed" in refused
        admin("kubectl", "label", *label)
        assert eventually(attempt, lambda said: not said) == ""
    finally:
        admin("helm", "upgrade", *target)


def test_a_pod_template_and_a_request_for_nodes_are_a_jobs(admin: Run, thief: Callable[..., str]) -> None:
    target = ("hulk", str(CHART), "-n", INSTALLED_IN)
    path = core("podtemplates") + DRY

    def template(*owners: Object) -> Object:
        spec = {"containers": [{"name": "w", "image": "none"}]}
        return {"metadata": meta("x", HULKS, *owners), "template": {"spec": spec}}

    assert 'cannot create resource "podtemplates"' in thief("POST", path, template(owner()))
    admin("helm", "upgrade", *target, "--set", "scaleUp.provisioningRequests=true")
    try:
        assert eventually(lambda: thief("POST", path, template(owner())), lambda said: not said) == ""
        assert NOT_HULKS in thief("POST", path, template())
    finally:
        admin("helm", "upgrade", *target)


WORKLOADS = "workloads.kueue.x-k8s.io"


def workload(name: str, labels: Object | None = None, *owners: Object) -> Object:
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]}}
    spec = {"queueName": "team", "podSets": [{"name": "main", "count": 1, "template": template}]}
    group = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
    return {**group, "metadata": meta(name, labels, *owners), "spec": spec}


@pytest.fixture
def kueue_kind(admin: Run) -> Iterator[str]:
    """The path of Workloads, as Kueue defines them where it is installed, else with any content."""
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{TENANT}/workloads"
    if admin("kubectl", "get", "crd", WORKLOADS, "--ignore-not-found").stdout:
        yield path
        return
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta2", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    spec = {
        "group": "kueue.x-k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "workloads", "singular": "workload", "kind": "Workload"},
        "versions": [{**version, "subresources": {"status": {}}}],
    }
    # The API server takes a kind of *.x-k8s.io only with the word of who approved it.
    approval = {"api-approved.kubernetes.io": "unapproved, a test"}
    metadata = {"name": WORKLOADS, "annotations": approval}
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    admin("kubectl", "create", "-f", "-", stdin=json.dumps({**definition, "metadata": metadata, "spec": spec}))
    admin("kubectl", "wait", "--for=condition=Established", f"crd/{WORKLOADS}", "--timeout=30s")
    yield path
    admin("kubectl", "delete", "crd", WORKLOADS)


def test_the_status_of_a_workload_of_others_is_not_written(
    admin: Run, thief: Callable[..., str], hulks: Object, kueue_kind: str
) -> None:
    """An admission that is forged, or taken away, is as good as the quota of a team."""
    target = ("hulk", str(CHART), "-n", INSTALLED_IN)
    told = {"type": "Evicted", "status": "True", "reason": "X", "message": "", "lastTransitionTime": LONG_AGO}
    forged = {"status": {"conditions": [told]}}

    def tell(name: str) -> str:
        return thief("PATCH", f"{kueue_kind}/{name}/status", forged)

    bodies = (workload("theirs"), workload("labelled", HULKS), workload("hulks", HULKS, hulks))
    for body in bodies:
        eventually_made(admin, body)
    admin("helm", "upgrade", *target, "--set", "kueue.enabled=true")
    try:
        assert eventually(lambda: tell("hulks"), lambda said: not said) == ""
        for name in ("theirs", "labelled"):
            assert NOT_HULKS in tell(name), name
            assert NOT_HULKS in thief("PATCH", f"{kueue_kind}/{name}", {"spec": {"queueName": "mine"}}), name
            assert NOT_HULKS in thief("DELETE", f"{kueue_kind}/{name}"), name
    finally:
        admin("helm", "upgrade", *target)
        admin("kubectl", "delete", WORKLOADS, "--all", "-n", TENANT)


def eventually_made(admin: Run, body: Object) -> None:
    """A new kind is served some moments after its definition is established."""

    def made() -> bool:
        words = ("kubectl", "create", "-n", TENANT, "--validate=false", "-f", "-")
        return admin(*words, stdin=json.dumps(body), check=False).returncode == 0

    wait_until(made, f"Workload {body['metadata']['name']}", timeout_s=60)


def eventually(ask: Callable[[], str], is_it: Callable[[str], bool]) -> str:
    """An answer that is as awaited: the API server takes a changed policy over within seconds."""
    found = ""

    def right() -> bool:
        nonlocal found
        found = ask()
        return is_it(found)

    wait_until(right, "the changed policy", timeout_s=60)
    return found
