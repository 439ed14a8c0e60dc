"""A message over several connections at once: TCP opens the window of each, so that it is sooner there.

A connection that was silent begins with ten packets and doubles them in every round trip. Activations of 98 KB take
three round trips over one such connection, of 0.2 s each between continents, and one over eight: nine packets each, and
one in which gloo says that they come.

gloo has as many connections between two ranks as it is told of interfaces (`entry` names one several times); a
message's tag, modulo their number, says which one it takes. One is left for short messages: what ranks tell each other
at the end of a step would fill the window of which the next step's first activation needs all.
"""

import math
import os
from typing import Final

import torch
import torch.distributed as dist

from hulk_runtime.names import ENV_GLOO_INTERFACE

AT_ONCE_BYTES: Final = 10_000
"""What a connection sends at once after silence, over ways with small packets too. Smaller pieces gain nothing."""

MOST_PIECES: Final = 8
"""Of a message, whatever its size."""


def num_connections() -> int:
    """Between two ranks."""
    return os.environ.get(ENV_GLOO_INTERFACE, "").count(",") + 1 if dist.get_backend() == "gloo" else 1


def stripes(message: torch.Tensor, tag: int, num: int) -> list[tuple[torch.Tensor, int]]:
    """A contiguous message in as many pieces as are sent at once, each with its tag; `num` connections.

    `tag` is of this message alone.

    >>> [(len(piece), tag) for piece, tag in stripes(torch.zeros(5_000), tag=3, num=4)]
    [(2500, 12), (2500, 13)]
    """
    flat = message.view(-1)
    pieces = flat.chunk(max(1, min(num, MOST_PIECES, math.ceil(flat.nbytes / AT_ONCE_BYTES))))
    return [(piece, tag * num + number) for number, piece in enumerate(pieces)]


def beside(message: torch.Tensor, tag: int, num: int) -> list[tuple[torch.Tensor, int]]:
    """As `stripes`, a short message whole, on the last connection, which pieces take only where it is one of the first.

    >>> [tag for _, tag in beside(torch.zeros(3), tag=3, num=9)]
    [35]
    """
    return [(message, tag * num + num - 1)]
