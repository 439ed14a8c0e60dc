"""Cases that a test gives to ranks, and what each rank found of them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def give(folder: Path, cases: Mapping[str, Any]) -> None:
    """Write them where ranks look for them."""
    (folder / "cases.json").write_text(json.dumps(cases))


def given(folder: Path) -> dict[str, Any]:
    """What `give` wrote."""
    found: dict[str, Any] = json.loads((folder / "cases.json").read_text())
    return found


def keep(folder: Path, found: Mapping[str, Any]) -> None:
    """Save what this rank found, and end together with the others."""
    torch.save(found, folder / f"found-{os.environ['RANK']}.pt")
    dist.barrier()
    dist.destroy_process_group()


def found_by_ranks(job: Any, plan: Any, script: str, cases: Mapping[str, Any], num_ranks: int) -> list[dict[str, Any]]:
    """What each rank of a script keeps of the cases."""
    give(job.folder, cases)
    job.run_ranks(plan, script, str(job.folder))
    return [torch.load(job.folder / f"found-{rank}.pt", weights_only=False) for rank in range(num_ranks)]
