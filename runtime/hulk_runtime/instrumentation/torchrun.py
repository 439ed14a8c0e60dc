"""torchrun leaves with a rank's own code where that says that a peer was lost, and not with 1.

The operator tells by it the pod whose rank failed from those that only lost it.
"""

import signal
import sys
from types import TracebackType
from typing import Any, Final

from hulk_runtime.errors import PeerLostError
from hulk_runtime.job.shutdown import exit_now

ENDED: Final = {-signal.SIGTERM, -signal.SIGKILL}
"""Of ranks that torchrun itself ends, once another one has failed."""


def leave_as_ranks_do(errors: Any) -> None:
    """`errors`: torch.distributed.elastic.multiprocessing.errors."""
    usual = sys.excepthook

    def said(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        usual(kind, error, trace)
        if isinstance(error, errors.ChildFailedError):
            own = {failure.exitcode for failure in error.failures.values()} - ENDED
            if own == {PeerLostError.exit_code}:
                exit_now(PeerLostError.exit_code)

    sys.excepthook = said
