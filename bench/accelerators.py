"""The accelerators of a lab: the pods of its jobs compute on the processor, and take as long as their node's would.

A share of a core for each pod would make the machines unequal as well. But then what a pod sends and receives takes
from what it computes, and waits for its share, which is not how accelerators are; where it was tried, computing took
1.5 to 3 times as long beside an all-reduce as alone.
"""

from __future__ import annotations

import json
from typing import Any, Final

from hulk_lab.spec import LabSpec
from hulk_placement.model import Model

from bench.geo import container, pod_spec
from bench.training import Size

SCRIPT: Final = "emulated_gpt.py"
FLOPS_PER_S: Final = 27e9
"""Of an accelerator of speed 1. One of 0.2 is a tenth as fast as a core, which so is always done before it."""

CORES: Final = 1.0
"""At most, for each pod; with all of a lab's they take about half of two cores."""


def pod_on(lab: LabSpec, size: Size, program: str = SCRIPT) -> dict[str, Any]:
    """The pods of a job of this model, on accelerators as fast as the lab's file says."""
    sequences_per_s = FLOPS_PER_S / Model.of(size.shape, "fp32").flops_per_sequence
    rates = {node.name: sequences_per_s * node.speed for region in lab.regions for node in region.nodes}
    worker = container("/opt/hulk/bin/python", f"/bench/{program}")
    worker["env"] = [
        {"name": "OMP_NUM_THREADS", "value": "1"},
        {"name": "RATES", "value": json.dumps(rates)},
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    worker["volumeMounts"] = [{"name": "scripts", "mountPath": "/bench"}]
    return pod_spec(worker, volumes=[{"name": "scripts", "configMap": {"name": "scripts"}}])
