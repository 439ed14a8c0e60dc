"""What a forked child, as torch's DataLoader makes them, leaves to its parent: sockets, and what needs its threads.

Others hear of the parent's end at once only where nobody has copies of its sockets.
"""

import os
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

from hulk_runtime.errors import PeerLostError

T = TypeVar("T")

_here: Final[weakref.WeakKeyDictionary[Any, Callable[[Any], object]]] = weakref.WeakKeyDictionary()


def in_child(of: T, forsake: Callable[[T], object]) -> None:
    """Have each forked child do that with its copy, as long as there is any; locks may be held there for ever."""
    _here[of] = forsake


def forsaken() -> PeerLostError:
    """What sums in a child end with."""
    return PeerLostError("the group is of the process that this one was forked from")


def _forsake_all() -> None:
    for of, forsake in list(_here.items()):
        forsake(of)


os.register_at_fork(after_in_child=_forsake_all)
