"""Threads of a rank that break: each is started again or ends the rank or the group with a named error; and counted."""

import ast
import contextlib
import http.client
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import hulk_runtime
import pytest
import torch
from collective_ranks import (
    LINKS,
    PATIENCE_S,
    PLAN,
    SCOPE,
    SECRET,
    all_reduce,
    doors,
    group,
    together,
    vectors,
    wait_for,
)
from free_ports import free_port
from hulk_runtime import background
from hulk_runtime.collective.connecting import Connecting
from hulk_runtime.collective.drift import agreement
from hulk_runtime.collective.drift.agreement import ROUND
from hulk_runtime.collective.drift.flow_versions import following
from hulk_runtime.collective.drift.link_estimates import MIN_BYTES
from hulk_runtime.collective.group import Settings
from hulk_runtime.collective.reduction import region_reduction
from hulk_runtime.collective.reduction.compression import CODECS
from hulk_runtime.collective.reduction.handle import Both, Work
from hulk_runtime.collective.reduction.operation import Operation
from hulk_runtime.collective.wire import rendezvous
from hulk_runtime.collective.wire.handshake import Identity, greet
from hulk_runtime.collective.wire.rendezvous import Listener, Rendezvous
from hulk_runtime.diloco import sums
from hulk_runtime.errors import BackgroundError, PeerLostError, RankLostError
from hulk_runtime.job import step_server
from hulk_runtime.sharded_checkpoints.checkpointer import Checkpointer
from hulk_runtime.sharded_checkpoints.copy_writer import CopyWriter
from hulk_runtime.sharp.device_worker import DeviceWorker
from hulk_runtime.sharp.host_device import HostDevice
from hulk_runtime.sharp.run import Run
from hulk_runtime.training.metrics import process_registry
from hulk_runtime.training.progress_server import ProgressServer
from hulk_runtime.training.rank0_reporter import Rank0Reporter
from test_collective_region_backend import UNEVEN, split_group

QUICK = Settings(bound_s=2.0, connect_s=PATIENCE_S)
BEGIN = {"Thread", "_Line", "count", "work_of"}
"""What a thread, or work of one, is named in."""


class DefectError(Exception):
    """Of no kind that anybody expects."""


def broken(*_: object, **__: object) -> None:
    raise DefectError("a bug")


def once(function: Callable[..., object]) -> Callable[..., object]:
    """The function, but for its first call."""
    calls: list[object] = []

    def call(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            broken()
        return function(*arguments, **options)

    return call


def names() -> Iterator[str]:
    """The threads that the runtime begins, as its source names them."""
    for path in Path(hulk_runtime.__file__).parent.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            function = call.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if (called in BEGIN and call.args) or (called == "__init__" and call.args):
                named = call.args[0]
                first = named.values[0] if isinstance(named, ast.JoinedStr) else named
                if isinstance(first, ast.Constant) and str(first.value).startswith("hulk-"):
                    yield first.value


def engine_breaks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Operation, "arrived", once(Operation.arrived))
    with group(PLAN, QUICK) as ranks:
        for work in [rank.all_reduce(vector) for rank, vector in zip(ranks, vectors(3, 30_000), strict=True)]:
            with pytest.raises(RankLostError, match=r"its engine broke: DefectError\('a bug'\)"):
                work.wait(PATIENCE_S)


def drift_breaks(patch: pytest.MonkeyPatch) -> None:
    """On all ranks in the first round: in the second links are followed."""
    plan = replace(PLAN, links={pair: replace(figures, bytes_per_s=1e9) for pair, figures in LINKS.items()})
    num_calls: list[int] = []

    def sometimes(*arguments: object) -> object:
        num_calls.append(1)
        return following(*arguments) if len(num_calls) > 3 else broken()

    patch.setattr(agreement, "following", sometimes)
    with group(plan, QUICK) as ranks:
        for _ in range(2 * ROUND + 1):
            all_reduce(ranks, vectors(3, MIN_BYTES // 4))
        assert all(rates.carried.num_bytes for rank in ranks for rates in rank.beliefs().values())

    def short_of_memory(*_: object) -> object:
        raise MemoryError

    patch.setattr(agreement, "following", short_of_memory)
    with group(plan, QUICK) as ranks:
        works = [rank.all_reduce(torch.ones(MIN_BYTES)) for _ in range(ROUND + 1) for rank in ranks]
        with pytest.raises(RankLostError, match="its thread hulk-drift broke: MemoryError"):
            await_all(works)


def await_all(works: Sequence[Work | Both]) -> None:
    for work in works:
        work.wait(PATIENCE_S)


def region_thread_breaks(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def breaks(patch: pytest.MonkeyPatch) -> None:
        to_all = region_reduction.to_all

        def break_on_rank_4(*arguments: object) -> None:
            if threading.current_thread().name == name and arguments[0] in ends:
                broken()
            to_all(*arguments)  # type: ignore[arg-type]

        with split_group(UNEVEN, QUICK) as ranks:
            ends = (ranks[4]._inside.groups[0].sums, ranks[4]._inside.groups[0].results)  # type: ignore[union-attr]
            patch.setattr(region_reduction, "to_all", break_on_rank_4)
            works = [rank.all_reduce(torch.ones(20_000)) for rank in ranks]
            with pytest.raises(RankLostError, match="rank 4 was lost: torch broke inside its region: a bug"):
                works[4].wait(PATIENCE_S)

    return breaks


class Breaks:
    """A listening socket whose first accept breaks."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.accept = once(listener.accept)

    def __getattr__(self, name: str) -> object:
        return getattr(self._listener, name)


def listener_breaks(_: pytest.MonkeyPatch) -> None:
    admit(Breaks, lambda *_: None, num_refused=0)


def greeting_breaks(_: pytest.MonkeyPatch) -> None:
    admit(lambda listener: listener, once(lambda *_: None), num_refused=1)


def admit(opened: Callable[[socket.socket], object], admitted: Callable[..., object], num_refused: int) -> None:
    """A peer that is let in, after so many."""
    identity, at, came = Identity(SECRET, SCOPE, bytes(32)), doors(1), threading.Event()

    def let_in(*who: object) -> None:
        admitted(*who)
        came.set()

    listening = Listener(opened(at.listeners[0]), 0, identity, let_in)  # type: ignore[arg-type]
    listening.open()
    for _ in range(num_refused + 1):
        with socket.create_connection((at.addresses[0].host, at.addresses[0].port), 5.0) as connection:
            greet(connection, identity, 0, 1, 0)
            wait_for(lambda: came.is_set() or len(listening.refused) == num_refused > 0)
    assert came.wait(PATIENCE_S)
    together([listening.close])


def connecting_breaks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rendezvous, "greet", once(rendezvous.greet))
    with group(PLAN, QUICK) as ranks:
        all_reduce(ranks, vectors(3, 10))
    patch.setattr(rendezvous, "greet", broken)
    patch.setattr(background, "FIRST_PAUSE_S", 0.001)
    at = doors(1)
    with pytest.raises(PeerLostError, match=r"^rank 0: DefectError\('a bug'\)$"), at.listeners[0]:
        Rendezvous(1, at.addresses, {0: 1}, Identity(SECRET, SCOPE, bytes(32))).gather(PATIENCE_S)


def progress_server_breaks(_: pytest.MonkeyPatch) -> None:
    served = ProgressServer(process_registry(), 1, 0)
    served._server.service_actions = once(served._server.service_actions)  # type: ignore[method-assign]
    with served:
        wait_for(lambda: 'failures_total{thread="hulk-progress"} 0' not in scraped(served))


def answer_breaks(_: pytest.MonkeyPatch) -> None:
    served = ProgressServer(process_registry(), 1, 0)
    served.preflight = broken  # type: ignore[method-assign, assignment]
    with served:
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"http://127.0.0.1:{served.port}/preflight", timeout=PATIENCE_S)
        assert 'failures_total{thread="hulk-progress-answer"} 1.0' in scraped(served)


def scraped(served: ProgressServer) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read(), "utf-8")


def steps_break(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step_server._Server, "__init__", once(step_server._Server.__init__))
    assert 'failures_total{thread="hulk-steps"} 0' not in shown_steps()


def steps_server_breaks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step_server._Server, "service_actions", once(step_server._Server.service_actions))
    shown_steps(lambda: background.failures()["hulk-steps-server"] > 0)


def steps_answer_breaks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step_server, "collect", once(step_server.collect))
    assert 'failures_total{thread="hulk-steps-answer"} 0' not in shown_steps()


def shown_steps(counted: Callable[[], bool] = lambda: True) -> str:
    """What is served of a worker that made a step, once an answer comes; what breaks at the end is not counted."""
    steps = step_server.WorkerSteps(1, step_server.Served(1, free_port(), speaks=True))
    found: list[str] = []

    def asked() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            url = f"http://127.0.0.1:{steps.served.port}/metrics"
            found.append(str(urllib.request.urlopen(url, timeout=PATIENCE_S).read(), "utf-8"))
        return bool(found)

    steps.records[0].optimizer_stepped(0)
    with steps.serving():
        wait_for(asked)
        wait_for(counted)
    return found[0]


def checkpoint_breaks(patch: pytest.MonkeyPatch) -> None:
    """Whatever the store's package raises: the next checkpoint, or the end, says what it was."""
    reporter = Rank0Reporter.__new__(Rank0Reporter)
    reporter.checkpoints, reporter._pool, reporter._under_way = object(), ThreadPoolExecutor(1), None  # type: ignore[assignment]
    patch.setattr(Rank0Reporter, "_save", broken)
    reporter._begin_saving(1, None)  # type: ignore[arg-type]
    with pytest.raises(BackgroundError, match="hulk-checkpoint broke"):
        reporter._end_saving(tolerate=True)


def device_breaks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeviceWorker, "run", broken)
    with pytest.raises(BackgroundError, match="hulk-device-0 broke"):
        Run([], lambda _: None, lambda: False).go([HostDevice(1 << 20)], "lrtf", double_buffer=False)
    assert background.failures()["hulk-device-0"]


def quantised_sums_break(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the outer gradient says what it was."""
    patch.setattr(sums, "new_group", lambda *_: None)
    patch.setattr(sums.dist, "get_process_group_ranks", lambda _: [0, 1])
    patch.setattr(sums.Quantised, "_sum", broken)
    quantised = sums.Quantised(None, CODECS["int8"])  # type: ignore[arg-type]
    with pytest.raises(BackgroundError, match="hulk-diloco broke"):
        quantised.begin(torch.ones(4), sums.Feedback(), 0).wait()


def saving_breaks(patch: pytest.MonkeyPatch) -> None:
    """The next checkpoint, or the end, says what it was."""
    found = Checkpointer(torch.nn.Linear(1, 1), url="file:///nowhere")
    patch.setattr(CopyWriter, "write", broken)
    found.save()
    with pytest.raises(BackgroundError, match="hulk-save broke"):
        found.wait()


def first_sums_break(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a sum of a group that cannot connect says what it was."""
    failed: list[Exception] = []
    connecting = Connecting(broken, failed.append)
    with pytest.raises(BackgroundError, match="hulk-first-sums broke"):
        connecting.all_reduce(torch.ones(4)).wait()
    wait_for(lambda: failed)


HERE: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "hulk-collective": engine_breaks,
    "hulk-drift": drift_breaks,
    "hulk-reduce": region_thread_breaks("hulk-reduce"),
    "hulk-share": region_thread_breaks("hulk-share"),
    "hulk-listener": listener_breaks,
    "hulk-greet": greeting_breaks,
    "hulk-connect": connecting_breaks,
    "hulk-progress": progress_server_breaks,
    "hulk-progress-answer": answer_breaks,
    "hulk-steps": steps_break,
    "hulk-steps-server": steps_server_breaks,
    "hulk-steps-answer": steps_answer_breaks,
    "hulk-checkpoint": checkpoint_breaks,
    "hulk-device-": device_breaks,
    "hulk-save": saving_breaks,
    "hulk-diloco": quantised_sums_break,
    "hulk-first-sums": first_sums_break,
}
ENDS_RANK = {
    "hulk-loss": "script_exit.end_where_stuck(None, threading.Event())",
    "hulk-listen": "staging.Listeners().add(lambda: None, lambda _: 1 / 0)",
    "hulk-stage": "staging.Stage(None, torch.device('cpu'))._waiting.put(None)",
    "hulk-sends": "transfers.Transfers({})._queue.put(object())",
    "hulk-futures": "work = backend.PlannedWork(Ended(), carried.Values([torch.ones(1)], 1))\n"
    "work.result = lambda: 1 / 0; work.get_future()",
}
"""What kills the thread in a process of its own."""
ENDED_BY_IT = """
import sys, threading, torch, torch.distributed as dist
from hulk_runtime.collective import backend, carried, script_exit, staging
from hulk_runtime.pipeline import transfers

class Ended:  # a group whose sums have ended when they begin
    def all_reduce(self, vector, num_exact):
        return self
    def wait(self):
        pass
    def on_end(self, tell):
        tell(None)

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
exec(sys.argv[1])
threading.Event().wait()
"""
STOPPED = """
import threading
from hulk_runtime import background
from hulk_runtime.job import shutdown

class Reader:
    def recv(self, count):
        self.recv = reader.recv
        raise ValueError("a bug")

begin = shutdown.Stop._watch
def watch(stop):
    global reader
    if not isinstance(stop._reader, Reader) and not background.failures()["hulk-stop"]:
        reader, stop._reader = stop._reader, Reader()
    begin(stop)
shutdown.Stop._watch = watch
shutdown.Stop()
while not background.failures()["hulk-stop"]:
    threading.Event().wait(0.01)
print("broke", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("name", sorted(set(names()) - ENDS_RANK.keys() - {"hulk-stop"}))
def test_a_thread_that_breaks_is_counted_and_others_go_on_or_know_why(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sum(count for thread, count in background.failures().items() if thread.startswith(name))
    HERE[name](monkeypatch)
    assert sum(count for thread, count in background.failures().items() if thread.startswith(name)) > before


@pytest.mark.parametrize("name", sorted(ENDS_RANK))
def test_a_thread_that_nobody_can_do_without_ends_the_rank(name: str, job) -> None:
    rank = job.fork("-c", ENDED_BY_IT, ENDS_RANK[name])
    assert rank.wait() == 70, rank.output
    assert f"\nBackgroundError: {name} broke, which is a defect" in rank.output


def test_a_rank_is_told_to_stop_although_the_thread_that_hears_it_broke(job) -> None:
    rank = job.fork("-c", STOPPED)
    rank.wait_for("broke")
    rank.popen.send_signal(signal.SIGTERM)
    assert rank.wait() == 143


def test_a_thread_that_breaks_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE_S", 0.001)
    given_up: list[BaseException] = []
    thread = background.Thread(
        "hulk-hopeless", broken, broke=lambda _, error: given_up.append(error), restarts=lambda: True
    )
    thread.start()
    thread.join(PATIENCE_S)
    assert len(given_up) == 1
    assert background.failures()["hulk-hopeless"] == background.MAX_RESTARTS + 1
