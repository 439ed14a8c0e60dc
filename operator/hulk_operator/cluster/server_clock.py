"""The API server's clock, read off the dates of its answers: the one clock that times in objects are compared with.

Every answer over HTTP says when it was made, to the second. Times that the server, the agents and earlier operators
wrote are by this clock too, so that it does not matter how wrong the clock of the node is on which the operator runs.
API servers that stand in for each other must agree, as their certificates demand anyway.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

TOLERANCE_S: Final = 2.0  # two clocks that differ by less are not told apart by whole seconds


@dataclass(slots=True)
class ServerClock:
    """The server's time; this machine's own until the server has said anything else.

    >>> clock = ServerClock(lambda: 0.0, wall=lambda: 0.0)
    >>> clock.heard("Thu, 01 Jan 1970 01:00:00 GMT", asked_at_s=0.0)
    >>> clock.now()
    datetime.datetime(1970, 1, 1, 1, 0, 0, 500000, tzinfo=datetime.timezone.utc)
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    _ahead_s: float = field(init=False)  # of `monotonic`

    def __post_init__(self) -> None:
        self._ahead_s = self.wall() - self.monotonic()

    def now(self) -> datetime:
        """The server's time."""
        return datetime.fromtimestamp(self.monotonic() + self._ahead_s, UTC)

    def heard(self, date: str | None, asked_at_s: float) -> None:
        """An answer with this Date has just come, to a request of `asked_at_s` (`monotonic`); None: it has no date."""
        if not date:
            return
        try:
            said_s = parsedate_to_datetime(date).timestamp()
        except ValueError:  # of a proxy, which may say anything
            return
        least_s, most_s = said_s - self.monotonic(), said_s + 1 - asked_at_s
        if not least_s - TOLERANCE_S <= self._ahead_s <= most_s + TOLERANCE_S:
            self._ahead_s = (least_s + most_s) / 2
