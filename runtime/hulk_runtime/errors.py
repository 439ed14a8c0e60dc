"""What can go wrong inside a pod, and the exit code that tells the operator which.

    HulkError
    ├── PlanError           64  the plan cannot be read by this runtime; never retried
    ├── ConfigurationError  65  the user's job asks for something that cannot be
    ├── DataError           66  the training data cannot be read just now
    ├── PeerLostError       69  another rank went away; look at the other pods for the cause
    │   ├── RankLostError   69  the same, and all ranks agree which one it was
    │   └── MembershipChangedError  the others go on without it (caught by the training loop)
    ├── BackgroundError     70  a thread beside the training broke: a defect; another attempt may do better
    ├── PortError           71  the metrics port is taken
    ├── CheckpointError     74  the checkpoint store failed, or what it holds is damaged
    └── FencedError         75  a newer attempt of the job has begun

A run that SIGTERM ended in good order exits with `EXIT_STOPPED` (143), which is not an error.
"""

import os
import sys
from collections.abc import Iterable
from typing import Final

from hulk_runtime import names

EXIT_DONE: Final = 0
EXIT_STOPPED: Final = 143
TERMINATION_LOG_BYTES: Final = 4096


class HulkError(Exception):
    """Anything this package raises on purpose; the message is a sentence with the numbers in it."""

    exit_code = 1


class PlanError(HulkError):
    """The plan is missing, damaged or of a wire version that this runtime does not read."""

    exit_code = 64


class ConfigurationError(HulkError):
    """The job's own settings cannot work."""

    exit_code = 65


class DataError(HulkError):
    """The training data cannot be read; another attempt may read them."""

    exit_code = 66


class PeerLostError(HulkError):
    """Communication with another rank broke or timed out."""

    exit_code = 69


class RankLostError(PeerLostError):
    """One rank went away, and every rank of the group says so in the same words."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(f"rank {rank} was lost: {reason}")
        self.rank, self.reason = rank, reason


class MembershipChangedError(PeerLostError):
    """Regions were cut off and the others go on: what was under way is to be begun again, with fewer ranks."""


class BackgroundError(HulkError):
    """A thread or task that its process cannot do without broke."""

    exit_code = 70


class PortError(HulkError):
    """A port of this pod is taken, for example by what a killed rank left behind for some seconds."""

    exit_code = 71


class CheckpointError(HulkError):
    """The checkpoint store cannot be reached, or a checkpoint in it is damaged."""

    exit_code = 74


class FencedError(HulkError):
    """A newer attempt has begun, so this one may commit nothing any more."""

    exit_code = 75


def clear_termination_message(termination_log: str = names.TERMINATION_LOG) -> None:
    """Take back what an earlier attempt in the same pod left as its termination message."""
    if os.path.exists(termination_log):
        os.truncate(termination_log, 0)


def report(error: HulkError, termination_log: str = names.TERMINATION_LOG) -> int:
    """Print one line, leave it for Kubernetes as the termination message, return the exit code."""
    line = f"{type(error).__name__}: {error}"
    print(line, file=sys.stderr, flush=True)
    write_termination_message(line, termination_log)
    return error.exit_code


def write_termination_message(line: str, termination_log: str = names.TERMINATION_LOG) -> None:
    """Leave a line for Kubernetes as the container's termination message; outside a pod nothing."""
    if os.path.exists(termination_log):
        with open(termination_log, "wb") as log:
            log.write(line.encode()[-TERMINATION_LOG_BYTES:])


def add_termination_message(line: str, termination_log: str = names.TERMINATION_LOG) -> None:
    """Leave a line as the termination message where the program left none."""
    if os.path.exists(termination_log) and not os.path.getsize(termination_log):
        write_termination_message(line, termination_log)


def termination_record(
    attempt: int,
    step: int,
    loss: float | None,
    checkpoint_bytes: int,
    epoch: int = 0,
    without: Iterable[str] = (),
    where: str = "",
) -> str:
    """The last words of a run that ended in good order: the operator's polls end before its last step.

    A checkpoint, where one was written (its bytes are not 0), holds the same step. `where` is its URL, if it is not
    the spec's, and `without` are the regions that were left out by membership epoch `epoch`.

    >>> termination_record(2, 40, 2.8791234, 1000)
    'ended attempt=2 step=40 loss=2.87912 checkpoint_bytes=1000'
    >>> termination_record(2, 40, 2.8791234, 1000, 1, ["ap"])
    'ended attempt=2 step=40 loss=2.87912 checkpoint_bytes=1000 epoch=1 without=ap'
    >>> termination_record(2, 40, None, 1000, where="s3://eu/u")
    'ended attempt=2 step=40 checkpoint_bytes=1000 where=s3://eu/u'
    """
    known_loss = "" if loss is None else f" loss={loss:.6g}"
    place = f" where={where}" if where else ""
    words = f"ended attempt={attempt} step={step}{known_loss} checkpoint_bytes={checkpoint_bytes}{place}"
    return f"{words} epoch={epoch} without={','.join(without)}" if epoch else words
