"""HulkJob -> what its workers know each other by and sign checkpoints with: one Secret, and its file in each of them.

A file and no environment variable: every program that a worker starts inherits its environment, and crash reports and
container runtimes print it. Only the worker container mounts the file. The kubelet gives it to root and the pod's
fsGroup; where there is one, nobody else reads it. Where a template has none, everyone in that container may: a worker
that is not root could not read it otherwise, and an fsGroup added here would take the user's own volumes over.
"""

from base64 import b64encode
from typing import Any, Final

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import Object

_GROUP_READS: Final = 0o440
_ALL_READ: Final = 0o444


def peer_secret(job: HulkJob, owner: Object, value: bytes) -> Object:
    """The Secret: of the job and of no attempt, because pods stay from one to the next; immutable."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": _name(job),
            "namespace": job.metadata.namespace,
            "labels": names.job_labels(job.metadata.name),
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "immutable": True,
        "data": {names.PEER_SECRET_KEY: b64encode(value).decode()},
    }


def with_peer_secret(container: Object, job: HulkJob, security: dict[str, Any]) -> tuple[Object, list[Object]]:
    """The worker container and the volumes with the Secret in it; `security` is the pod's."""
    if not job.spec.has_peer_secret:
        return container, []
    mount = {"name": names.PEER_SECRET_VOLUME, "mountPath": names.PEER_SECRET_DIRECTORY, "readOnly": True}
    mode = _GROUP_READS if "fsGroup" in security else _ALL_READ
    volume = {"name": names.PEER_SECRET_VOLUME, "secret": {"secretName": _name(job), "defaultMode": mode}}
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}, [volume]


def peer_environment(job: HulkJob) -> dict[str, str]:
    """Where a worker finds the Secret."""
    return {names.ENV_PEER_SECRET: names.PEER_SECRET_PATH} if job.spec.has_peer_secret else {}


def _name(job: HulkJob) -> str:
    return names.peer_secret(job.metadata.name, job.metadata.uid or "")
