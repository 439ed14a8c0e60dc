"""All-reduces of tensors wherever they are: on a GPU they go through pinned host memory, beside what the GPU computes.

A bucket is copied to the host on a stream of its own as soon as the gradients in it are final, summed there, and
copied back; the stream that waits for the result waits on the GPU, not in Python. Where torch sums inside the region
(see inside.py) that happens on the GPU, and only this rank's piece of the bucket is copied to the host.
"""

import contextlib
import itertools
import logging
import queue
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Hashable

import torch

from hulk_runtime import background
from hulk_runtime.collective.group import Collective
from hulk_runtime.collective.reduction.handle import Both, Work
from hulk_runtime.collective.wire.membership import Membership
from hulk_runtime.errors import MembershipChangedError, PeerLostError
from hulk_runtime.job.environment import DEFAULT_SILENCE_S

log = logging.getLogger(__name__)

PIECE_VALUES = 4 << 20
PIECES_AHEAD = 4
"""Of a vector that is broadcast: enough to fill links, little enough for the host's memory."""

Told = Callable[[Exception | None], None]


class AllReduce:
    """A collective for the tensors of one device. `patience_s`: how long anybody waits for ranks that take no part."""

    def __init__(self, collective: Collective, device: torch.device, patience_s: float = DEFAULT_SILENCE_S) -> None:
        self.collective = collective
        self.patience_s = patience_s
        self._stage = Stage(collective, device) if device.type != "cpu" else None
        self._listeners = Listeners()

    def all_reduce(self, values: torch.Tensor, num_exact: int = 0, name: Hashable = None) -> "Waiting":
        """Begin to sum `values` over all ranks, in place; the last `num_exact` are compressed nowhere.

        `name`: as of `Collective.all_reduce`.
        """
        if self._stage is not None:
            return Waiting(self, self._stage.all_reduce(values, num_exact, name))
        return Waiting(self, self.collective.all_reduce(values, num_exact, name=name))

    @property
    def is_encrypted(self) -> bool:
        """Whether nobody between regions can read what is summed here."""
        return self.collective.plan.encryption != "none"

    def broadcast(self, values: torch.Tensor) -> None:
        """Overwrite float32 values, wherever they are, with rank 0's. Raises PeerLostError."""
        under_way: deque[tuple[Work, torch.Tensor, torch.Tensor]] = deque()
        pieces = iter(torch.split(values, PIECE_VALUES))
        while True:
            for piece in itertools.islice(pieces, PIECES_AHEAD - len(under_way)):
                host = piece.cpu()
                under_way.append((self.collective.broadcast(host), host, piece))
            if not under_way:
                return
            work, host, piece = under_way.popleft()
            work.wait(self.patience_s)
            piece.copy_(host)

    def tell(self, waiting: "Waiting", callback: Told) -> None:
        """Call back when it has ended, in the order of these calls; whoever listens has the patience of who waits."""
        self._listeners.add(waiting.wait, callback)

    def adopt(self) -> Membership:
        """Go on with the ranks that are left, after MembershipChangedError."""
        return self.collective.adopt()

    def part(self) -> None:
        """Wait until every rank has come so far, or was lost. Raises MembershipChangedError where others go on."""
        try:
            self.collective.all_reduce(torch.zeros(1, dtype=torch.float32, device="cpu")).wait(self.patience_s)
        except MembershipChangedError:
            raise
        except PeerLostError as error:
            log.info("left without the others: %s", error)


class Waiting:
    """An all-reduce under way, awaited with its owner's patience."""

    def __init__(self, owner: AllReduce, work: "Work | Both | StagedWork") -> None:
        self._owner, self._work = owner, work

    def wait(self) -> None:
        """Until the sum is in the tensor. Raises PeerLostError."""
        self._work.wait(self._owner.patience_s)

    def on_end(self, callback: Told) -> None:
        """Call back, from a thread, when it has ended, well or not."""
        self._owner.tell(self, callback)


class Listeners:
    """A thread that waits for one thing after the other, for those who want to hear of its end but not to wait.

    Where one of them cannot be told, somebody may wait for ever: the rank ends.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[Callable[[], None], Told]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, wait: Callable[[], None], told: Told) -> None:
        """Tell when `wait` has returned, or raised."""
        self._waiting.put((wait, told))
        with self._lock:
            if self._thread is None:
                self._thread = background.Thread("hulk-listen", self._run)
                self._thread.start()

    def _run(self) -> None:
        while True:
            wait, told = self._waiting.get()
            told(_outcome(wait))


def _outcome(wait: Callable[[], None]) -> Exception | None:
    try:
        wait()
    except Exception as error:  # noqa: BLE001  # whatever it is, the listener gets it
        return error
    return None


class StagedWork:
    """An all-reduce of a tensor that is not in the host's memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begun = threading.Event()
        self._work: Work | Both | None = None
        self._error: Exception | None = None
        self._copied: torch.cuda.Event | None = None
        self._told = threading.Event()

    def begun(self, work: Work | Both, copy_back: Callable[[], "torch.cuda.Event | None"]) -> None:
        """The host's copy is being summed; when it is, it is copied back before anybody is told."""

        def ended(error: PeerLostError | None) -> None:
            try:
                if error is None:
                    self._copied = copy_back()
            except Exception as broken:  # noqa: BLE001  # the engine goes on, and whoever waits hears of it
                self._error = broken
            finally:
                self._told.set()

        work.on_end(ended)
        self._work = work
        self._begun.set()

    def broke(self, error: Exception) -> None:
        """It could not be begun."""
        self._error = error
        self._begun.set()

    def wait(self, timeout_s: float) -> None:
        """The current stream goes on when the sum is in the tensor.

        Raises PeerLostError, and what went wrong on the way to the host or back.
        """
        self._await(self._begun, timeout_s, "copied to the host")
        if self._work is not None:
            self._work.wait(timeout_s)
            self._await(self._told, timeout_s, "copied back")  # those who wait hear of the end first
        if self._error is not None:
            raise self._error
        if self._copied is not None:  # a thread's own current device may be another one
            self._copied.wait(torch.cuda.current_stream(self._device))

    def _await(self, event: threading.Event, timeout_s: float, what: str) -> None:
        if not event.wait(timeout_s):
            raise PeerLostError(f"what is to be summed was not {what} within {timeout_s:g} s: {self._device} waits")


class Stage:
    """Host copies of device tensors, and the thread that hands them on in their order."""

    def __init__(self, collective: Collective, device: torch.device) -> None:
        self._collective = collective
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._free: dict[tuple[int, torch.dtype], list[tuple[torch.Tensor, torch.cuda.Event | None]]]
        self._free = defaultdict(list)  # with what says that it was copied back
        self._waiting: queue.SimpleQueue[tuple[Callable[[], None], StagedWork]] = queue.SimpleQueue()
        background.Thread("hulk-stage", self._hand_on).start()

    def all_reduce(self, values: torch.Tensor, num_exact: int, name: Hashable = None) -> StagedWork:
        """Copy out behind what the current stream still computes, sum, copy back."""
        work, host = StagedWork(values.device), self._host(values)
        source = values if self._collective.is_split else None
        copied = None
        if source is None:
            copied = self._copy(values, host)
        else:
            self._follow(values.device)

        def copy_back() -> "torch.cuda.Event | None":
            done = self._copy(host, values, after_current=False)
            self._free[host.numel(), host.dtype].append((host, done))
            return done

        def hand_on() -> None:
            if copied is not None:
                copied.synchronize()
            with torch.cuda.stream(self._stream) if self._stream is not None else contextlib.nullcontext():
                work.begun(self._collective.all_reduce(host, num_exact, source, name), copy_back)

        self._waiting.put((hand_on, work))
        return work

    def _hand_on(self) -> None:
        while True:
            hand_on, work = self._waiting.get()
            try:
                hand_on()
            except Exception as error:  # noqa: BLE001  # whoever waits for it raises it
                work.broke(error)

    def _host(self, values: torch.Tensor) -> torch.Tensor:
        free = self._free[values.numel(), values.dtype]
        if not free:
            return torch.empty(values.numel(), dtype=values.dtype, pin_memory=self._stream is not None)
        host, done = free.pop()
        if done is not None:
            done.synchronize()
        return host

    def _copy(
        self, source: torch.Tensor, target: torch.Tensor, *, after_current: bool = True
    ) -> "torch.cuda.Event | None":
        """On the stage's own stream; the event that says when it is done."""
        if self._stream is None:
            target.copy_(source)
            return None
        if after_current:
            self._follow(source.device)
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
            done: torch.cuda.Event = self._stream.record_event()
            return done

    def _follow(self, device: torch.device) -> None:
        """What comes now on the stage's stream comes after what the current one still computes."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(device))
