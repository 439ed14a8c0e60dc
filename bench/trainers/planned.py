"""A case's network, up, and what a rank of a job that is planned on it finds in its environment."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hulk_lab.builds import python
from hulk_lab.wan.addresses import LabNetwork
from hulk_placement import wire
from hulk_placement.wire import Meta
from hulk_runtime.instrumentation import __file__ as _package

from bench.allreduce import job
from bench.allreduce.case import Case
from bench.allreduce.gang import lab_name, wan
from bench.allreduce.profiles import lab_spec

INSTRUMENTED = str(Path(_package).with_name("__main__.py"))
"""Runs a script as in a pod."""


@dataclass(frozen=True, slots=True)
class Planned:
    """`variables`: which plan there is; `step_s`: its prediction."""

    net: LabNetwork
    variables: dict[str, str]
    step_s: float


def with_packages(group: str) -> dict[str, str]:
    """Other projects' packages of a dependency group, on a rank's path."""
    folders = (os.environ.get("PYTHONPATH"), str(python.build_packages(group)))
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


@contextlib.contextmanager
def planned(case: Case, num_bytes: int, compute_s: float) -> Iterator[Planned]:
    """For gradients of so many bytes, and so much compute in a step."""
    plan = job.planned(case, num_bytes, compute_s)
    meta = Meta.of(job.workload(case, num_bytes), operator_version="bench", steps=1)
    with tempfile.TemporaryDirectory() as folder, wan(lab_spec(case.profile, case.counts, lab_name("trainers"))) as net:
        blob, secret = Path(folder, "plan.json.gz"), Path(folder, "secret")
        blob.write_bytes(wire.encode(plan, meta))
        secret.write_bytes(os.urandom(32))
        yield Planned(net, {"HULK_PLAN": str(blob), "HULK_PEER_SECRET": str(secret)}, plan.prediction.step_s)
