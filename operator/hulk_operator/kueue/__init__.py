"""Kueue beside Hulk: a HulkJob as its Workload, an admission as what a plan and its pods keep to, and what is reported.

Pure functions over plain objects of `kueue.x-k8s.io/v1beta2`. Kueue decides when a job of one of its queues runs, with
how many workers at most and where; Hulk plans within that. A controller of Kueue's own does the part of
`reconcile.steps.kueue` for other kinds of jobs.
"""

from hulk_operator.kueue.admission import Admission, Domain, Flavor, Placement, flavor
from hulk_operator.kueue.placement import as_admitted, fits, placement, within
from hulk_operator.kueue.reports import admission_dropped, finished, pods_ready
from hulk_operator.kueue.state import WorkloadState, workload_state
from hulk_operator.kueue.workload import differs, pod_sets_digest, workload, workload_name, wrong_priority

__all__ = [
    "Admission",
    "Domain",
    "Flavor",
    "Placement",
    "WorkloadState",
    "admission_dropped",
    "as_admitted",
    "differs",
    "finished",
    "fits",
    "flavor",
    "placement",
    "pod_sets_digest",
    "pods_ready",
    "within",
    "workload",
    "workload_name",
    "workload_state",
    "wrong_priority",
]
