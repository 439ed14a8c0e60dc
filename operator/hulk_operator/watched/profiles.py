"""NodeProfiles as they are told. One that another version of the schema let through is known by its name."""

from dataclasses import dataclass

from pydantic import ValidationError

from hulk_operator.api import NodeProfile
from hulk_operator.cluster import Object

_MAX_WORDS = 300


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a profile cannot be read."""

    message: str


def profile(item: Object) -> NodeProfile | Unreadable:
    """The profile, or what is wrong with it."""
    try:
        return NodeProfile.model_validate(item)
    except ValidationError as error:
        return Unreadable(str(error)[:_MAX_WORDS])


def is_news(was: NodeProfile | Unreadable | None, now: NodeProfile | Unreadable | None) -> bool:
    """Whether a refusal may hang on what changed: which links are known, and their figures within a factor of two."""
    return _facts(was) != _facts(now)


def _facts(found: NodeProfile | Unreadable | None) -> object:
    if not isinstance(found, NodeProfile):
        return None
    links = {
        (link.target, link.under_load): (
            (link.rtt_p50_microseconds or 0).bit_length(),
            (link.bandwidth_bytes_per_second or 0).bit_length(),
        )
        for link in found.status.links
    }
    return links, len(found.status.accelerators)
