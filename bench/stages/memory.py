"""A model that no node holds whole, by a memory limit that nodes enforce: killed as one stage, trained as three."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bench.geo import Geo, container, pod_spec, wait
from bench.training import Size, job, phase

SIZE: Final = Size(layers=12, hidden=768, global_batch=6, sequence_length=32)
"""85 million parameters; with gradients and the optimizer's state 16 bytes each, 1.4 GB, beside 0.5 GB of torch."""

LIMIT: Final = "1536Mi"
STEPS: Final = 6
NUM_STAGES: Final = 3
PLACES: Final = {"0": "eu", "7": "us", "13": "ap"}


def run(geo: Geo) -> str:
    """What happened, in a sentence. RuntimeError where the limit did not tell them apart."""
    whole = ended(geo, "whole", {})
    pins = [{"layers": layers, "regions": [region]} for layers, region in PLACES.items()]
    staged = ended(geo, "staged", {"parallelism": {"data": 1, "pipeline": NUM_STAGES}, "placement": {"pins": pins}})
    reason = (whole.get("lastFailure") or {}).get("reason", whole["phase"])
    if reason != "OOMKilled" or staged["phase"] != "Succeeded":
        failure = (staged.get("lastFailure") or {}).get("message", "no failure")
        raise RuntimeError(f"within {LIMIT} one stage ended as {reason}, three as {staged['phase']}: {failure}")
    regions = ", ".join(sorted(region["name"] for region in staged["plan"]["regions"]))
    return (
        f"{SIZE} within {LIMIT} a pod, which nodes enforce: as one stage {reason}; as {NUM_STAGES} stages in {regions} "
        f"it trained {STEPS} steps"
    )


def limited() -> dict[str, Any]:
    """A pod of the bundled GPT with the limit."""
    worker = container("/opt/hulk/bin/python", "-m", "hulk_runtime.examples.gpt")
    worker["resources"] = {"requests": {"cpu": "50m", "memory": LIMIT}, "limits": {"memory": LIMIT}}
    worker["env"] = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    return pod_spec(worker)


def ended(geo: Geo, name: str, more: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of a job when it has ended."""
    num_workers = NUM_STAGES if more else 1
    geo.apply(job(name, SIZE, STEPS, num_workers, pod=limited(), more=more))
    try:
        wait(f"{name} to end", lambda: phase(geo, name) in ("Failed", "Succeeded"))
        status: Mapping[str, Any] = geo.find("hulkjob", name)["status"]
        return status
    finally:
        geo.delete("hulkjob", name, f"hulk.dev/job={name}")
