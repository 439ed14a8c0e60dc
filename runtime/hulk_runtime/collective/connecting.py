"""A group's all-reduces from the first one on: what is begun before the group is connected waits for it, in its order.

Whoever begins a sum goes on at once, so groups may begin their first sums in another order on each rank.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future

import torch

from hulk_runtime import background
from hulk_runtime.collective.forks import forsaken, in_child
from hulk_runtime.collective.group import Collective
from hulk_runtime.collective.staging import AllReduce, Told, Waiting
from hulk_runtime.errors import HulkError


class Connecting:
    """As AllReduce, which `connect` makes on a thread of its own. `failed` is called there with what it raised."""

    def __init__(self, connect: Callable[[], AllReduce], failed: Callable[[HulkError], object]) -> None:
        self._connect, self._failed = background.work_of("hulk-first-sums", connect), failed
        self._between: AllReduce | None = None
        self._error: HulkError | None = None
        self._ended = threading.Event()
        self._early: list[Early] = []
        self._lock = threading.Lock()
        in_child(self, Connecting._forsake)
        background.Thread("hulk-first-sums", self._run).start()

    @property
    def collective(self) -> Collective:
        """Once it is connected. Raises as `connect`."""
        self._ended.wait()
        return self._connected().collective

    def all_reduce(self, values: torch.Tensor, num_exact: int = 0, name: Hashable = None) -> Waiting | Early:
        """As of AllReduce. Raises what connecting has raised."""
        with self._lock:
            if not self._ended.is_set():
                self._early.append(Early(values, num_exact, name))
                return self._early[-1]
        return self._connected().all_reduce(values, num_exact, name)

    def _connected(self) -> AllReduce:
        if self._error is not None:
            raise self._error
        assert self._between is not None
        return self._between

    def _run(self) -> None:
        try:
            between = self._connect()
        except HulkError as error:  # which whoever waits raises
            with self._lock:
                self._error = error
                self._ended.set()
            for early in self._early:
                early.begun.set_exception(error)
            self._failed(error)
            return
        with self._lock:
            for early in self._early:
                early.begin(between)
            self._early.clear()
            self._between = between
            self._ended.set()

    def _forsake(self) -> None:
        """In a forked child, which has no such thread: what is not connected yet never will be."""
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._ended.set()
        if self._between is None:
            self._error = self._error or forsaken()
            for early in self._early:
                early.begun = Future()
                early.begun.set_exception(self._error)


class Early:
    """An all-reduce of a group that is not connected yet."""

    def __init__(self, values: torch.Tensor, num_exact: int, name: Hashable) -> None:
        self.begun: Future[Waiting] = Future()
        self._values, self._num_exact, self._name = values, num_exact, name
        self._computed = torch.cuda.current_stream(values.device).record_event() if values.is_cuda else None

    def begin(self, between: AllReduce) -> None:
        """Behind what its stream computed when it was asked for."""
        try:
            with self._behind():
                waiting = between.all_reduce(self._values, self._num_exact, self._name)
        except Exception as error:  # noqa: BLE001  # whoever waits raises it
            self.begun.set_exception(error)
        else:
            self.begun.set_result(waiting)

    @contextlib.contextmanager
    def _behind(self) -> Iterator[None]:
        if self._computed is None:
            yield
            return
        stream = torch.cuda.Stream(self._values.device)  # type: ignore[no-untyped-call]
        stream.wait_event(self._computed)
        with torch.cuda.stream(stream):
            yield

    def wait(self) -> None:
        """Until the sum is in the tensor. Raises PeerLostError, and as `connect`."""
        self.begun.result().wait()

    def on_end(self, callback: Told) -> None:
        """Call back, from a thread, when it has ended, well or not."""

        def begun(future: Future[Waiting]) -> None:
            error = future.exception()
            if error is None:
                future.result().on_end(callback)
            else:
                assert isinstance(error, Exception)
                callback(error)

        self.begun.add_done_callback(begun)
