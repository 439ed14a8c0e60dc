"""Whose a checkpoint store's objects are: the job signs what says which states are good, with a key of its secret.

    {"format":1, ... ,"signature":"<HMAC-SHA-256 of the object's name and of all that comes before, in hex>"}

The key follows from the job's secret, its UID and, in a sweep, the trial, so that another job's objects do not pass.
The name is signed so that no object passes for another of the same job. What an object held at an earlier time does
pass: only the step that the operator knows to be committed tells that it is old.
"""

import hmac
from dataclasses import dataclass, field, replace
from typing import Final

_FIELD: Final = b',"signature":"'
_END: Final = b'"}'
_LENGTH: Final = len(_FIELD) + 2 * 32 + len(_END)


@dataclass(frozen=True, slots=True)
class Owner:
    """The job that checkpoints belong to, and what it believes of what it finds in their folder.

    Without a key it signs nothing and asks for no signature.
    """

    job: str = ""
    job_uid: str = ""
    key: bytes = field(default=b"", repr=False)
    trusts_store: bool = False
    """What is not signed by the job is said, and believed."""
    committed_step: int = 0
    """That the operator knows of; 0 = of none."""

    @classmethod
    def of_job(cls, job: str, job_uid: str, secret: bytes, *, trusts_store: bool, committed_step: int) -> "Owner":
        """By the job's secret, which is empty where it has none."""
        key = _derive(secret, job_uid or job) if secret else b""
        return cls(job, job_uid, key, trusts_store, committed_step)

    def of_trial(self, trial: str) -> "Owner":
        """The same for one trial of several in one job."""
        return replace(self, key=_derive(self.key, trial) if self.key else b"")

    def signed(self, name: str, body: bytes) -> bytes:
        """A JSON object with its signature as the last field.

        >>> one = Owner.of_job("team/demo", "u-1", bytes(32), trusts_store=False, committed_step=0)
        >>> content = one.signed("latest-00000001", b'{"format":1}')
        >>> content[:26], len(content), one.fault("latest-00000001", content)
        (b'{"format":1,"signature":"6', 91, '')
        >>> one.fault("latest-00000002", content)
        "is not signed by this job's secret"
        >>> Owner().signed("latest-00000001", b'{"format":1}')
        b'{"format":1}'
        """
        return body[:-1] + _FIELD + self._digest(name, body).encode() + _END if self.key else body

    def fault(self, name: str, content: bytes) -> str:
        """What speaks against this being what the job wrote under that name; empty when nothing does."""
        if not self.key:
            return ""
        body, last = content[:-_LENGTH] + b"}", content[-_LENGTH:]
        if not (last.startswith(_FIELD) and last.endswith(_END)):
            return "has no signature"
        found = last[len(_FIELD) : -len(_END)]
        return "" if hmac.compare_digest(self._digest(name, body).encode(), found) else _FOREIGN

    def _digest(self, name: str, body: bytes) -> str:
        return hmac.digest(self.key, name.encode() + b"\n" + body, "sha256").hex()


_FOREIGN: Final = "is not signed by this job's secret"
NOBODY: Final = Owner()


def _derive(key: bytes, scope: str) -> bytes:
    """HKDF-SHA-256 without a salt (RFC 5869), of one block: 32 bytes.

    >>> _derive(bytes(32), "u-1").hex()[:16]
    '641cec78c1c1826e'
    """
    extracted = hmac.digest(bytes(32), key, "sha256")
    return hmac.digest(extracted, b"hulk-checkpoints " + scope.encode() + b"\x01", "sha256")
