"""The namespace that a user is in: as the client would read it from kubeconfigs, and `default` where none says one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hulk_operator.cluster import namespace_of


def config(current: str | None, **namespaces: str | None) -> dict[str, Any]:
    """A kubeconfig whose contexts have these namespaces."""
    contexts = [
        {"name": name, "context": {"cluster": "c", **({"namespace": namespace} if namespace else {})}}
        for name, namespace in namespaces.items()
    ]
    return {"contexts": contexts, **({"current-context": current} if current else {})}


ONE, OTHER = config("one", one="team-a", two="team-b"), config("two", two="team-c", three="team-d")
CASES = {
    "the current context": ([ONE], None, "team-a"),
    "a context that is named": ([ONE], "two", "team-b"),
    "a context without a namespace": ([config("one", one=None)], None, "default"),
    "no current context": ([config(None, one="team-a")], None, "default"),
    "a context that is not there": ([ONE], "nine", "default"),
    "two files: the last one's context, the first one's entry": ([ONE, OTHER], None, "team-b"),
    "two files: a context of the second": ([ONE, OTHER], "three", "team-d"),
    "a file of something else": ([["no", "kubeconfig"]], None, "default"),
    "no file": ([], None, "default"),
}


@pytest.mark.parametrize(("files", "context", "expected"), CASES.values(), ids=CASES.keys())
def test_it_is_the_contexts(
    files: list[Any], context: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / str(number) for number in range(len(files))]
    for path, content in zip(paths, files, strict=True):
        path.write_text(yaml.safe_dump(content))
    missing = str(tmp_path / "missing")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([missing, *map(str, paths)]))
    assert namespace_of(None, context) == expected
    assert namespace_of(missing, context) == "default"
