"""Tell Prometheus which pods want to be scraped: Debian's Prometheus is built without Kubernetes discovery.

It writes what `kubernetes_sd_configs` with the usual annotations would find (prometheus.io/scrape, port, path) as a
file of targets, which Prometheus reads again whenever it changes.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from pathlib import Path
from typing import Any

from hulk_lab import paths
from hulk_lab.api import Api, ApiError
from hulk_lab.paths import write_changed
from hulk_lab.wan.addresses import in_url

_LOOK_EVERY_S = 1.0
_PREFIX = "prometheus.io/"


def targets(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Prometheus' file format: one entry per running pod that asks for it."""
    found = []
    for pod in pods:
        annotations = pod["metadata"].get("annotations", {})
        address = pod.get("status", {}).get("podIP")
        wanted = annotations.get(f"{_PREFIX}scrape") == "true" and pod["status"].get("phase") == "Running"
        if wanted and address:
            labels = {
                "__metrics_path__": annotations.get(f"{_PREFIX}path", "/metrics"),
                "namespace": pod["metadata"]["namespace"],
                "pod": pod["metadata"]["name"],
                "node": pod["spec"]["nodeName"],
            }
            found.append({"targets": [f"{in_url(address)}:{annotations[f'{_PREFIX}port']}"], "labels": labels})
    return sorted(found, key=json.dumps)


def write(file: Path, content: list[dict[str, Any]]) -> None:
    """Replace the file if its content differs."""
    write_changed(file, json.dumps(content, indent=1))


def main() -> None:
    """Run until the lab stops this process."""
    state = paths.state_folder(sys.argv[1])
    api = Api(state / "pki" / "prometheus.kubeconfig")
    while True:
        try:
            write(state / "targets.json", targets(api.get("/api/v1/pods", resourceVersion="0")["items"]))
        except (OSError, http.client.HTTPException, ApiError) as error:  # the API server restarts: look again
            print(f"API server: {error}", flush=True)
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    main()
