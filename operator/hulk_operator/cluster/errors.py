"""What the API server can answer instead of what was asked; every error carries the server's own words.

ClusterError
 ├─ NotFound        404
 ├─ Conflict        409, the precondition does not hold (any more); read again
 ├─ AlreadyExists   409, another object of that name is there
 ├─ Gone            410, a watch cannot go on from its resource version; list again
 ├─ Refused         the object as it is will never be accepted by the cluster as it is
 │   ├─ Forbidden       403, RBAC, PodSecurity, a missing ServiceAccount or PriorityClass
 │   │   ├─ QuotaExceeded   403, a ResourceQuota is used up
 │   │   └─ NamespaceEnds   403, the namespace is being deleted
 │   ├─ Invalid         400 or 422, LimitRange or validation
 │   └─ NameTaken       another object of that name is someone else's
 └─ Unavailable     429, 5xx or no connection; the same request may succeed later
"""

# ruff: noqa: N818 -- the names are the API server's own reasons
from collections.abc import Mapping
from typing import Any, Final


class ClusterError(Exception):
    """A request that the API server did not carry out. `status` is the HTTP status, 0 when there was no answer."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class NotFound(ClusterError):
    """There is no such object (or no such kind, as long as its CRD is not applied)."""


class Conflict(ClusterError):
    """The object changed since it was read, or is being changed: read again and decide again."""


class AlreadyExists(ClusterError):
    """An object of that name exists."""


class Gone(ClusterError):
    """The watch's resource version is too old."""


class Refused(ClusterError):
    """The cluster does not admit the object; a person must change something."""


class Forbidden(Refused):
    """Not allowed by RBAC or an admission plugin."""


class QuotaExceeded(Forbidden):
    """A ResourceQuota is used up."""


class NamespaceEnds(Forbidden):
    """The namespace is being deleted: nothing is created in it any more, and what is in it goes."""


class Invalid(Refused):
    """The object breaks a rule of its schema or of an admission plugin."""


class NameTaken(Refused):
    """An object of that name exists and is someone else's."""


class Unavailable(ClusterError):
    """The server is down, overloaded or not reachable."""


_BY_STATUS: Final[Mapping[int, type[ClusterError]]] = {
    400: Invalid,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Unavailable,
}


def error_of(status: int, body: Mapping[str, Any]) -> ClusterError:
    """The error in an answer with an HTTP status of 300 or more; `body` is its `Status` object, empty when it is none.

    >>> type(error_of(409, {"reason": "AlreadyExists"})).__name__
    'AlreadyExists'
    >>> type(error_of(403, {"message": 'pods "a" is forbidden: exceeded quota: team, used: pods=2'})).__name__
    'QuotaExceeded'
    >>> type(error_of(503, {})).__name__, str(error_of(503, {}))
    ('Unavailable', 'the API server answered 503')
    >>> type(error_of(403, {"details": {"causes": [{"reason": "NamespaceTerminating"}]}})).__name__
    'NamespaceEnds'
    """
    reason = str(body.get("reason") or "")
    message = str(body.get("message") or f"the API server answered {status}")
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else ClusterError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif kind is Forbidden and "exceeded quota" in message:
        kind = QuotaExceeded
    elif kind is Forbidden and _has_cause(body, "NamespaceTerminating"):
        kind = NamespaceEnds
    elif kind is Invalid and reason == "Expired":
        kind = Gone
    return kind(status, reason, message)


def _has_cause(body: Mapping[str, Any], reason: str) -> bool:
    causes = (body.get("details") or {}).get("causes") or ()
    return any(cause.get("reason") == reason for cause in causes)
