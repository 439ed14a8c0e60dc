"""Brings Hulk's runtime into a worker whose image has nothing of Hulk, and whose script stays as it is.

An init container copies a folder of Hulk's image into a volume, and PYTHONPATH names that first: Python runs the
folder's `sitecustomize` before any program. Only pods of a plan that needs it have it: one that uses Hulk's all-reduce,
whose replicas train apart (wherever they are), or whose mesh has shards or tensor ranks, for `hulk.device_mesh`. Such
pods are made for one attempt: those that stay run hulk-launch, which brings in by itself what a plan uses.

The init container takes the cpu, memory and disk that the worker takes after it, and no devices: a pod takes the larger
of both, so its size, its QoS class and what quotas and LimitRanges say of it are as without. Where the worker says
nothing, neither does the init container.
"""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from hulk_placement.plan import Plan

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import Object
from hulk_operator.inputs.instrumentation import is_launched, is_wanted
from hulk_operator.inputs.stage_constraints import may_have_shards, width
from hulk_operator.inputs.workloads import to_sync

_COUNTED: Final = ("cpu", "memory", "ephemeral-storage")
_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_USER: Final = {"runAsUser": names.RESTRICTED_USER, "runAsGroup": names.RESTRICTED_USER}


@dataclass(frozen=True, slots=True)
class Instrumentation:
    """Where the folder comes from, by the chart's values."""

    image: str = names.INSTRUMENTATION_IMAGE
    pull_policy: str = "IfNotPresent"


DEFAULT_INSTRUMENTATION: Final = Instrumentation()


def is_instrumented(job: HulkJob, plan: Plan) -> bool:
    """Whether the pods of an attempt have the init container."""
    is_needed = plan.collective is not None or plan.inner_steps is not None or plan.layout.width > 1
    return is_needed and _is_brought(job)


def may_be_instrumented(job: HulkJob) -> bool:
    """Whether the pods of some attempt may have it."""
    spec = job.spec
    may_sum = to_sync(spec).may_use_wan and (spec.parallelism.pipeline or 1) == 1
    may_divide = width(spec) > 1 or (spec.model is not None and may_have_shards(spec))
    return (may_sum or may_divide) and _is_brought(job)


def launcher_environment(job: HulkJob) -> dict[str, str]:
    """What tells hulk-launch to bring the all-reduce in, whichever plan its pod may see."""
    return (
        {names.ENV_INSTRUMENTATION: names.INSTRUMENTATION_AUTO} if is_wanted(job.spec) and is_launched(job.spec) else {}
    )


def instrumented(spec: Object, source: Instrumentation) -> Object:
    """A worker's PodSpec with the init container first, its volume, and PYTHONPATH in the first container."""
    inits, (worker, *others) = spec.get("initContainers") or [], spec["containers"]
    volumes = spec.get("volumes") or []
    name = _free(names.INSTRUMENTATION_VOLUME, [container["name"] for container in (*inits, worker, *others)])
    volume = _free(names.INSTRUMENTATION_VOLUME, [volume["name"] for volume in volumes])
    mount = {"name": volume, "mountPath": names.INSTRUMENTATION_DIRECTORY}
    init = {
        "name": name,
        "image": source.image,
        "imagePullPolicy": source.pull_policy,
        "command": ["cp", "-R", f"{names.INSTRUMENTATION_SOURCE}/.", names.INSTRUMENTATION_DIRECTORY],
        "resources": _resources(worker.get("resources") or {}),
        "securityContext": _SECURITY | (_USER if (spec.get("securityContext") or {}).get("runAsUser") == 0 else {}),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [mount],
    }
    mounts = [*(worker.get("volumeMounts") or ()), {**mount, "readOnly": True}]
    worker = {**worker, "env": _environment(worker.get("env") or []), "volumeMounts": mounts}
    return {
        **spec,
        "initContainers": [init, *inits],
        "containers": [worker, *others],
        "volumes": [*volumes, {"name": volume, "emptyDir": {}}],
    }


def _is_brought(job: HulkJob) -> bool:
    return is_wanted(job.spec) and not is_launched(job.spec)


def _free(name: str, taken: Collection[str]) -> str:
    """The name, or where the template has it, the first of `name-2`, `name-3`... that it has not."""
    if name not in taken:
        return name
    return next(other for number in count(2) if (other := f"{name}-{number}") not in taken)


def _resources(worker: dict[str, Any]) -> dict[str, Any]:
    found = {kind: worker.get(kind) or {} for kind in ("requests", "limits")}
    return {kind: {name: of[name] for name in _COUNTED if name in of} for kind, of in found.items()}


def _environment(env: list[Object]) -> list[Object]:
    """The worker's own, in which PYTHONPATH begins with Hulk's folder."""
    found: list[Object] = [{"name": names.ENV_INSTRUMENTATION, "value": names.INSTRUMENTATION_AUTO}]
    is_set = False
    for entry in env:
        is_set |= entry["name"] == names.ENV_PYTHON_PATH
        found += _behind(entry) if entry["name"] == names.ENV_PYTHON_PATH else [entry]
    return found if is_set else [*found, _path("")]


def _behind(entry: Object) -> list[Object]:
    """The template's PYTHONPATH behind Hulk's folder, be it a text or taken from a ConfigMap, a Secret or a field."""
    if "valueFrom" not in entry:
        return [_path(entry.get("value") or "")]
    return [{**entry, "name": names.ENV_TEMPLATE_PYTHON_PATH}, _path(f"$({names.ENV_TEMPLATE_PYTHON_PATH})")]


def _path(own: str) -> Object:
    """An empty part of PYTHONPATH would be the working directory."""
    return {
        "name": names.ENV_PYTHON_PATH,
        "value": names.INSTRUMENTATION_DIRECTORY + (f":{own}" if own else ""),
    }
