"""The API server's clock, read off the dates of its answers: appointments and times of figures are by it.

So two agents meet, and the operator knows how old a figure is, however wrong the clocks of their nodes are. Round trips
are differences of the node's own clock. The operator has the same rule in `hulk_operator.cluster.server_clock`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final

TOLERANCE_S: Final = 2.0  # two clocks that differ by less are not told apart by whole seconds


@dataclass(slots=True)
class ServerClock:
    """The server's time (Unix); this machine's own until the server has said anything else.

    >>> clock = ServerClock(lambda: 0.0, wall=lambda: 0.0)
    >>> clock.heard("Thu, 01 Jan 1970 01:00:00 GMT", asked_at_s=0.0)
    >>> clock.now_s()
    3600.5
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    _ahead_s: float = field(init=False)  # of `monotonic`

    def __post_init__(self) -> None:
        self._ahead_s = self.wall() - self.monotonic()

    def now_s(self) -> float:
        """The server's time."""
        return self.monotonic() + self._ahead_s

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
