"""What every API type is made of: one frozen base model and the bounded values that all kinds share.

Lengths and counts are bounded everywhere: the bounds keep CEL rules inside the API server's cost budget and the
status of the largest job below 64 KiB.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from hulk_operator import names

MAX_MESSAGE = 1024
MAX_COUNT = 2**53  # the largest integer that every JSON reader keeps exact


class Resource(BaseModel):
    """A part of an API object: frozen, camelCase outside, snake_case inside.

    Unknown fields are ignored, because a stored object may come from a newer version of the CRD; `strict.parse`
    refuses them in files, where they are typing errors.
    """

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, frozen=True)

    def wire(self) -> dict[str, Any]:
        """As Kubernetes sees it: camelCase, absent fields left out, times as text."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Change(StrEnum):
    """When a field of a HulkJob may change; the generator turns it into a CEL rule and a row of the reference."""

    NEVER = "never"
    SUSPENDED = "while suspended"
    GROWS = "any time, only upwards"
    ANY_TIME = "any time"


CHANGE_KEY = "x-hulk-change"  # in json_schema_extra; the generator consumes it


def change(when: Change) -> dict[str, Any]:
    """The `json_schema_extra` that states when a field may change."""
    return {CHANGE_KEY: when.value}


NEVER, SUSPENDED, GROWS, ANY_TIME = (change(when) for when in Change)


def rule(expression: str, message: str, field_path: str = "", reason: str = "FieldValueInvalid") -> dict[str, str]:
    """One CEL validation rule of a CRD; `message` is the sentence that the user reads."""
    path = {"fieldPath": field_path} if field_path else {}
    return {"rule": expression, "message": message, "reason": reason, **path}


def list_map(*keys: str) -> dict[str, Any]:
    """The `json_schema_extra` of a list whose entries are told apart by `keys`."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


LIST_SET: dict[str, Any] = {"x-kubernetes-list-type": "set"}


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError(f"time {value.isoformat()} has no time zone")
    return value.astimezone(UTC)


def format_time(value: datetime) -> str:
    """RFC 3339 in UTC, as Kubernetes writes it.

    >>> format_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02T03:04:05Z'
    """
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


Time = Annotated[
    datetime,
    AfterValidator(_aware),
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Positive = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Seconds = Annotated[int, Field(ge=1, le=10 * 365 * 86_400)]
Attempt = Annotated[int, Field(ge=0, le=names.MAX_ATTEMPT)]
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
NodeName = ObjectName
NodePattern = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9][-a-z0-9.]*\*?$")]
Namespace = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
LabelValue = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")]
Region = LabelValue
Product = LabelValue
Place = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")]
ResourceName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    ),
]
ConfigMapKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
Digest = Annotated[str, Field(max_length=128)]
DECIMAL_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?$"
Decimal = Annotated[str, Field(max_length=32, pattern=DECIMAL_PATTERN)]
Number = Annotated[str, Field(max_length=32, pattern=r"^(-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?|nan|-?inf)$")]
Series = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")]
Message = Annotated[str, Field(max_length=MAX_MESSAGE)]
Reason = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*$")]
