"""What a pod is now: the attempt in force, which worker of it the pod is, and its plan.

A pod that stays from one attempt to the next finds this in files. Kubernetes replaces all files of a volume at once, by
turning one symbolic link. They come from two objects, though: plan and environment from a ConfigMap, attempt and worker
from the pod's own labels. As long as the two are of different attempts, there is nothing to read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hulk_runtime import names

_LINK: Final = "..data"


@dataclass(frozen=True, slots=True)
class Gang:
    """One worker's part in one attempt; `environment` is what all its workers are told."""

    attempt: int
    worker: int
    plan: bytes
    environment: Mapping[str, str]


def read(folder: Path, newer_than: int = 0) -> Gang | None:
    """The gang that the pod belongs to, if it is of a later attempt than `newer_than` and known as a whole."""
    here = (folder / _LINK).resolve()
    try:
        attempt = int((here / names.GANG_ATTEMPT_FILE).read_text())
        if attempt <= newer_than:
            return None
        environment = json.loads((here / names.GANG_ENVIRONMENT_KEY).read_text())
        if environment[names.ENV_ATTEMPT] != str(attempt):
            return None
        worker = int((here / names.GANG_WORKER_FILE).read_text())
        return Gang(attempt, worker, (here / names.PLAN_KEY).read_bytes(), environment)
    except FileNotFoundError:  # replaced meanwhile
        return None
