"""Plan + HulkJob -> the environment of a worker container.

Every program finds its place in one world of all ranks, whatever starts it. What a container's own process sees is a
worker: rank = worker, of as many as there are workers. torchrun (by the PET_ variables) and hulk-launch (by the plan)
start as many ranks as the worker has accelerators and give each of them its own.
"""

import json
from typing import Any

from hulk_placement.plan import Plan

from hulk_operator import names
from hulk_operator.api import HulkJob, Storage
from hulk_operator.pods.host_ports import OWN, Ports
from hulk_operator.pods.instrumentation import launcher_environment
from hulk_operator.pods.launcher import stays
from hulk_operator.pods.orders import Orders
from hulk_operator.pods.worker_secret import peer_environment

DEFAULT_GRACE_S = 30  # Kubernetes' own
Env = list[dict[str, Any]]


def network_interface(job: HulkJob) -> str | None:
    """What the template says that gloo talks over; None where it does not, or refers to something that only pods know.

    The pods then find it by their route to rank 0.
    """
    found = own_env(job).get(names.ENV_GLOO_INTERFACE)
    return found if found and "$(" not in found else None


def own_env(job: HulkJob) -> dict[str, str | None]:
    """What the template sets of the worker's environment; None for what is not a plain value."""
    entries = (entry.wire() for entry in job.spec.template.spec.containers[0].env)
    return {entry["name"]: entry.get("value") for entry in entries}


def shared_env(job: HulkJob, plan: Plan, orders: Orders, ports: Ports = OWN) -> Env:
    """What every worker is told. Hulk's names come first, so that the user's may refer to them."""
    values = {
        names.ENV_JOB: names.key(job.metadata.namespace or "", job.metadata.name),
        names.ENV_JOB_UID: job.metadata.uid or "",
        names.ENV_PLAN: names.PLAN_PATH,
        **peer_environment(job),
        **launcher_environment(job),
        **attempt_environment(job, plan, orders, ports),
    }
    if stays(job):
        grace_s = (job.spec.template.spec.model_extra or {}).get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        values |= {names.ENV_GANG: names.PLAN_DIRECTORY, names.ENV_GRACE_SECONDS: str(grace_s)}
    if ports.on_host:
        values[names.ENV_COLLECTIVE_PORT] = "0"  # any: the ranks tell one another
    return _env(values)


def attempt_environment(job: HulkJob, plan: Plan, orders: Orders, ports: Ports = OWN) -> dict[str, str]:
    """What every worker is told and the next attempt may change."""
    address = names.master_address(job.metadata.namespace or "", job.metadata.name, plan.attempt)
    port = str(ports.master)
    return {
        names.ENV_WORLD_SIZE: str(len(plan.workers)),
        names.ENV_MASTER_ADDR: address,
        names.ENV_MASTER_PORT: port,
        names.ENV_PET_NNODES: str(len(plan.workers)),
        names.ENV_PET_MASTER_ADDR: address,
        names.ENV_PET_MASTER_PORT: port,
        names.ENV_PET_RDZV_BACKEND: "static",  # which keeps the order of the workers
        names.ENV_PET_RDZV_ENDPOINT: f"{address}:{port}",
        names.ENV_PET_RDZV_ID: f"{job.metadata.uid}-{plan.attempt}",
        names.ENV_ATTEMPT: str(plan.attempt),
        names.ENV_START_DIGEST: orders.start_digest(job.metadata.uid or "", plan.attempt),
        **mesh_env(plan),
        **_checkpoint_env(job),
    }


def mesh_env(plan: Plan) -> dict[str, str]:
    """The degrees of the plan's mesh for scripts, and for Accelerate, whose mesh has the same names and order.

    Accelerate knows no stages, no replicas of a tensor degree alone, and takes a mesh of replicas alone for a mistake.
    """
    layout = plan.layout
    replicas, shards, tensor = str(layout.data), str(layout.shard), str(layout.tensor)
    found = {
        names.ENV_DP_REPLICATE: replicas,
        names.ENV_DP_SHARD: shards,
        names.ENV_TP: tensor,
        names.ENV_PP: str(layout.pipeline),
    }
    if layout.pipeline > 1 or layout.width == 1 or (layout.shard == 1 and layout.data > 1):
        return found
    return found | {
        names.ENV_ACCELERATE_MESH: "true",
        names.ENV_ACCELERATE_DP_REPLICATE: replicas,
        names.ENV_ACCELERATE_DP_SHARD: shards,
        names.ENV_ACCELERATE_TP: tensor,
    }


def rank_env(plan: Plan, worker: int, ports: Ports = OWN) -> Env:
    """What one worker alone is told.

    The only worker, of several accelerators, has no local rank: a program that sees none starts its own processes
    (Lightning), and would wait for others that nobody starts otherwise.
    """
    num_accelerators = plan.workers[worker].num_accelerators
    has_local_rank = num_accelerators == 1 or len(plan.workers) > 1
    local = {names.ENV_LOCAL_RANK: "0", names.ENV_LOCAL_WORLD_SIZE: "1"} if has_local_rank else {}
    return _env(
        {
            **local,
            names.ENV_WORKER: str(worker),
            names.ENV_RANK: str(worker),
            names.ENV_GROUP_RANK: str(worker),
            names.ENV_NODE_RANK: str(worker),
            names.ENV_PET_NPROC_PER_NODE: str(num_accelerators),
            names.ENV_PET_NODE_RANK: str(worker),
            names.ENV_METRICS_PORT: str(ports.metrics(worker)),
        }
    )


def _checkpoint_env(job: HulkJob) -> dict[str, str]:
    checkpoint = job.spec.checkpoint
    if checkpoint is None:
        return {}
    return {
        names.ENV_CHECKPOINT_URL: checkpoint.storage.url or f"file://{names.CHECKPOINT_DIRECTORY}",
        names.ENV_CHECKPOINT_EVERY_STEPS: str(checkpoint.every_steps),
        names.ENV_CHECKPOINT_KEEP: str(checkpoint.keep),
        **_stores_env(checkpoint.storage),
        names.ENV_CHECKPOINT_STEP: str(job.status.checkpoint.step if job.status.checkpoint else 0),
        names.ENV_CHECKPOINT_TRUST_STORE: str(int(checkpoint.trust_store)),
    }


def _stores_env(storage: Storage) -> dict[str, str]:
    """Where regions have stores of their own: these by region."""
    found = {store.region: store.url for store in storage.regional}
    return {names.ENV_CHECKPOINT_STORES: json.dumps(found)} if found else {}


def _env(values: dict[str, str]) -> Env:
    return [{"name": name, "value": value} for name, value in values.items()]
