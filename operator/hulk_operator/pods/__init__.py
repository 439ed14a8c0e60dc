"""Pure functions from a plan and a job to Kubernetes objects, and from pods back to facts."""

from hulk_operator.pods.attempt_objects import (
    gang_config_map,
    metrics_readers,
    network_policy,
    plan_config_map,
    pod_group,
    service,
)
from hulk_operator.pods.environment import network_interface
from hulk_operator.pods.host_ports import Ports, free_run, is_on_host, ports
from hulk_operator.pods.instrumentation import Instrumentation
from hulk_operator.pods.launcher import stays
from hulk_operator.pods.manifests import owner_reference, pods, with_accelerators
from hulk_operator.pods.placeholders import (
    Placeholder,
    ScaleUp,
    is_placeholder,
    placeholder_pod,
    placeholders,
    provisioning_request,
)
from hulk_operator.pods.sample import sample_pod
from hulk_operator.pods.worker import INIT_RUNS, SIDECAR_NOT_STARTED, Exit, Reason, WorkerPod, reason_of
from hulk_operator.pods.worker_secret import peer_secret
from hulk_operator.pods.worker_status import is_worker, job_key_of, owner_name, owner_uid, worker_pod

__all__ = [
    "INIT_RUNS",
    "SIDECAR_NOT_STARTED",
    "Exit",
    "Instrumentation",
    "Placeholder",
    "Ports",
    "Reason",
    "ScaleUp",
    "WorkerPod",
    "free_run",
    "gang_config_map",
    "is_on_host",
    "is_placeholder",
    "is_worker",
    "job_key_of",
    "metrics_readers",
    "network_interface",
    "network_policy",
    "owner_name",
    "owner_reference",
    "owner_uid",
    "peer_secret",
    "placeholder_pod",
    "placeholders",
    "plan_config_map",
    "pod_group",
    "pods",
    "ports",
    "provisioning_request",
    "reason_of",
    "sample_pod",
    "service",
    "stays",
    "with_accelerators",
    "worker_pod",
]
