"""From a committed plan to a gang that is up: plan, stable names, fence, secret, then all missing pods at once.

A worker's pod is one that stays from an earlier attempt, where there is one on its node, else a new one.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from hulk_placement.plan import Plan
from hulk_placement.words import counted

from hulk_operator import names
from hulk_operator import pods as manifests
from hulk_operator.api import ConditionType
from hulk_operator.cluster import CONFIG_MAPS, NETWORK_POLICIES, POD_GROUPS, PODS, SERVICES
from hulk_operator.reconcile.attempt_state import (
    NODE_LOST,
    PLAN_LOST,
    count_unstable,
    deployed,
    in_force,
    num_workers,
    released,
    remember,
    set_condition,
)
from hulk_operator.reconcile.retained_pods import to_take_over
from hulk_operator.reconcile.types import NOTHING, Action, Create, MakeSecret, Outcome, Relabel, View, Write


def deploy(view: View) -> Outcome:
    """Create what is missing of the attempt in force.

    Pods come last, so a missing pod is the sign that anything may be missing. A plan that was committed but never
    written (the operator died in between) has no pods: it is given up and its attempt number with it.
    """
    if not in_force(view) or deployed(view):
        return NOTHING
    missing = sorted(set(range(num_workers(view))) - {pod.worker for pod in view.gang})
    if not missing:
        return NOTHING
    if view.full is None:
        message = f"the plan of attempt {view.status.attempt} was committed but not written; it is made again"
        lost = released(view, PLAN_LOST, PLAN_LOST, message)
        return Outcome((count_unstable(view),), lost, stop=True, requeue_after_s=0)
    job, full, attempt = view.job, view.full, view.status.attempt
    taken = to_take_over(view)
    ports = manifests.ports(full.plan, view.status.plan.host_ports if view.status.plan else None)
    plan = manifests.plan_config_map(job, attempt, full.blob, full.digest, full.plan.why, full.basis)
    actions: list[Action] = [
        Create(CONFIG_MAPS, (plan,)),
        Create(SERVICES, (manifests.service(job, attempt, ports),)),
    ]
    if job.spec.network_policy.enabled:
        policy = manifests.network_policy(job, attempt, view.metrics_readers)
        actions.append(Create(NETWORK_POLICIES, (policy,)))
    if job.spec.has_peer_secret:  # whichever this plan uses: a pod that stays may see another one
        actions.append(MakeSecret())
    if manifests.stays(job):
        actions.append(
            Write(CONFIG_MAPS, manifests.gang_config_map(job, full.plan, full.blob, view.orders, _is_broken(view)))
        )
    if taken:
        labels = {pod.name: names.worker_labels(job.metadata.name, attempt, worker) for worker, pod in taken.items()}
        actions.append(Relabel(labels))
    if new := [worker for worker in missing if worker not in taken]:
        actions.extend(_new_pods(view, full.plan, new, ports))
    # A pod that runs already may never change again once it has its labels: no event would ask for the next pass.
    return Outcome(tuple(actions), requeue_after_s=0 if taken else None)


def _new_pods(view: View, plan: Plan, workers: Sequence[int], ports: manifests.Ports) -> Iterator[Create]:
    """The pods of workers that have none, bound together where the template names no group of its own."""
    job, group = view.job, ""
    if view.pod_groups and "schedulingGroup" not in job.spec.template.pod_spec():
        group = names.pod_group(job.metadata.name, plan.attempt)
        yield Create(POD_GROUPS, (manifests.pod_group(job, plan.attempt, len(workers)),))
    made = manifests.pods(view.admitted_job, plan, workers, ports, view.orders, group, view.instrumentation)
    yield Create(PODS, made)


def _is_broken(view: View) -> bool:
    """Whether the attempt before ended because a node fell silent: its other ranks wait for it in vain."""
    last, avoided = view.status.last_failure, {node.name for node in view.status.avoided_nodes}
    is_last = last is not None and last.attempt == view.status.attempt - 1
    return is_last and last is not None and last.reason == NODE_LOST and last.node in avoided


def up(view: View) -> Outcome:
    """The gang is deployed when every worker runs (or has ended well already)."""
    pods = view.gang
    if not in_force(view) or deployed(view) or len(pods) < num_workers(view):
        return NOTHING
    if not all(pod.running or pod.succeeded for pod in pods):
        return Outcome(stop=True)
    num_nodes = len(Counter(pod.node for pod in pods))
    made = [pod for pod in pods if pod.name == names.pod(view.job.metadata.name, pod.attempt, pod.worker)]
    kept = f", {len(pods) - len(made)} of them stayed" if len(made) < len(pods) else ""
    all_up = "its pod is up" if len(pods) == 1 else f"all {len(pods)} pods are up"
    message = f"attempt {view.status.attempt}: {all_up}{kept}, on {counted(num_nodes, 'node')}"
    status = set_condition(view, ConditionType.DEPLOYED, True, "Deployed", message)
    status = set_condition(view, ConditionType.RUNNING, True, "Running", message, status)
    return Outcome((remember(unstable=0, unfit=0),), status)
