"""What a real API server says of a worker's pod that nobody creates, and what it calls each refusal."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hulk_operator.cluster import PODS, ApiCluster, ApiResource, Refused, connect
from hulk_operator.pods import sample_pod
from hulk_operator.reconcile.recipe import decide
from hulk_operator.reconcile.types import Admission, Memory
from hulk_operator.status import condition
from views import GENERATION, NOW, job, view

pytestmark = pytest.mark.controlplane

NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", False)
LIMIT_RANGES = ApiResource("", "v1", "limitranges", "LimitRange")
QUOTAS = ApiResource("", "v1", "resourcequotas", "ResourceQuota")
SERVICE_ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
DEADLINE_S = 30


@pytest_asyncio.fixture
async def cluster(control_plane: Path) -> AsyncIterator[ApiCluster]:
    connected = await connect(str(control_plane))
    try:
        yield connected
    finally:
        await connected.close()


async def namespace(cluster: ApiCluster, name: str, **labels: str) -> str:
    """A namespace in which pods can be made: its default service account is there."""
    await cluster.apply(NAMESPACES, name, None, {"metadata": {"labels": labels}}, field_manager="test")
    async with asyncio.timeout(DEADLINE_S):
        while not (await cluster.list(SERVICE_ACCOUNTS, name, fields="metadata.name=default")).items:
            await asyncio.sleep(0.1)
    return name


async def said(cluster: ApiCluster, where: str, **pod: Any) -> tuple[str, str]:
    """Reason and message of the condition of a job whose template is that; empty when it is taken."""
    container = {"name": "worker", "image": "hulk:0.1.0", **pod.pop("container", {})}
    one = job(template={"spec": {"containers": [container], **pod}})
    one = one.model_copy(update={"metadata": one.metadata.model_copy(update={"namespace": where})})
    refused: Refused | None = None
    try:
        await cluster.try_create(PODS, sample_pod(one))
    except Refused as error:
        refused = error
    assert not (await cluster.list(PODS, where)).items, "a dry run creates nothing"
    decided = decide(view(job=one, memory=Memory(admission=Admission(GENERATION, NOW, refused, 1))))
    found = condition(decided.view.status, "Planned")
    return (found.reason, found.message) if found else ("", "")


async def test_a_template_is_refused_for_what_only_the_api_server_knows(cluster: ApiCluster) -> None:
    where = await namespace(cluster, "admit-plain")
    assert await said(cluster, where) == ("", "")
    wrong: dict[str, dict[str, Any]] = {
        'unknown field "spec.containers[0].imagePulPolicy"': {"container": {"imagePulPolicy": "Always"}},
        "spec.containers[0].imagePullPolicy: Unsupported value": {"container": {"imagePullPolicy": "Sometimes"}},
        "quantities must match": {"container": {"resources": {"limits": {"cpu": "two"}}}},
        "spec.containers[0].volumeMounts[0].name: Not found": {
            "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        },
    }
    for words, pod in wrong.items():
        reason, message = await said(cluster, where, **pod)
        assert reason == "InvalidTemplate", words
        assert words in message
    reason, message = await said(cluster, where, serviceAccountName="nobody")
    assert (reason, 'serviceaccount "nobody" not found' in message) == ("Forbidden", True)


async def test_pod_security_is_named(cluster: ApiCluster) -> None:
    where = await namespace(cluster, "admit-restricted", **{"pod-security.kubernetes.io/enforce": "restricted"})
    assert await said(cluster, where) == ("", "")
    reason, message = await said(cluster, where, hostNetwork=True)
    assert reason == "PodSecurity"
    assert "host namespaces (hostNetwork=true)" in message
    assert "nothing is reserved" in message


async def test_a_limit_range_and_a_quota_are_told_apart(cluster: ApiCluster) -> None:
    where = await namespace(cluster, "admit-limits")
    limits = {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}
    await cluster.apply(LIMIT_RANGES, "small", where, limits, field_manager="test")
    async with asyncio.timeout(DEADLINE_S):  # the admission plugin hears of it by a watch
        while True:
            reason, message = await said(cluster, where, container={"resources": {"limits": {"cpu": "2"}}})
            if reason:
                break
            await asyncio.sleep(0.1)
    assert (reason, "maximum cpu usage per Container is 1, but limit is 2" in message) == ("Forbidden", True)
    where = await namespace(cluster, "admit-quota")
    await cluster.apply(QUOTAS, "none", where, {"spec": {"hard": {"pods": "0"}}}, field_manager="test")
    async with asyncio.timeout(DEADLINE_S):  # a quota counts once its controller has looked at it
        while (await said(cluster, where))[0] != "QuotaExceeded":
            await asyncio.sleep(0.1)
    assert "the job waits until the quota has room" in (await said(cluster, where))[1]
