"""What a rank does with the other ranks of its region: reduce each vector to pieces, and share what came of them.

Both are torch's all-to-all, and the sum is made here, in float32 and in the order of ranks, so that its bits are the
same run after run. Torch wants its collectives begun in the same order on all ranks; so reductions have a thread and a
process group of their own, and so have results, and each keeps to the order of all-reduces. Neither waits for the other
direction, so a reduction goes on while earlier pieces are under way between regions.
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import torch

from hulk_runtime import background
from hulk_runtime.collective.loss_timeouts import LossTimeouts
from hulk_runtime.collective.planned.roles import pieces
from hulk_runtime.collective.reduction.handle import Work
from hulk_runtime.collective.reduction.region_backend import Inside, to_all
from hulk_runtime.collective.reduction.vector import Values

MIN_BYTES: Final = 64 << 10
"""Smaller vectors stay on the engine: they are a matter of round trips, not of bytes."""
SLICE: Final = 1 << 15
"""So many values are added at a time: they stay in the cache, and torch starts no threads of its own."""

Then = Callable[[Callable[[], None]], None]


class Region:
    """What a rank does with its region in one epoch. `broken` is told why torch failed and nobody was lost by then."""

    def __init__(self, inside: Inside, epoch: int, bound_s: float, broken: Callable[[str], None]) -> None:
        self._inside, self._groups = inside, inside.groups[epoch]
        self._bounds, self._broken = LossTimeouts(bound_s), broken
        self._stream = torch.cuda.Stream(inside.device) if inside.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._reducing, self._sharing = _Line("hulk-reduce", self._broke), _Line("hulk-share", self._broke)
        self._num_ordered = self._num_shared = 0
        self._summed: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    @staticmethod
    def serves(num_bytes: int) -> bool:
        """Whether a vector is worth it."""
        return num_bytes >= MIN_BYTES

    def reduce(self, values: Values, source: torch.Tensor) -> Work:
        """Begin to sum the region's values of this rank's piece; `source` has its own, on the device or in place."""
        reduced = Work(lambda _: None, 0.0)
        final = torch.cuda.current_stream(source.device).record_event() if self._stream is not None else None
        self._reducing.put(lambda: self._reduce(values, source, final, reduced))
        return reduced

    def share(self, values: Values) -> Then:
        """What the engine calls when the piece's sum is there, with what it wants to be told; called in their order."""
        number, self._num_ordered = self._num_ordered, self._num_ordered + 1
        return partial(self._pass_on, number, values)

    def close(self) -> None:
        """Touch nobody's vectors from now on. A thread that waits for a lost rank in vain is left alone."""
        with self._lock:
            self._closed.set()
        self._reducing.put(None)
        self._sharing.put(None)
        if self._stream is not None:  # a device would wait for the lost rank too, and with it whoever waits for it
            with contextlib.suppress(RuntimeError):
                self._groups.sums.abort()

    def _pass_on(self, number: int, values: Values, tell: Callable[[], None]) -> None:
        """Sums come in any order, and are shared in theirs."""
        self._summed[number] = lambda: self._share(values.tensor, tell)
        while self._num_shared in self._summed:
            self._sharing.put(self._summed.pop(self._num_shared))
            self._num_shared += 1

    def _reduce(self, values: Values, source: torch.Tensor, final: "torch.cuda.Event | None", reduced: Work) -> None:
        cuts = pieces(self._inside.num_ranks, len(source))
        start, stop = cuts[self._inside.place]
        with torch.cuda.stream(self._stream) if self._stream is not None else contextlib.nullcontext():
            if final is not None:
                final.wait(self._stream)
            rows_KM = self._reducing.scratch(source, len(cuts) * (stop - start)).view(len(cuts), -1)
            to_all(self._groups.sums, rows_KM.view(-1), source, [stop - start] * len(cuts), [b - a for a, b in cuts])
            total_M = _to_host(_total(rows_KM))
        values.take_sums(start, total_M)
        reduced.end()

    def _share(self, vector_N: torch.Tensor, tell: Callable[[], None]) -> None:
        cuts = pieces(self._inside.num_ranks, len(vector_N))
        start, stop = cuts[self._inside.place]
        num_copied, length = len(cuts) * (stop - start), len(vector_N)
        scratch = self._sharing.scratch(vector_N, num_copied + length)
        copies, all_N = scratch[:num_copied], scratch[num_copied:]
        copies.view(len(cuts), -1).copy_(vector_N[start:stop])
        to_all(self._groups.results, all_N, copies, [b - a for a, b in cuts], [stop - start] * len(cuts))
        with self._lock:
            if self._closed.is_set():
                return
            vector_N[:start].copy_(all_N[:start])
            vector_N[stop:].copy_(all_N[stop:])
        tell()

    def _broke(self, name: str, error: Exception) -> None:
        """The engine names the lost rank, soon; if it finds none, this one is to blame."""
        if not self._closed.wait(self._bounds.decided_s):
            background.count(name, error, "and the group ends")
            self._broken(f"torch broke inside its region: {str(error).partition(chr(10))[0]}")


class _Line:
    """A thread that does one thing after the other, until one fails."""

    def __init__(self, name: str, broke: Callable[[str, Exception], None]) -> None:
        self._name, self._broke = name, broke
        self._spare = torch.empty(0, dtype=torch.float32, device="cpu")
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        background.Thread(name, self._run).start()

    def put(self, task: Callable[[], None] | None) -> None:
        """Do this next; None is the end."""
        self._tasks.put(task)

    def scratch(self, like: torch.Tensor, num_values: int) -> torch.Tensor:
        """Memory for the task under way: fresh pages for each would cost as much as the sums."""
        if self._spare.dtype != like.dtype or len(self._spare) < num_values:
            self._spare = like.new_empty(num_values)
        return self._spare[:num_values]

    def _run(self) -> None:
        try:
            while (task := self._tasks.get()) is not None:
                task()
        except Exception as error:  # noqa: BLE001  # torch's mostly, and no defect where a rank was lost
            self._broke(self._name, error)


def _total(rows_KM: torch.Tensor) -> torch.Tensor:
    """Rows added in their order, in float32."""
    num_values = rows_KM.shape[1]
    step = SLICE if rows_KM.device.type == "cpu" else max(1, num_values)
    total_M = torch.empty(num_values, dtype=torch.float32, device=rows_KM.device)
    for start in range(0, num_values, step):
        part, rows = total_M[start : start + step], rows_KM[:, start : start + step]
        part.copy_(rows[0])
        for row in rows[1:]:
            part.add_(row)
    return total_M


def _to_host(values_M: torch.Tensor) -> torch.Tensor:
    """Values of a device in pinned memory, when they are there."""
    if values_M.device.type == "cpu":
        return values_M
    host_M = torch.empty(len(values_M), dtype=torch.float32, device="cpu", pin_memory=True)
    host_M.copy_(values_M, non_blocking=True)
    torch.cuda.current_stream(values_M.device).synchronize()
    return host_M
