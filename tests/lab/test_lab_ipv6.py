"""A cluster whose first or only family is IPv6: Hulk installs, measures its links, trains between regions over it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import pytest
from hulk_lab import spec, up
from lab_jobs import Jobs, install, job, system_pods
from lab_names import lab_name

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

NAME = "over-ipv6"
STEPS = 12


@pytest.fixture(scope="module", params=[True, "only"])
def ipv6(repository: Path, request: pytest.FixtureRequest) -> Iterator[up.Lab]:
    described = spec.load(repository / "lab" / "ipv6.yaml", lab_name("ipv6"))
    wanted = described.model_copy(update={"ipv6": request.param})
    try:
        lab = up.up(wanted)
        install(lab, repository)
        yield lab
    finally:
        up.down(wanted.name)


@pytest.mark.whole  # in short: tests/runtime/test_ipv6 and the agents of test_agent_processes, in namespaces with IPv6
def test_a_job_trains_between_regions_over_ipv6(ipv6: up.Lab) -> None:
    jobs = Jobs(ipv6, "ipv6")
    jobs.make_namespace()
    agents = {agent["spec"]["nodeName"]: agent["status"]["podIP"] for agent in system_pods(ipv6, "agent")}
    for node, address in agents.items():
        assert isinstance(ip_address(address), IPv6Address)
        profile = ipv6.control.api().get(f"/apis/hulk.dev/v1alpha1/nodeprofiles/{node}")["status"]
        assert profile["echo"]["address"] == address
        assert any(link.get("bandwidthBytesPerSecond") for link in profile["links"])

    versions = [6] if ipv6.spec.ipv6 == "only" else [6, 4]
    for place in ipv6.net.nodes:
        assert address_versions(place.netns) == set(versions)

    jobs.submit(job(NAME, (2, 2), steps=STEPS, checkpoint_every=STEPS, sync={"mode": "wan"}))
    jobs.wait_phase(NAME, "Running")
    first, _ = gang = jobs.pods(NAME, attempt=1)
    jobs.wait_phase(NAME, "Succeeded")
    for pod in gang:
        assert [ip_address(row["ip"]).version for row in pod["status"]["podIPs"]] == versions
    log = jobs.log(first["metadata"]["name"])
    assert " all_reduce=wan " in log
    assert f"step={STEPS} " in log
    assert jobs.status(NAME)["observed"]["step"] == STEPS  # the operator has asked rank 0 at its IPv6 address


def address_versions(netns: str) -> set[int]:
    """Of every address in a network namespace but those of its loopback and of one link."""
    found = json.loads(subprocess.run(["ip", "-n", netns, "-j", "addr"], check=True, capture_output=True).stdout)
    rows = [row for device in found for row in device["addr_info"] if row["scope"] == "global"]
    return {ip_address(row["local"]).version for row in rows}
