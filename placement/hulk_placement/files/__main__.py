"""Writes what is made from the documents' models: the JSON schemas beside them, and docs/reference/file-keys.md.

`python -m hulk_placement.files` in the repository's root; with `--check` it writes nothing and fails when a file is
stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hulk_placement.files.part import Part
from hulk_placement.files.placement import LinksFile, PlacementFile
from hulk_placement.files.plan import PlanFile
from hulk_placement.files.reference import reference
from hulk_placement.files.schema import schema
from hulk_placement.files.topology import TopologyFile
from hulk_placement.files.workload import WorkloadFile

DOCUMENTS: dict[str, type[Part]] = {
    "topology": TopologyFile,
    "workload": WorkloadFile,
    "plan": PlanFile,
    "placement": PlacementFile,
    "links": LinksFile,
}
SCHEMAS = Path("placement/hulk_placement/files")
KEYS = Path("docs/reference/file-keys.md")


def generated() -> dict[Path, str]:
    """Every generated file, by its path in the repository."""
    schemas = {name: schema(document) for name, document in DOCUMENTS.items()}
    files = {
        SCHEMAS / f"{name}.schema.json": json.dumps(found, indent=2, ensure_ascii=False) + "\n"
        for name, found in schemas.items()
    }
    return {**files, KEYS: reference(schemas)}


def main() -> None:
    """Write, or with `--check` compare."""
    texts = generated()
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        if stale:
            listed = ", ".join(map(str, stale))
            raise SystemExit(f"stale: {listed}; run `python -m hulk_placement.files` and commit the result")
        return
    for path in stale:
        path.write_text(texts[path], encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
