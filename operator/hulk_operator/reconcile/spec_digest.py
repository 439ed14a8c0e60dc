"""What an attempt is made of, as a digest in its plan's summary: so that no attempt has pods of two specs.

The API server refuses a change of most fields while a job runs, but an operator that was away may miss that the job was
suspended, changed and resumed. Two parts, for a job with a checkpoint every 50 steps:

    3f1c77ab-9a02d1e4   what changes only while suspended, then what any change of gives new pods another environment
"""

import hashlib
import json

from hulk_operator.api import HulkJob, HulkJobStatus
from hulk_operator.api.base import SUSPENDED
from hulk_operator.api.hulkjob import HulkJobSpec

_FIXED = frozenset(name for name, field in HulkJobSpec.model_fields.items() if field.json_schema_extra == SUSPENDED)
_LENGTH = 8


def spec_digest(job: HulkJob) -> str:
    """The digest of a job's spec as it is now. Defaults do not count: a newer operator may have more of them."""
    return f"{_digest(job, _FIXED)}-{_digest(job, frozenset({'checkpoint'}))}"


def is_changed(job: HulkJob, status: HulkJobStatus, *, pods: bool = False) -> bool:
    """Whether the last attempt was made of another spec; with `pods`, also whether its next pod would differ.

    False where an earlier version of the operator made it, and did not say of what.
    """
    before = status.plan.made_of if status.plan else ""
    if not before:
        return False
    now = spec_digest(job)
    return now != before if pods else now.split("-")[0] != before.split("-")[0]


def _digest(job: HulkJob, names: frozenset[str]) -> str:
    content = job.spec.model_dump(mode="json", by_alias=True, include=set(names), exclude_defaults=True)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_LENGTH]
