"""What a receiver takes for a connection's rate, and what a sender says of it."""

import socket
from itertools import pairwise

import pytest
from hulk_runtime.collective.wire.bandwidth_meter import MAX_STRETCHES, Meter, Outlook, Path
from hulk_runtime.collective.wire.frames import HEADER_BYTES, STEADY, Header, Kind

FRAME = 128 << 10
RATE = 4e6
FRAME_S = (FRAME + HEADER_BYTES) / RATE


def take(meter: Meter, times_s: list[float], *, steady: bool = True) -> None:
    """Frames of FRAME bytes that begin to arrive at these times."""
    for number, now_s in enumerate(times_s):
        meter.take(Header(Kind.CHUNK, FRAME, flags=STEADY if steady and number else 0), now_s)


def path(unsent: int = 1, window_s: float = 1.0, *, slow_start: bool = False, queue_s: float = 0.0) -> Path:
    """A path of 100 ms whose window carries RATE for `window_s` of a round trip."""
    return Path(unsent, round(RATE * 0.1 * window_s), slow_start, 0.1 + queue_s, 0.1)


def test_steady_frames_show_the_rate() -> None:
    meter = Meter()
    take(meter, [number * FRAME_S for number in range(9)])
    assert meter.bytes_per_s == pytest.approx(RATE)
    assert meter.seconds == pytest.approx(8 * FRAME_S)
    meter.reset()
    assert (meter.bytes_per_s, meter.seconds) == (0, 0)


def test_pauses_do_not_count() -> None:
    meter = Meter()
    for begin_s in (0.0, 100.0, 200.0):
        take(meter, [begin_s + number * FRAME_S for number in range(4)])
    assert meter.bytes_per_s == pytest.approx(RATE)
    assert meter.seconds == pytest.approx(9 * FRAME_S)


def test_a_machine_that_stood_still_once_does_not_count() -> None:
    times_s = [number * FRAME_S for number in range(10)] + [5.0 + number * FRAME_S for number in range(10)]
    meter = Meter()
    take(meter, times_s)
    assert meter.bytes_per_s == pytest.approx(RATE)
    assert max(after - before for before, after in pairwise(times_s)) > 4


def test_only_the_last_stretches_count_and_are_kept() -> None:
    meter = Meter()
    take(meter, [number * FRAME_S for number in range(1000)])
    take(meter, [1000.0 + number * FRAME_S / 3 for number in range(3 * MAX_STRETCHES)])
    assert meter.bytes_per_s == pytest.approx(3 * RATE)
    assert len(meter._stretches) == MAX_STRETCHES


def test_nothing_is_known_without_steady_frames() -> None:
    meter = Meter()
    take(meter, [number * FRAME_S for number in range(9)], steady=False)
    assert meter.bytes_per_s == 0


@pytest.mark.parametrize(
    ("seen", "steady", "short", "queued"),
    [
        pytest.param(path(), True, 0.0, 0.0, id="at its pace"),
        pytest.param(path(unsent=0), False, 0.0, 0.0, id="nothing waited"),
        pytest.param(path(window_s=0.5, slow_start=True), False, 0.0, 0.0, id="window still opening"),
        pytest.param(path(window_s=0.5), True, 1.0, 0.0, id="window short after a loss"),
        pytest.param(path(window_s=0.5, queue_s=0.05), True, 0.0, 1.0, id="link slower than the pace"),
        pytest.param(path(window_s=2.0, slow_start=True), True, 0.0, 0.0, id="window wide enough"),
    ],
)
def test_what_a_sender_says(seen: Path, steady: bool, short: float, queued: float) -> None:
    outlook = Outlook()
    assert not outlook.begin()  # the first frame follows none
    outlook.look(seen, RATE)
    assert outlook.begin() is steady
    assert (outlook.short_share, outlook.queued_share) == (short, queued)


def test_the_kernel_is_understood() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        other = listener.accept()[0]
        with other:
            one.sendall(bytes(1000))
            other.recv(1000, socket.MSG_WAITALL)
            found = Path.of(one)
    assert found.num_unsent_bytes == 0
    assert found.window_bytes >= 10 * 500
    assert 0 < found.min_rtt_s <= found.rtt_s < 1
