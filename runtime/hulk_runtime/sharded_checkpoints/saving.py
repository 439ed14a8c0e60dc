"""How long a script waits for a save under way: not for a lost rank, for which the save's own group waits for hours."""

import time
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Final

from hulk_runtime.collective import planned_sums
from hulk_runtime.errors import CheckpointError

LOOK_S: Final = 0.5


def await_saved(step: int, done: Future[None], timeout_s: float | None, patience_s: float) -> None:
    """Raises what the save has raised, and CheckpointError after `timeout_s`; None: however long it takes.

    Raises PeerLostError where the planned sums have lost a rank `patience_s` ago: until then, what the other ranks
    write may become complete without it.
    """
    begun_s, lost = time.monotonic(), None
    while not wait_for([done], LOOK_S).done:
        now_s = time.monotonic()
        if lost is None and (error := planned_sums.loss()) is not None:
            lost = error, now_s
        if timeout_s is not None and now_s - begun_s > timeout_s:
            raise CheckpointError(f"the checkpoint of step {step} is not written after {timeout_s:g} s")
        if lost is not None and now_s - lost[1] > patience_s:
            raise lost[0]
    done.result()
