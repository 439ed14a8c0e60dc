"""Where this process runs and which namespace the user is in, read without the client, which takes long to load."""

import os
from pathlib import Path
from typing import Any

import yaml

_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def in_cluster() -> bool:
    """Whether this process runs in a pod with a service account."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and _TOKEN.exists()


def is_own_pod(kubeconfig: str | None, context: str | None) -> bool:
    """Whether the pod's service account says where the cluster is: where nobody names another."""
    return kubeconfig is None and context is None and in_cluster()


def kubeconfigs(named: str | None) -> str:
    """The kubeconfig that is named, else those of $KUBECONFIG, else the user's own."""
    return named or os.environ.get("KUBECONFIG") or "~/.kube/config"


def existing(paths: str) -> list[Path]:
    """Those of the files in a list with separators that are there."""
    found = (Path(path).expanduser() for path in paths.split(os.pathsep) if path)
    return [path for path in found if path.exists()]


def namespace_of(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace that the user is in: of the kubeconfig's context or of the pod; without either, `default`.

    A plan from files needs no cluster; what needs one says by itself what is missing in a kubeconfig.
    """
    if is_own_pod(kubeconfig, context):
        return _TOKEN.with_name("namespace").read_text(encoding="utf-8").strip()
    try:
        files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in existing(kubeconfigs(kubeconfig))]
        return _namespace(files, context) or "default"
    except (OSError, ValueError, yaml.YAMLError, AttributeError, TypeError, KeyError):
        return "default"


def _namespace(files: list[Any], context: str | None) -> str | None:
    """As the client merges them: the last file that names a context wins, and of two contexts of one name the first."""
    named = [file["current-context"] for file in files if "current-context" in file]
    current = context or (named[-1] if named else None)
    contexts = (each for file in files for each in file.get("contexts") or ())
    found: list[str | None] = [each["context"].get("namespace") for each in contexts if each["name"] == current]
    return found[0] if found else None
