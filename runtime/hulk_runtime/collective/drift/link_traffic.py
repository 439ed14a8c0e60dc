"""What each link between regions has carried, summed up from what all ranks tell each other: the same on every rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hulk_runtime.collective.drift.link_estimates import Figures, Seen, Slot
from hulk_runtime.plan.flows import Pair


@dataclass(frozen=True, slots=True)
class Carried:
    """Bytes of chunks in all; the rest is of the last round that had it, 0 before.

    `last_s`: seconds from an all-reduce's begin to its last byte over this link, on the receiver where that came last.
    `bytes_per_s`: while more waited to be sent.
    """

    num_bytes: float = 0.0
    last_s: float = 0.0
    bytes_per_s: float = 0.0


NOTHING: Final = Carried()


def carried(
    former: Mapping[Pair, Carried], told: Sequence[tuple[Slot, Figures]], found: Mapping[Pair, Seen]
) -> dict[Pair, Carried]:
    """What links have carried after a round. `told` is what ranks say of connections, `found` the rates among that."""
    num_bytes: dict[Pair, float] = {}
    last_s: dict[Pair, float] = {}
    for slot, of in told:
        num_bytes[slot.link] = num_bytes.get(slot.link, 0.0) + of.num_bytes
        last_s[slot.link] = max(last_s.get(slot.link, 0.0), of.last_s)
    return {link: _after(former.get(link, NOTHING), num_bytes[link], last_s[link], found.get(link)) for link in last_s}


def _after(former: Carried, num_bytes: float, last_s: float, found: Seen | None) -> Carried:
    rate = found.bytes_per_s if found else former.bytes_per_s
    return Carried(former.num_bytes + num_bytes, last_s or former.last_s, rate)
