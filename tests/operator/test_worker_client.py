"""Reading a worker's endpoints: a real HTTP server that behaves, and ones that do not."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from hulk_operator import worker_answers, worker_client
from hulk_operator.observation import (
    Expected,
    Observation,
    ObservedAllReduce,
    ObservedLink,
    ObservedRegionLink,
    ObservedStage,
    ObserveError,
    Preflight,
)
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

EXPECTED = Expected(num_ranks=2, metric="process_cpu_seconds_total")
EXPOSITION = """\
# HELP hulk_worker_step Last completed step.
# TYPE hulk_worker_step gauge
hulk_worker_step 12.0
hulk_worker_step_seconds 0.5
hulk_worker_step_seconds_last 0.7
hulk_worker_loss 2.25
hulk_worker_compute_seconds{rank="0"} 0.1
hulk_worker_compute_seconds{rank="1"} 0.3
# TYPE hulk_worker_sent_bytes counter
hulk_worker_sent_bytes_total 4096.0
hulk_worker_checkpoint_step 10.0
hulk_worker_checkpoint_bytes 2048.0
hulk_worker_checkpoint_info{where="s3://eu/u"} 1.0
hulk_worker_checkpoint_refused 2.0
hulk_worker_link_rtt_seconds{source="a",target="b"} 0.12
hulk_worker_link_bandwidth_bytes_per_second{source="a",target="b"} 5e6
hulk_worker_link_rtt_seconds{source="b",target="a"} 0.11
# TYPE hulk_worker_all_reduces counter
hulk_worker_all_reduces_total{max_bytes="65536"} 1.0
hulk_worker_all_reduces_total{max_bytes="4200000"} 11.0
hulk_worker_all_reduce_seconds{max_bytes="4200000"} 0.5
hulk_worker_all_reduce_seconds{max_bytes="65536"} 0.125
hulk_worker_all_reduce_predicted_seconds{max_bytes="4200000"} 0.45
hulk_worker_all_reduce_bound_seconds{max_bytes="4200000"} 0.4
hulk_worker_region_link_planned_bytes_per_second{source="us",target="eu"} 1e7
hulk_worker_region_link_planned_bytes_per_second{source="eu",target="us"} 2e7
hulk_worker_region_link_observed_bytes_per_second{source="eu",target="us"} 1.9e7
hulk_worker_region_link_last_byte_seconds{source="eu",target="us"} 0.4
hulk_worker_info{version="0.1.0",all_reduce="wan",wire_version="1",attempt="3",backend="gloo"} 1.0
process_cpu_seconds_total 3.0
"""


@asynccontextmanager
async def worker(method: str, path: str, handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route(method, path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    yield f"127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def answer(text: str, status: int = 200) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status)

    return handler


async def test_reads_everything_rank_0_says() -> None:
    async with worker("GET", "/metrics", answer(EXPOSITION)) as address:
        observation = await worker_client.metrics(address, EXPECTED)
    assert observation == Observation(
        metric=3.0,
        attempt=3,
        step=12,
        step_s=0.5,
        step_last_s=0.7,
        loss=2.25,
        compute_s={0: 0.1, 1: 0.3},
        sent_bytes=4096,
        checkpoint_step=10,
        checkpoint_bytes=2048,
        checkpoint_where="s3://eu/u",
        checkpoint_refused=2,
        links=(ObservedLink("a", "b", 0.12, 5e6), ObservedLink("b", "a", 0.11, None)),
        all_reduces=(
            ObservedAllReduce(65536, 1, 0.125, None, None),
            ObservedAllReduce(4_200_000, 11, 0.5, 0.45, 0.4),
        ),
        region_links=(ObservedRegionLink("eu", "us", 2e7, 1.9e7), ObservedRegionLink("us", "eu", 1e7, None)),
    )
    assert observation.max_compute_s == 0.3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Observation()),
        ("hulk_worker_step -1\nhulk_worker_step_seconds +Inf\n", Observation()),
        ("hulk_worker_step 1e300\nhulk_worker_checkpoint_bytes 1e17\n", Observation()),
        ('hulk_worker_step_seconds 1e305\nhulk_worker_compute_seconds{rank="0"} 1e305\n', Observation()),
        ("hulk_worker_step NaN\nhulk_worker_step_seconds NaN\n", Observation()),
        ('hulk_worker_link_rtt_seconds{source="a",target="b"} -3\n', Observation()),
        ('other_metric{job="x"} 4\n', Observation()),
        ('hulk_worker_all_reduce_seconds{max_bytes="64"} NaN\n', Observation()),
        ('hulk_worker_all_reduce_seconds{max_bytes="-1"} 1\n', Observation()),
        ('hulk_worker_region_link_planned_bytes_per_second{source="a",target="b"} +Inf\n', Observation()),
        (f'hulk_worker_checkpoint_info{{where="{"x" * 1025}"}} 1\n', Observation()),
        (r'hulk_worker_checkpoint_info{where="s3://b\nHulk: "} 1', Observation()),
        ("hulk_worker_checkpoint_step 0\nhulk_worker_checkpoint_bytes 0\n", Observation(checkpoint_bytes=0)),
    ],
)
def test_what_is_not_a_usable_number_is_unsaid(text: str, expected: Observation) -> None:
    assert worker_answers.parse_metrics(text) == expected


@pytest.mark.parametrize(
    ("metric", "value"),
    [("accuracy", "0.75"), ("hulk_worker_loss", "nan"), ("score", "None"), ("acc", "None"), ("", "None")],
)
def test_the_series_without_labels_that_the_job_names_is_told(metric: str, value: str) -> None:
    text = 'accuracy 0.75\nhulk_worker_loss NaN\nscore{part="a"} 3\n'
    assert str(worker_answers.parse_metrics(text, Expected(metric=metric)).metric) == value


def test_who_takes_part_is_told() -> None:
    found = worker_answers.parse_metrics(
        "hulk_worker_membership_epoch 1\n"
        'hulk_worker_member{rank="0"} 1\nhulk_worker_member{rank="1"} 0\nhulk_worker_member{rank="2"} NaN\n'
    )
    assert (found.epoch, found.absent) == (1, {1})


def test_every_worker_says_how_far_it_is_itself() -> None:
    found = worker_answers.parse_metrics('hulk_worker_own_step{attempt="2"} 7\n')
    assert (found.own_attempt, found.own_step, found.attempt, found.step) == (2, 7, None, None)


def test_the_parts_of_a_step_are_told_by_stage() -> None:
    rows = {
        ("1", "compute"): 0.5,
        ("0", "compute"): 0.25,
        ("0", "bubble"): 0.2,
        ("0", "transfer"): 0.05,
        ("0", "sum"): 0.1,
        ("0", "another"): 9.0,
        ("1", "bubble"): -1.0,
        ("1", "transfer"): float("nan"),
        ("2", "bubble"): 1.0,
        ("1024", "compute"): 1.0,
        ("-1", "compute"): 1.0,
    }
    text = "".join(f'hulk_worker_pipeline_seconds{{stage="{s}",part="{p}"}} {v}\n' for (s, p), v in rows.items())
    assert worker_answers.parse_metrics(text).stages == (
        ObservedStage(0, 0.25, 0.05, 0.2, 0.1),
        ObservedStage(1, 0.5, 0.0, 0.0, 0.0),
    )


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_a_loss_that_diverged_is_told(text: str) -> None:
    assert str(worker_answers.parse_metrics(f"hulk_worker_loss {text}\n").loss) == text


@pytest.mark.parametrize("seconds", ["1e-300", "1e305", "NaN", "Infinity", "-1", "0"])
def test_a_preflight_that_cannot_be_is_refused(seconds: str) -> None:
    with pytest.raises(ObserveError):
        worker_answers.parse_preflight(f'{{"attempt": 1, "computeSeconds": [0.5, {seconds}]}}')


@pytest.mark.parametrize(
    "text",
    [
        "<html>hello</html>",
        'hulk_worker_compute_seconds{rank="x"} 1',
        'hulk_worker_member{rank="x"} 0',
        'hulk_worker_pipeline_seconds{stage="first",part="compute"} 1',
        'hulk_worker_pipeline_seconds{stage="0"} 1',
        "hulk_worker_compute_seconds 1",
        'hulk_worker_all_reduce_seconds{max_bytes="many"} 1',
        "hulk_worker_step",
    ],
)
def test_what_is_no_exposition_is_refused(text: str) -> None:
    with pytest.raises(ObserveError, match="not a Prometheus exposition"):
        worker_answers.parse_metrics(text)


Write = Callable[[bytes], Awaitable[None]]


@asynccontextmanager
async def raw(answering: Callable[[Write], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that answers with any bytes."""

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        await reader.readuntil(b"\r\n\r\n")
        with suppress(OSError):
            await answering(write)
        writer.close()

    server = await asyncio.start_server(taken, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    server.close()


async def forever(write: Write, first: bytes, more: bytes) -> None:
    await write(first)
    while True:
        await write(more * 1024)


@pytest.mark.parametrize(
    ("name", "first", "more", "error"),
    [
        ("a body", b"HTTP/1.0 200 OK\r\n\r\n", b"# x\n", "more than 133120 bytes"),
        ("a head", b"HTTP/1.0 200 OK\r\n", b"X-A: b\r\n", "no HTTP answer"),
        ("a line", b"HTTP/1.0 200", b" OK", "no HTTP answer"),
        ("interim answers", b"", b"HTTP/1.1 100 Continue\r\n\r\n", "more than 133120 bytes"),
        ("chunks", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", "no HTTP/1.0 answer"),
        ("another protocol", b"\x15\x03\x01\r\n\r\n", b"x", "no HTTP/1.0 answer"),
        ("what is announced", b"HTTP/1.0 200 OK\r\nContent-Length: 999999\r\n\r\n", b"# x\n", "more than 133120 bytes"),
    ],
)
async def test_an_answer_without_end_is_cut_off(name: str, first: bytes, more: bytes, error: str) -> None:
    async with raw(lambda write: forever(write, first, more)) as address:
        with pytest.raises(ObserveError, match=error):
            await worker_client.metrics(address, Expected(num_ranks=2))


async def test_an_answer_that_ends_early_is_refused() -> None:
    async def answering(write: Write) -> None:
        await write(b"HTTP/1.0 200 OK\r\nContent-Length: 20\r\n\r\nhulk_worker_step 1\n")

    async with raw(answering) as address:
        with pytest.raises(ObserveError, match="ended after 19 of 20 bytes"):
            await worker_client.metrics(address, EXPECTED)


async def test_an_answer_byte_by_byte_is_read_in_few_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    text = "hulk_worker_step 12\n" + "# comment\n" * 1000

    async def answering(write: Write) -> None:
        for byte in f"HTTP/1.0 200 OK\r\n\r\n{text}".encode():
            await write(bytes([byte]))
            await asyncio.sleep(0)

    class Counting(worker_client._Received):
        async def _more(self) -> bool:
            pieces.append(1)
            return await super()._more()

    monkeypatch.setattr(worker_client, "_Received", Counting)
    monkeypatch.setattr(worker_client, "MAX_SECONDS", 60.0)
    begin_s = asyncio.get_running_loop().time()
    async with raw(answering) as address:
        assert (await worker_client.metrics(address, EXPECTED)).step == 12
    took_s = asyncio.get_running_loop().time() - begin_s
    assert len(pieces) <= 20 + took_s / worker_client._SMALL_PAUSE_S


@pytest.mark.parametrize("num_ranks", [1, 4096])
async def test_how_much_is_read_grows_with_the_job(num_ranks: int) -> None:
    lines = [f'hulk_worker_compute_seconds{{rank="{rank}"}} 0.5\n' for rank in range(4096)]
    async with worker("GET", "/metrics", answer("".join(lines))) as address:
        if num_ranks == 1:
            with pytest.raises(ObserveError, match="more than 132096 bytes"):
                await worker_client.metrics(address, Expected(num_ranks))
        else:
            assert len((await worker_client.metrics(address, Expected(num_ranks))).compute_s) == 4096


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("\n" * 3000, "3000 lines; at most 2064"),
        ("#\n" * 3000, "3000 lines; at most 2064"),
        ("a" * 5000 + " 1", "line 'aaa"),
        ('hulk_worker_loss{a="' + "\\" * 3001 + '"} 1', "labels"),
        ("hulk_worker_loss " + " " * 4000 + "1 2 3", "line 'hulk_worker_loss"),
    ],
    ids=["lines", "comments", "a long name", "escapes", "spaces"],
)
def test_an_exposition_that_would_take_long_is_refused(text: str, error: str) -> None:
    with pytest.raises(ObserveError, match=error):
        worker_answers.parse_metrics(text)


@given(st.text())
def test_no_text_is_more_than_an_observe_error(text: str) -> None:
    for line in (text, f"hulk_worker_step {text}", f"hulk_worker_link_rtt_seconds{{{text}}} 1", f'a{{b="{text}"}} 1'):
        with suppress(ObserveError):
            worker_answers.parse_metrics(line, Expected(metric="a"))


@given(st.tuples(st.text(max_size=50), st.text(max_size=50)), st.floats(min_value=1e-6, max_value=1e6))
def test_what_prometheus_writes_is_read(names: tuple[str, str], value: float) -> None:
    registry = CollectorRegistry()
    of_users = Gauge("accuracy", "Of a\nuser's own.", registry=registry)
    of_users.set(value)
    rtt = Gauge("hulk_worker_link_rtt_seconds", "Round trip.", ["source", "target"], registry=registry)
    rtt.labels(*names).set(value)
    seen = worker_answers.parse_metrics(generate_latest(registry).decode(), Expected(metric="accuracy"))
    assert (seen.metric, seen.links) == (value, (ObservedLink(*names, value, None),))


async def test_a_silent_worker_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_client, "MAX_SECONDS", 0.2)

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with worker("GET", "/metrics", silent) as address:
        with pytest.raises(ObserveError, match="TimeoutError"):
            await worker_client.metrics(address, EXPECTED)


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_metrics_with_another_status_are_refused(status: int) -> None:
    async with worker("GET", "/metrics", answer(EXPOSITION, status)) as address:
        with pytest.raises(ObserveError, match=f"answered {status}"):
            await worker_client.metrics(address, EXPECTED)


async def test_no_worker_at_all_is_an_observe_error() -> None:
    async with worker("GET", "/metrics", answer("")) as address:
        pass
    with pytest.raises(ObserveError, match=r"127\.0\.0\.1"):
        await worker_client.metrics(address, EXPECTED)


async def test_who_lives_answers_and_be_it_with_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_client, "MAX_KNOCK_SECONDS", 0.2)
    async with worker("GET", "/metrics", answer("")) as address:
        assert await worker_client.answers(address)
    assert await worker_client.answers(address)  # nobody listens there now
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:  # and nobody takes what waits
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        assert not await worker_client.answers(f"127.0.0.1:{full.getsockname()[1]}")
        for one in waiting:
            one.close()


async def test_preflight_is_none_until_it_is_ready() -> None:
    async with worker("GET", "/preflight", answer("", 404)) as address:
        assert await worker_client.preflight(address, EXPECTED) is None
    ready = answer('{"attempt": 2, "computeSeconds": [0.5, 0.25], "slowestSeconds": 0.625}')
    async with worker("GET", "/preflight", ready) as address:
        assert await worker_client.preflight(address, EXPECTED) == Preflight(2, (0.5, 0.25), 0.625)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"attempt": 1}',
        '{"attempt": 1, "computeSeconds": []}',
        '{"attempt": 1, "computeSeconds": [0.5, 0]}',
        '{"attempt": 1, "computeSeconds": [-0.5]}',
        '{"attempt": 1, "computeSeconds": [1e999]}',
        '{"attempt": 1, "computeSeconds": ["fast"]}',
        '{"attempt": 1, "computeSeconds": [0.5], "slowestSeconds": -1}',
        '{"attempt": 1, "computeSeconds": [0.5], "slowestSeconds": NaN}',
        '{"attempt": 1, "computeSeconds": [0.5], "slowestSeconds": "slow"}',
    ],
)
def test_a_preflight_with_impossible_numbers_is_refused(text: str) -> None:
    with pytest.raises(ObserveError, match="preflight"):
        worker_answers.parse_preflight(text)


async def test_start_names_the_attempt_and_says_when_it_is_refused() -> None:
    bodies = []

    async def take(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        return web.Response(status=204 if bodies[-1]["attempt"] == 4 else 409)

    async with worker("POST", "/start", take) as address:
        await worker_client.start(address, 4, "four")
        with pytest.raises(ObserveError, match="answered 409"):
            await worker_client.start(address, 3, "three")
    assert bodies == [{"attempt": 4, "order": "four"}, {"attempt": 3, "order": "three"}]
