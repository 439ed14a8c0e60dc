"""Reading a worker's endpoints: a real HTTP server that behaves, and ones that do not."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from hulk_operator import worker_client
from hulk_operator.observation import (
    Observation,
    ObservedAllReduce,
    ObservedLink,
    ObservedRegionLink,
    ObservedStage,
    Preflight,
)
from hulk_operator.worker_client import ObserveError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

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
async def worker(method: str, path: str, handler: Handler) -> AsyncIterator[tuple[aiohttp.ClientSession, int]]:
    app = web.Application()
    app.router.add_route(method, path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    async with aiohttp.ClientSession() as session:
        yield session, runner.addresses[0][1]
    await runner.cleanup()


def answer(text: str, status: int = 200) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status)

    return handler


async def test_reads_everything_rank_0_says() -> None:
    async with worker("GET", "/metrics", answer(EXPOSITION)) as (session, port):
        observation = await worker_client.metrics(session, f"127.0.0.1:{port}")
    assert observation.series["process_cpu_seconds_total"] == 3.0
    assert replace(observation, series={}) == Observation(
        attempt=3,
        step=12,
        step_s=0.5,
        step_last_s=0.7,
        loss=2.25,
        compute_s={0: 0.1, 1: 0.3},
        sent_bytes=4096,
        checkpoint_step=10,
        checkpoint_bytes=2048,
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
        ("hulk_worker_checkpoint_step 0\nhulk_worker_checkpoint_bytes 0\n", Observation(checkpoint_bytes=0)),
    ],
)
def test_what_is_not_a_usable_number_is_unsaid(text: str, expected: Observation) -> None:
    assert replace(worker_client.parse_metrics(text), series={}) == expected


def test_every_series_without_labels_is_told_also_one_of_the_users_own() -> None:
    found = worker_client.parse_metrics('accuracy 0.75\nhulk_worker_loss NaN\nscore{part="a"} 3\n')
    assert {name: str(value) for name, value in found.series.items()} == {"accuracy": "0.75", "hulk_worker_loss": "nan"}


def test_who_takes_part_is_told() -> None:
    found = worker_client.parse_metrics(
        "hulk_worker_membership_epoch 1\n"
        'hulk_worker_member{rank="0"} 1\nhulk_worker_member{rank="1"} 0\nhulk_worker_member{rank="2"} NaN\n'
    )
    assert (found.epoch, found.absent) == (1, {1})


def test_every_worker_says_how_far_it_is_itself() -> None:
    found = worker_client.parse_metrics('hulk_worker_own_step{attempt="2"} 7\n')
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
    assert worker_client.parse_metrics(text).stages == (
        ObservedStage(0, 0.25, 0.05, 0.2, 0.1),
        ObservedStage(1, 0.5, 0.0, 0.0, 0.0),
    )


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_a_loss_that_diverged_is_told(text: str) -> None:
    assert str(worker_client.parse_metrics(f"hulk_worker_loss {text}\n").loss) == text


@pytest.mark.parametrize("seconds", ["1e-300", "1e305", "NaN", "Infinity", "-1", "0"])
def test_a_preflight_that_cannot_be_is_refused(seconds: str) -> None:
    with pytest.raises(ObserveError):
        worker_client.parse_preflight(f'{{"attempt": 1, "computeSeconds": [0.5, {seconds}]}}')


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
        worker_client.parse_metrics(text)


async def test_an_answer_without_end_is_cut_off() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"# " + b"x" * 65536 + b"\n")

    async with worker("GET", "/metrics", endless) as (session, port):
        with pytest.raises(ObserveError, match="more than 1048576 bytes"):
            await worker_client.metrics(session, f"127.0.0.1:{port}")


async def test_a_silent_worker_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_client, "MAX_SECONDS", 0.2)

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with worker("GET", "/metrics", silent) as (session, port):
        with pytest.raises(ObserveError, match="TimeoutError"):
            await worker_client.metrics(session, f"127.0.0.1:{port}")


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_metrics_with_another_status_are_refused(status: int) -> None:
    async with worker("GET", "/metrics", answer(EXPOSITION, status)) as (session, port):
        with pytest.raises(ObserveError, match=f"answered {status}"):
            await worker_client.metrics(session, f"127.0.0.1:{port}")


async def test_no_worker_at_all_is_an_observe_error() -> None:
    async with worker("GET", "/metrics", answer("")) as (session, port):
        pass
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ObserveError, match=r"127\.0\.0\.1"):
            await worker_client.metrics(session, f"127.0.0.1:{port}")


async def test_who_lives_answers_and_be_it_with_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_client, "MAX_KNOCK_SECONDS", 0.2)
    async with worker("GET", "/metrics", answer("")) as (_, port):
        assert await worker_client.answers(f"127.0.0.1:{port}")
    assert await worker_client.answers(f"127.0.0.1:{port}")  # nobody listens there now
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:  # and nobody takes what waits
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        assert not await worker_client.answers(f"127.0.0.1:{full.getsockname()[1]}")
        for one in waiting:
            one.close()


async def test_preflight_is_none_until_it_is_ready() -> None:
    async with worker("GET", "/preflight", answer("", 404)) as (session, port):
        assert await worker_client.preflight(session, f"127.0.0.1:{port}") is None
    ready = answer('{"attempt": 2, "computeSeconds": [0.5, 0.25], "slowestSeconds": 0.625}')
    async with worker("GET", "/preflight", ready) as (session, port):
        assert await worker_client.preflight(session, f"127.0.0.1:{port}") == Preflight(2, (0.5, 0.25), 0.625)


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
        worker_client.parse_preflight(text)


async def test_start_names_the_attempt_and_says_when_it_is_refused() -> None:
    bodies = []

    async def take(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        return web.Response(status=204 if bodies[-1]["attempt"] == 4 else 409)

    async with worker("POST", "/start", take) as (session, port):
        await worker_client.start(session, f"127.0.0.1:{port}", 4, "four")
        with pytest.raises(ObserveError, match="answered 409"):
            await worker_client.start(session, f"127.0.0.1:{port}", 3, "three")
    assert bodies == [{"attempt": 4, "order": "four"}, {"attempt": 3, "order": "three"}]
