"""The pods of jobs of stages: the bundled GPT on emulated accelerators; at their end they say in which order it ran."""

from __future__ import annotations

from typing import Any, Final

from hulk_lab.spec import LabSpec

from bench.accelerators import pod_on
from bench.training import Size

SCRIPT: Final = "emulated_stages.py"
ORDERS: Final = "/orders"
"""Where a rank writes the order of its blocks."""


def stages_on(lab: LabSpec, size: Size) -> dict[str, Any]:
    """The pods of a job of this model, on accelerators as fast as the lab's file says."""
    pod = pod_on(lab, size, SCRIPT)
    (worker,) = pod["containers"]
    worker["env"].append({"name": "HULK_PIPELINE_LOG", "value": ORDERS})
    worker["volumeMounts"].append({"name": "orders", "mountPath": ORDERS})
    pod["volumes"].append({"name": "orders", "emptyDir": {}})
    return pod
