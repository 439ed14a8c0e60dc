"""Raw rows of a benchmark as JSON lines, so that every printed figure can be computed again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FOLDER = Path(__file__).resolve().parents[1] / "build" / "bench"


class Raw:
    """One file per question, begun anew where `fresh`; a row is on disk as soon as it was measured."""

    def __init__(self, question: str, folder: Path = FOLDER, *, fresh: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{question}.jsonl"
        if fresh or not self.path.exists():
            self.path.write_text("")

    def add(self, row: DataclassInstance, **more: str | float | bool) -> None:
        """Append one row and what else is to be known of it."""
        with self.path.open("a") as file:
            file.write(json.dumps({**more, **asdict(row)}) + "\n")
