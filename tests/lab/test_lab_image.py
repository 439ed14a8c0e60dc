"""What runs in the lab is the built image, not this checkout; names and addresses work; nobody nameless gets in."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from hulk_lab import up
from hulk_lab.builds import images
from lab_jobs import PYTHON, SLEEP, Jobs, Object, job, nodes, system_pods

pytestmark = pytest.mark.lab

NAME = "asleep"
NUM_WORKERS = 6  # all accelerators of the lab
PACKAGES = ("hulk_operator", "hulk_placement", "hulk_runtime")
LOOK = f"""
import importlib.util, json, os, sys
print(json.dumps({{
    "packages": [importlib.util.find_spec(name).origin for name in {PACKAGES}],
    "path": sys.path,
    "mounts": [line.split() for line in open("/proc/self/mountinfo")],
    "repository": os.path.exists(sys.argv[1]),
}}))
"""
LOOK_AT_SECRET = """
import hashlib, json, os
path = os.environ["HULK_PEER_SECRET"]
value = open(path, "rb").read()
seen = {"user": os.getuid(), "bytes": len(value), "digest": hashlib.sha256(value).hexdigest()}
print(json.dumps({**seen, "writable": os.access(path, os.W_OK)}))
"""
ASK_API = """
import ssl, urllib.error, urllib.request
context = ssl._create_unverified_context()
try:
    print(urllib.request.urlopen("https://kubernetes.default.svc/api", context=context, timeout=10).status)
except urllib.error.HTTPError as refusal:
    print(refusal.code)
"""
WRITE_PROFILE = """
import json, os, ssl, sys, urllib.error, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
context = ssl.create_default_context(cafile=folder + "ca.crt")
request = urllib.request.Request(
    "https://kubernetes.default.svc/apis/hulk.dev/v1alpha1/nodeprofiles/" + sys.argv[1] + "/status?dryRun=All",
    data=json.dumps({"status": {"agentVersion": "forged"}}).encode(),
    method="PATCH",
    headers={
        "Authorization": "Bearer " + open(folder + "token").read(),
        "Content-Type": "application/merge-patch+json",
    },
)
try:
    print(urllib.request.urlopen(request, context=context, timeout=10).status)
except urllib.error.HTTPError as refusal:
    print(refusal.code, json.load(refusal)["message"])
"""


@pytest.fixture(scope="module")
def gang(jobs: Jobs) -> list[Object]:
    """The pods of a job that sleeps on every accelerator."""
    jobs.submit(job(NAME, (NUM_WORKERS, NUM_WORKERS), command=SLEEP, instrumentation="none"))
    jobs.wait_phase(NAME, "Running")
    return jobs.pods(NAME)


def python(lab: up.Lab, pod: Object, script: str, *arguments: str) -> str:
    """What a Python script prints inside a pod."""
    where = (pod["metadata"]["name"], "-n", pod["metadata"]["namespace"])
    return lab.kube.kubectl("exec", *where, "--", PYTHON, "-c", script, *arguments)


def test_every_pod_runs_the_wheel_of_its_image(installed: up.Lab, gang: list[Object], repository: Path) -> None:
    borrowed = {mount.target for mount in images.borrowed()}
    for pod in (gang[0], *system_pods(installed, "operator"), system_pods(installed, "agent")[0]):
        seen = json.loads(python(installed, pod, LOOK, str(repository)))
        assert all(origin.startswith("/opt/hulk/lib/") for origin in seen["packages"]), seen["packages"]
        assert not seen["repository"]
        sources = [fields[3] for fields in seen["mounts"]]
        assert not [source for source in sources if source.startswith(str(repository))]
        assert borrowed <= {fields[4] for fields in seen["mounts"]}  # Python and torch of the machine, nothing else
        assert not [entry for entry in seen["path"] if entry and not entry.startswith(("/opt/hulk", "/usr"))]


def test_no_pod_mounts_a_folder_of_its_node(installed: up.Lab, gang: list[Object]) -> None:
    for pod in (*gang, *system_pods(installed, "operator"), *system_pods(installed, "agent")):
        assert [volume for volume in pod["spec"].get("volumes", []) if "hostPath" in volume] == []
        assert pod["spec"].get("hostNetwork", False) is False


def test_workers_find_one_another_by_name(installed: up.Lab, gang: list[Object], jobs: Jobs) -> None:
    host = f"{gang[0]['metadata']['name']}.{NAME}-1.{jobs.namespace}.svc"
    resolve = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
    assert python(installed, gang[-1], resolve, host).strip() == gang[0]["status"]["podIP"]


def test_workers_that_are_not_root_read_the_secret_they_know_each_other_by_and_cannot_change_it(
    installed: up.Lab, gang: list[Object]
) -> None:
    seen = [json.loads(python(installed, pod, LOOK_AT_SECRET)) for pod in (gang[0], gang[-1])]
    assert [one["user"] for one in seen] == [65532, 65532]
    assert seen[0]["digest"] == seen[1]["digest"]
    assert [one["bytes"] for one in seen] == [32, 32]
    assert not any(one["writable"] for one in seen)


def test_every_accelerator_is_taken_once(installed: up.Lab, gang: list[Object]) -> None:
    placed = nodes(gang)
    offered = {
        item["metadata"]["name"]: int(item["status"]["allocatable"]["nvidia.com/gpu"])
        for item in installed.kube.get("nodes")["items"]
    }
    assert {name: placed.count(name) for name in offered} == offered


def test_a_service_address_leads_from_a_pod_to_the_api_server_which_asks_who_is_there(
    installed: up.Lab, gang: list[Object]
) -> None:
    assert python(installed, gang[-1], ASK_API).strip() == "401"
    no_token = "import os; print(os.path.exists('/var/run/secrets/kubernetes.io/serviceaccount'))"
    assert python(installed, gang[-1], no_token).strip() == "False"


def test_kubelets_and_the_api_server_have_no_anonymous_users(installed: up.Lab) -> None:
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    kubelets = [f"https://{each.place.management_address}:10250/pods" for each in installed.nodes]
    api = f"https://{installed.net.control_address}:6443/api/v1/namespaces"
    for url in (api, *kubelets):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(url, context=unverified, timeout=10)
        assert refusal.value.code == 401, url


def test_an_agent_writes_its_own_profile_and_no_other(installed: up.Lab) -> None:
    agent = system_pods(installed, "agent")[0]
    own = agent["spec"]["nodeName"]
    other = next(node.name for node in installed.nodes if node.name != own)
    assert python(installed, agent, WRITE_PROFILE, own).strip() == "200"
    refused = python(installed, agent, WRITE_PROFILE, other)
    assert refused.startswith(("403 ", "422 ")), refused
    assert installed.kube.get("nodeprofile", other)["status"]["agentVersion"] != "forged"
