"""A region that is cut off: with `sync.onRegionLoss: continue` the job trains on without it and is not restarted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hulk_lab import up
from hulk_lab.wan import relay
from lab_jobs import LAUNCH, Jobs, job, nodes, system_pods, uids

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

NAME = "cut-off"
NUM_WORKERS = 6  # two in each of three regions
STEPS = 150
EVERY = 10


@contextmanager
def cut_off(lab: up.Lab, region: str) -> Iterator[None]:
    """No packet to and from the other regions, and nobody is told; the control plane still reaches its nodes."""
    links = [(link.source, link.target) for link in lab.spec.links if region in (link.source, link.target)]
    for source, target in links:
        relay.cut(lab.net, source, target)
    try:
        yield
    finally:
        for source, target in links:
            relay.heal(lab.net, source, target)


@pytest.mark.whole  # in short: the same loss without pods, in test_collective_lab and test_wan_training
def test_training_goes_on_without_a_region_that_is_cut_off(installed: up.Lab, jobs: Jobs) -> None:
    asked = {"mode": "wan", "onRegionLoss": "continue"}
    workers = (NUM_WORKERS, NUM_WORKERS)
    jobs.submit(job(NAME, workers, command=LAUNCH, steps=STEPS, checkpoint_every=EVERY, sync=asked))
    saved = jobs.wait_checkpoint(NAME, attempt=1)
    gang = jobs.pods(NAME, attempt=1)
    kept = nodes(system_pods(installed, "operator"))  # and the checkpoint store is there
    lost = next(name for name in nodes(gang) if name not in kept)
    region = installed.node(lost).place.region

    with cut_off(installed, region):
        status = jobs.wait(NAME, "word of the loss", lambda now: now.get("membership"))
        said = {key: status["membership"][key] for key in ("epoch", "workers", "without")}
        assert said == {"epoch": 1, "workers": 4, "without": [region]}
        degraded = jobs.condition(NAME, "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "RegionLost")
        assert f"{region} was cut off: 4 of 6 workers go on" in degraded["message"]
        status = jobs.wait(NAME, "a later checkpoint", lambda now: now["checkpoint"]["step"] > saved + EVERY)
        assert (status["attempt"], status["failures"], status["disruptions"]) == (1, 0, 0)
        staying = [pod for pod in jobs.pods(NAME) if pod["spec"]["nodeName"] != lost]
        assert uids(staying) == uids(pod for pod in gang if pod["spec"]["nodeName"] != lost)
        assert not any(each["restartCount"] for pod in staying for each in pod["status"]["containerStatuses"])
        status = jobs.wait_phase(NAME, "Succeeded")
    assert (status["attempt"], status["failures"], status["observed"]["step"]) == (1, 0, STEPS)
    assert "RegionLost" in jobs.events(NAME)
    ended = jobs.log(staying[0]["metadata"]["name"])
    assert f"step={STEPS} " in ended
