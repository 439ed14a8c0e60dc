"""YAML files of users -> jobs, a topology and the ConfigMaps beside them; mistakes are named with file and field."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hulk_operator.api import HulkJob, HulkTopology, HulkTopologySpec
from hulk_operator.api.strict import parse

STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class Documents:
    """What the files hold."""

    jobs: tuple[HulkJob, ...] = ()
    topology: HulkTopologySpec | None = None
    texts: dict[tuple[str, str], str] = field(default_factory=dict)


def read(paths: Iterable[Path], stdin: str, namespace: str | None) -> Documents:
    """Everything in the files (`-` is `stdin`). A job without a namespace gets `namespace`.

    ValueError names the file and every mistake in it; other kinds than HulkJob, HulkTopology and ConfigMap are passed.
    """
    jobs: list[HulkJob] = []
    topology: HulkTopologySpec | None = None
    texts: dict[tuple[str, str], str] = {}
    for path in paths:
        for document in _documents(path, stdin):
            match document.get("kind"):
                case "HulkJob" | "HulkTopology":
                    found = _parse(path, document)
                    if isinstance(found, HulkTopology):
                        topology = found.spec
                    elif isinstance(found, HulkJob):
                        jobs.append(_in_namespace(found, namespace))
                case "ConfigMap":
                    name = document["metadata"]["name"]
                    texts |= {(name, key): text for key, text in (document.get("data") or {}).items()}
    return Documents(tuple(jobs), topology, texts)


def _documents(path: Path, stdin: str) -> list[dict[str, Any]]:
    text = stdin if path == STDIN else path.read_text(encoding="utf-8")
    try:
        found = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {error}") from error
    if not all(isinstance(document, dict) for document in found):
        raise ValueError(f"{path}: expected Kubernetes objects (maps with kind and metadata)")
    return found


def _parse(path: Path, document: dict[str, Any]) -> Any:
    try:
        return parse(document)
    except ValueError as error:
        name = (document.get("metadata") or {}).get("name", "")
        raise ValueError(f"{path}: {document['kind']} {name}:\n  " + str(error).replace("\n", "\n  ")) from error


def _in_namespace(job: HulkJob, namespace: str | None) -> HulkJob:
    if job.metadata.namespace or not namespace:
        return job
    return job.model_copy(update={"metadata": job.metadata.model_copy(update={"namespace": namespace})})
