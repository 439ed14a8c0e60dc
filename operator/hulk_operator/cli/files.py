"""YAML files of users -> jobs, a topology and the ConfigMaps beside them; mistakes are named with file and field."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import yaml
from hulk_placement.files.text import YAML_ERRORS

from hulk_operator import names
from hulk_operator.api import HulkJob, HulkTopology, HulkTopologySpec
from hulk_operator.api.strict import parse
from hulk_operator.inputs.topology import undeclared
from hulk_operator.inputs.workloads import Texts

STDIN = Path("-")
_CONFIG_MAP = "ConfigMap"
_READ = (names.JOB_KIND, names.TOPOLOGY_KIND, _CONFIG_MAP)


@dataclass(frozen=True, slots=True)
class Documents:
    """What the files hold; of kinds that are not read, only which they are."""

    jobs: tuple[HulkJob, ...] = ()
    topology: HulkTopologySpec | None = None
    texts: Texts = field(default_factory=dict)
    other_kinds: tuple[str, ...] = ()


def read(paths: Sequence[Path], topology: Path | None, stdin: TextIO, namespace: str) -> Documents:
    """Everything in the files (`-` is `stdin`). What has no namespace gets `namespace`.

    ValueError names the file and every mistake in it. Other kinds than HulkJob, HulkTopology and ConfigMap are passed.
    A job or a topology that is there twice is refused, as is a `topology` file that holds none.
    """
    found: dict[str, tuple[str, HulkJob | HulkTopology]] = {}  # by kind and name, with where it is
    texts: dict[tuple[str, str, str], str] = {}
    others: dict[str, None] = {}
    for path in (*paths, *([topology] if topology else [])):
        for where, document in _documents(path, stdin):
            if document.get("kind") not in _READ:
                others[str(document.get("kind"))] = None
                continue
            _require_name(where, document)
            _in_namespace(document, namespace)
            if document["kind"] == _CONFIG_MAP:
                texts |= _texts(where, document)
                continue
            parsed = _parse(where, document)
            key = f"HulkJob {parsed.key}" if isinstance(parsed, HulkJob) else "HulkTopology"
            if key in found:
                raise ValueError(f"{where}: {key} is there twice; the first one is in {found[key][0]}")
            found[key] = where, parsed
        if path == topology and "HulkTopology" not in found:
            raise ValueError(f"{path}: no Topology or HulkTopology in it")
    jobs = tuple(entry for _, entry in found.values() if isinstance(entry, HulkJob))
    declared = [entry.spec for _, entry in found.values() if isinstance(entry, HulkTopology)]
    return Documents(jobs, declared[0] if declared else None, texts, tuple(others))


def _documents(path: Path, stdin: TextIO) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object, and where it is: file, and number where there are several."""
    try:
        text = stdin.read() if path == STDIN else path.read_text(encoding="utf-8")
        found = [document for document in yaml.safe_load_all(text) if document is not None]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text: {error}") from error
    except YAML_ERRORS as error:
        raise ValueError(f"{path}: not YAML: {error}") from error
    for number, document in enumerate(found, 1):
        where = f"{path}, document {number}" if len(found) > 1 else str(path)
        if not isinstance(document, dict):
            raise ValueError(f"{where}: expected Kubernetes objects (maps with kind and metadata)")
        yield where, document


def _require_name(where: str, document: dict[str, Any]) -> None:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise ValueError(f"{where}: {document['kind']}: metadata must be a map with a name")


def _in_namespace(document: dict[str, Any], namespace: str) -> None:
    if document["kind"] != names.TOPOLOGY_KIND and not document["metadata"].get("namespace"):
        document["metadata"] = {**document["metadata"], "namespace": namespace}


def _texts(where: str, document: dict[str, Any]) -> dict[tuple[str, str, str], str]:
    metadata, data = document["metadata"], document.get("data") or {}
    if not isinstance(data, Mapping) or not all(isinstance(text, str) for text in data.values()):
        raise ValueError(f"{where}: ConfigMap {metadata['name']}: data must be a map of texts")
    return {(str(metadata["namespace"]), metadata["name"], key): text for key, text in data.items()}


def _parse(where: str, document: dict[str, Any]) -> HulkJob | HulkTopology:
    try:
        parsed = parse(document)
    except ValueError as error:
        name = document["metadata"]["name"]
        raise ValueError(f"{where}: {document['kind']} {name}:\n  " + str(error).replace("\n", "\n  ")) from error
    assert isinstance(parsed, HulkJob | HulkTopology), parsed
    mistakes = undeclared(parsed.spec) if isinstance(parsed, HulkTopology) else []
    if mistakes:
        raise ValueError("\n  ".join([f"{where}: HulkTopology {parsed.metadata.name}:", *mistakes]))
    return parsed
