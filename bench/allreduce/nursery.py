"""Forks one process per node, each inside its node's network namespace: torch is imported once, not by every rank.

`python -m bench.allreduce.nursery SCRIPT [ARGS]`, with RANKS in the environment: JSON rows [namespace, environment].
Rank 0 has this process's standard streams; the others read nothing and write to standard error. All of them are killed
with this process, and it ends with the first rank that fails or when all have ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys
import traceback

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Run the script on every rank; the exit code of the first that fails, else 0."""
    rows = json.loads(os.environ.pop("RANKS"))
    import torch.distributed  # noqa: F401 - what takes long is done once, before the ranks exist

    ranks = {_fork(netns, env, is_first=rank == 0): rank for rank, (netns, env) in enumerate(rows)}
    while ranks:
        pid, status = os.wait()
        rank, code = ranks.pop(pid), os.waitstatus_to_exitcode(status)
        if code:
            print(f"rank {rank} ended with {code}", file=sys.stderr, flush=True)
            return 1
    return 0


def _fork(netns: str, env: dict[str, str], *, is_first: bool) -> int:
    """The pid of a new rank."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _become(netns, env, parent, is_first)
        script, *arguments = sys.argv[1:]
        sys.argv = [script, *arguments]
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        _leave(end.code if isinstance(end.code, int) else int(end.code is not None))
    except BaseException:  # noqa: BLE001 - whatever it is, this process must not go on as a second nursery
        traceback.print_exc()
        _leave(1)
    _leave(0)
    raise AssertionError("left")


def _become(netns: str, env: dict[str, str], parent: int, is_first: bool) -> None:
    """This process is a rank from now on: in its namespace, with its environment, killed with the nursery."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        _leave(1)
    with open(netns) as namespace:
        if _libc.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {netns}")
    os.environ.update(env)
    if not is_first:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
