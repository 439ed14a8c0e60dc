"""What the stub refuses, in the API server's own words."""

from __future__ import annotations

from typing import Any

from hulk_operator.cluster import ApiResource


class ApiError(Exception):
    """An answer with an HTTP status of 400 or more."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message

    def body(self) -> dict[str, Any]:
        """The Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.status,
        }


def not_found(resource: ApiResource, name: str) -> ApiError:
    """There is no such object."""
    return ApiError(404, "NotFound", f'{qualified(resource)} "{name}" not found')


def already_exists(resource: ApiResource, name: str) -> ApiError:
    """The name is taken."""
    return ApiError(409, "AlreadyExists", f'{qualified(resource)} "{name}" already exists')


def conflict(resource: ApiResource, name: str) -> ApiError:
    """It is not at that version any more."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}')


def other_uid(resource: ApiResource, name: str, asked: str, uid: str) -> ApiError:
    """It is another object of that name."""
    why = f"the UID in the precondition ({asked}) does not match the UID in record ({uid})"
    why += ". The object might have been deleted and then recreated"
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {resource.kind} "{name}": {why}')


def expired(message: str) -> ApiError:
    """A version that is not known any more."""
    return ApiError(410, "Expired", message)


def bad_request(message: str) -> ApiError:
    """Not what this server understands."""
    return ApiError(400, "BadRequest", message)


def qualified(resource: ApiResource) -> str:
    """A kind as messages name it.

    >>> from hulk_operator.cluster import HULK_JOBS, PODS
    >>> qualified(HULK_JOBS), qualified(PODS)
    ('hulkjobs.hulk.dev', 'pods')
    """
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
