"""A model that no node holds whole, by a memory limit that nodes enforce: killed as one stage, trained as three."""

from __future__ import annotations

from typing import Any, Final

from bench.geo import Geo, container, pod_spec, wait
from bench.training import Size, Training, job, phase, train

SIZE: Final = Size(layers=12, hidden=512, global_batch=6, sequence_length=32)
"""38 million parameters; with gradients and the optimizer's state 16 bytes each, 0.6 GB, beside what torch takes."""

LIMIT: Final = "896Mi"
STEPS: Final = 6
NUM_STAGES: Final = 3
PLACES: Final = {"0": "eu", "7": "us", "13": "ap"}


def run(geo: Geo) -> str:
    """What happened, in a sentence. RuntimeError where the limit did not tell them apart."""
    reason = killed(geo)
    trained = staged(geo)
    regions = sorted({region["name"] for region in trained.status["plan"]["regions"]})
    if reason != "OOMKilled" or len(regions) < NUM_STAGES:
        raise RuntimeError(f"one stage within {LIMIT} ended as {reason}; three stages are in {', '.join(regions)}")
    return (
        f"{SIZE} within {LIMIT} a pod: as one stage {reason}; as {NUM_STAGES} stages in {', '.join(regions)} "
        f"it trained {STEPS} steps, loss {trained.losses[0]:.3f} to {trained.losses[-1]:.3f}"
    )


def limited() -> dict[str, Any]:
    """A pod of the bundled GPT with the limit."""
    worker = container("/opt/hulk/bin/python", "-m", "hulk_runtime.examples.gpt")
    worker["resources"] = {"requests": {"cpu": "50m", "memory": LIMIT}, "limits": {"memory": LIMIT}}
    worker["env"] = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    return pod_spec(worker)


def killed(geo: Geo) -> str:
    """Why the job of one stage failed."""
    name = "whole"
    geo.apply(job(name, SIZE, STEPS, 1, pod=limited()))
    try:
        wait(f"{name} to end", lambda: phase(geo, name) in ("Failed", "Succeeded"))
        return str(geo.find("hulkjob", name)["status"].get("lastFailure", {}).get("reason", "none"))
    finally:
        geo.delete("hulkjob", name, f"hulk.dev/job={name}")


def staged(geo: Geo) -> Training:
    """The same, cut into stages, one of them in every region."""
    pins = [{"layers": layers, "regions": [region]} for layers, region in PLACES.items()]
    more = {"parallelism": {"data": 1, "pipeline": NUM_STAGES}, "placement": {"pins": pins}}
    return train(geo, "staged", SIZE, steps=STEPS, num_workers=NUM_STAGES, pod=limited(), more=more)
