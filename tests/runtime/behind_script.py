"""Hulk's example training, in which rank BEHIND never sees the sum numbered HELD, as all others do.

Rank LOST stands still after it, until it is killed.
"""

import os
import time

from hulk_runtime.examples import gpt
from hulk_runtime.training.data_parallel import FlatModel

RANK, HELD = os.environ["RANK"], int(os.environ["HELD"])
finish, num_finished = FlatModel.finish, 0


def counted(flat: FlatModel, tail) -> None:
    """As ever; BEHIND then waits for the next sum as if it were this one, and learns that LOST was lost."""
    global num_finished
    finish(flat, tail)
    num_finished += 1
    if num_finished == HELD:
        print(f"sum {HELD} is here", flush=True)
        if os.environ["LOST"] == RANK:
            time.sleep(600)
        if os.environ["BEHIND"] == RANK:
            finish(flat, tail)


FlatModel.finish = counted
gpt.main()
