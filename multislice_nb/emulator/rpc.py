"""What the service answers when it refuses: google.rpc codes, messages and details."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]

# google.rpc.Code name: (number, HTTP status), from google/rpc/code.proto.
CODES: dict[str, tuple[int, int]] = {
    "CANCELLED": (1, 499),
    "UNKNOWN": (2, 500),
    "INVALID_ARGUMENT": (3, 400),
    "DEADLINE_EXCEEDED": (4, 504),
    "NOT_FOUND": (5, 404),
    "ALREADY_EXISTS": (6, 409),
    "PERMISSION_DENIED": (7, 403),
    "RESOURCE_EXHAUSTED": (8, 429),
    "FAILED_PRECONDITION": (9, 400),
    "ABORTED": (10, 409),
    "OUT_OF_RANGE": (11, 400),
    "UNIMPLEMENTED": (12, 501),
    "INTERNAL": (13, 500),
    "UNAVAILABLE": (14, 503),
    "UNAUTHENTICATED": (16, 401),
}


class ApiError(Exception):
    """A refusal, in the service's own terms. It never reaches users of the package: it becomes an answer."""

    def __init__(self, status: str, message: str, details: Iterable[Json] = ()) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.details = list(details)

    @property
    def code(self) -> int:
        """The number in google.rpc.Code."""
        return CODES[self.status][0]

    @property
    def http_status(self) -> int:
        """The HTTP status that goes with it."""
        return CODES[self.status][1]

    def as_status(self) -> Json:
        """A google.rpc.Status, as operations and failed resources carry it."""
        status: Json = {"code": self.code, "message": self.message}
        if self.details:
            status["details"] = self.details
        return status

    def as_rest(self) -> Json:
        """The body of a REST answer."""
        error: Json = {"code": self.http_status, "message": self.message, "status": self.status}
        if self.details:
            error["details"] = self.details
        return {"error": error}


def invalid(field: str, description: str) -> ApiError:
    """INVALID_ARGUMENT that names the field, with a google.rpc.BadRequest."""
    violation = {"field": field, "description": description}
    details = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}
    return ApiError("INVALID_ARGUMENT", description, [details])


def not_found(name: str) -> ApiError:
    """NOT_FOUND in the service's words."""
    details = {"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": name}
    return ApiError("NOT_FOUND", f"Resource '{name}' was not found", [details])


def already_exists(name: str) -> ApiError:
    """ALREADY_EXISTS in the service's words."""
    details = {"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": name}
    return ApiError("ALREADY_EXISTS", f"Resource '{name}' already exists", [details])


def failed_precondition(subject: str, description: str) -> ApiError:
    """FAILED_PRECONDITION with a google.rpc.PreconditionFailure."""
    violation = {"type": "STATE", "subject": subject, "description": description}
    details = {"@type": "type.googleapis.com/google.rpc.PreconditionFailure", "violations": [violation]}
    return ApiError("FAILED_PRECONDITION", description, [details])


def quota_exceeded(subject: str, description: str) -> ApiError:
    """RESOURCE_EXHAUSTED with a google.rpc.QuotaFailure."""
    violation = {"subject": subject, "description": description}
    details = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}
    return ApiError("RESOURCE_EXHAUSTED", description, [details])
