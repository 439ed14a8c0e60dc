"""A case's network, up, and what a rank of a job that is planned on it finds in its environment."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hulk_lab.builds import python
from hulk_lab.wan.addresses import LabNetwork
from hulk_placement import wire
from hulk_placement.plan import Plan
from hulk_placement.wire import Meta
from hulk_placement.workload import Workload
from hulk_runtime.instrumentation import __file__ as _package

from bench.allreduce import job
from bench.allreduce.case import Case
from bench.allreduce.gang import lab_name, wan
from bench.allreduce.profiles import lab_spec

INSTRUMENTED = str(Path(_package).with_name("__main__.py"))
"""Runs a script as in a pod."""
MOST_OFF = 5.0
"""Per cent of a step, of a prediction."""


@dataclass(frozen=True, slots=True)
class Planned:
    """`variables`: which plan there is; `step_s`: its prediction."""

    net: LabNetwork
    variables: dict[str, str]
    step_s: float
    folder: Path

    def having(self, plan: Plan, workload: Workload) -> Planned:
        """On the same network, another plan."""
        blob = self.folder / f"{len(list(self.folder.iterdir()))}.json.gz"
        blob.write_bytes(wire.encode(plan, Meta.of(workload, operator_version="bench", steps=1)))
        return replace(self, variables={**self.variables, "HULK_PLAN": str(blob)}, step_s=plan.prediction.step_s)


def off(predicted_s: float, measured_s: float) -> float:
    """Per cent by which a prediction is too long.

    >>> off(1.5, 2.0)
    -25.0
    """
    return 100 * (predicted_s / measured_s - 1)


def with_packages(group: str) -> dict[str, str]:
    """Other projects' packages of a dependency group, on a rank's path."""
    folders = (os.environ.get("PYTHONPATH"), str(python.build_packages(group)))
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


@contextlib.contextmanager
def planned(case: Case, num_bytes: int, compute_s: float) -> Iterator[Planned]:
    """For gradients of so many bytes, and so much compute in a step."""
    plan = job.planned(case, num_bytes, compute_s)
    with tempfile.TemporaryDirectory() as name, wan(lab_spec(case.profile, case.counts, lab_name("trainers"))) as net:
        folder = Path(name)
        secret = folder / "secret"
        secret.write_bytes(os.urandom(32))
        bare = Planned(net, {"HULK_PEER_SECRET": str(secret)}, 0.0, folder)
        yield bare.having(plan, job.workload(case, num_bytes))
