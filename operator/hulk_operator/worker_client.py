"""A worker's HTTP endpoint -> `Observation`, `Preflight`: what an attempt says of itself, bounded in size and time.

The operator believes none of it further than its own status: a worker is the user's code, so an answer that is too
large, too slow or not what it should be is an `ObserveError` with a sentence, never an exception of a parser.
"""

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from hulk_operator.observation import (
    Observation,
    ObservedAllReduce,
    ObservedLink,
    ObservedRegionLink,
    ObservedStage,
    ObservedTrial,
    Preflight,
)

MAX_BYTES: Final = 1 << 20
MAX_SECONDS: Final = 2.0
MAX_KNOCK_SECONDS: Final = 1.0  # a first packet that is lost is sent again after as long
MAX_LINKS: Final = 4096  # a ring of the largest job
MAX_SIZES: Final = 64  # size classes of a plan
MAX_STAGES: Final = 1024  # of the longest pipeline
MAX_TRIALS: Final = 100  # of a sweep whose trials share devices
MAX_WHOLE: Final = 2**53  # counts above it are not exact anywhere
MAX_DURATION_S: Final = 1e9
MIN_COMPUTE_S: Final = 1e-9
Samples = dict[str, list[tuple[dict[str, str], float]]]
_PREFIX: Final = "hulk_worker_"
_HTTP_OK: Final = 200
_HTTP_NOT_FOUND: Final = 404


class ObserveError(Exception):
    """A worker did not answer as it should; the message says how."""


async def metrics(session: aiohttp.ClientSession, address: str) -> Observation:
    """Read a worker's /metrics (`address`: host:port). `ObserveError` when it gives no readable answer."""
    status, body = await _read(session, "GET", f"http://{address}/metrics")
    if status != _HTTP_OK:
        raise ObserveError(f"{address}/metrics answered {status}")
    return await asyncio.to_thread(parse_metrics, body)  # a large answer takes a while


async def preflight(session: aiohttp.ClientSession, address: str) -> Preflight | None:
    """Read a worker's /preflight; None before it is ready. `ObserveError` when it gives no readable answer."""
    status, body = await _read(session, "GET", f"http://{address}/preflight")
    if status == _HTTP_NOT_FOUND:
        return None
    if status != _HTTP_OK:
        raise ObserveError(f"{address}/preflight answered {status}")
    return parse_preflight(body)


async def start(session: aiohttp.ClientSession, address: str, attempt: int, order: str) -> None:
    """Tell an attempt to start its first step; safe to repeat. `ObserveError` when it refuses or is not there."""
    status, _ = await _read(session, "POST", f"http://{address}/start", {"attempt": attempt, "order": order})
    if not _HTTP_OK <= status < 300:
        raise ObserveError(f"{address}/start answered {status}")


async def answers(address: str) -> bool:
    """Whether anything answers there, and be it with a refusal: then the node lives."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(MAX_KNOCK_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except OSError:  # no answer in time among them
        return False
    writer.close()
    return True


def parse_metrics(text: str) -> Observation:
    """The observation in a Prometheus exposition. `ObserveError` when it is none; an impossible value is unsaid.

    A loss may be anything: one that is not finite any more is the news.

    >>> parse_metrics("hulk_worker_step 12\\nhulk_worker_step_seconds 0.5\\nhulk_worker_loss NaN\\n").step_s
    0.5
    """
    samples: Samples = {}
    series: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.labels:
                    series[sample.name] = sample.value
                if sample.name.startswith(_PREFIX):
                    samples.setdefault(sample.name.removeprefix(_PREFIX), []).append((sample.labels, sample.value))
        return _observation(samples, series)
    except (ValueError, KeyError, IndexError) as error:  # what prometheus_client's parser raises on foreign text
        raise ObserveError(f"not a Prometheus exposition: {error}") from error


def parse_preflight(text: str) -> Preflight:
    """The preflight in a JSON answer. `ObserveError` when a number is missing or not possible."""
    try:
        row = json.loads(text)
        compute_s = tuple(float(value) for value in row["computeSeconds"])
        result = Preflight(int(row["attempt"]), compute_s, float(row.get("slowestSeconds", 0.0)))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ObserveError(f"not a preflight answer: {error!r}") from error
    wrong = [value for value in result.compute_s if not MIN_COMPUTE_S <= value <= MAX_DURATION_S]
    if wrong or not result.compute_s:
        raise ObserveError(
            f"preflight compute seconds must be {MIN_COMPUTE_S:g} to {MAX_DURATION_S:g} for every rank, got {wrong[:3]}"
        )
    if not 0 <= result.slowest_s <= MAX_DURATION_S:
        raise ObserveError(f"preflight slowest seconds must be 0 to {MAX_DURATION_S:g}, got {result.slowest_s}")
    return result


def _observation(samples: Samples, series: Mapping[str, float]) -> Observation:
    return Observation(
        attempt=_attempt(samples),
        step=_whole(samples, "step"),
        step_s=_duration(samples, "step_seconds"),
        step_last_s=_duration(samples, "step_seconds_last"),
        loss=_first(samples, "loss"),
        compute_s=dict(_by_rank(samples.get("compute_seconds", []))),
        sent_bytes=_whole(samples, "sent_bytes_total"),
        checkpoint_step=_whole(samples, "checkpoint_step") or None,  # 0: none in this attempt, perhaps one before it
        checkpoint_bytes=_whole(samples, "checkpoint_bytes"),
        links=_links(samples),
        all_reduces=_all_reduces(samples),
        region_links=_region_links(samples),
        stages=_stages(samples.get("pipeline_seconds", [])),
        epoch=_whole(samples, "membership_epoch"),
        trials=_trials(samples),
        series=series,
        absent=frozenset(int(labels["rank"]) for labels, value in samples.get("member", []) if value == 0),
        own_attempt=next((int(labels["attempt"]) for labels, _ in samples.get("own_step", [])), None),
        own_step=_whole(samples, "own_step"),
        num_parameters=_whole(samples, "parameters"),
        gradient_bytes=_whole(samples, "gradient_bytes"),
    )


def _first(samples: Samples, name: str) -> float | None:
    rows = samples.get(name, [])
    return rows[0][1] if rows else None


def _duration(samples: Samples, name: str) -> float | None:
    value = _first(samples, name)
    return value if value is not None and _is_duration(value) else None


def _is_duration(value_s: float) -> bool:
    return 0 < value_s <= MAX_DURATION_S  # false for what is no number


def _whole(samples: Samples, name: str) -> int | None:
    value = _first(samples, name)
    return int(value) if value is not None and 0 <= value <= MAX_WHOLE else None


def _attempt(samples: Samples) -> int | None:
    rows = samples.get("info", [])
    return int(rows[0][0]["attempt"]) if rows else None


def _by_rank(rows: list[tuple[dict[str, str], float]]) -> Iterable[tuple[int, float]]:
    for labels, value in rows:
        if _is_duration(value):
            yield int(labels["rank"]), value


def _links(samples: Samples) -> tuple[ObservedLink, ...]:
    rtt_s = _by_pair(samples.get("link_rtt_seconds", []))
    rate = _by_pair(samples.get("link_bandwidth_bytes_per_second", []))
    pairs = sorted(rtt_s.keys() | rate.keys())[:MAX_LINKS]
    return tuple(
        ObservedLink(source, target, rtt_s.get((source, target)), rate.get((source, target)))
        for source, target in pairs
    )


def _all_reduces(samples: Samples) -> tuple[ObservedAllReduce, ...]:
    predicted_s, bound_s = (_by_size(samples.get(f"all_reduce_{kind}_seconds", [])) for kind in ("predicted", "bound"))
    nums = _by_size(samples.get("all_reduces_total", []))
    observed_s = sorted(_by_size(samples.get("all_reduce_seconds", [])).items())
    return tuple(
        ObservedAllReduce(size, int(nums.get(size, 0)), seconds, predicted_s.get(size), bound_s.get(size))
        for size, seconds in observed_s[:MAX_SIZES]
    )


def _by_size(rows: list[tuple[dict[str, str], float]]) -> dict[int, float]:
    """Durations and counts alike are positive and bounded."""
    found = {int(labels["max_bytes"]): value for labels, value in rows if _is_duration(value)}
    return {size: value for size, value in found.items() if 0 < size <= MAX_WHOLE}


def _region_links(samples: Samples) -> tuple[ObservedRegionLink, ...]:
    planned, observed = (
        _by_pair(samples.get(f"region_link_{kind}_bytes_per_second", [])) for kind in ("planned", "observed")
    )
    return tuple(
        ObservedRegionLink(*pair, rate, observed.get(pair)) for pair, rate in sorted(planned.items())[:MAX_LINKS]
    )


def _stages(rows: list[tuple[dict[str, str], float]]) -> tuple[ObservedStage, ...]:
    """The stages that say how long they compute; a part that is not said, or is none, takes no time."""
    found: dict[int, dict[str, float]] = {}
    for labels, value in rows:
        stage = int(labels["stage"])
        if 0 <= stage < MAX_STAGES and 0 <= value <= MAX_DURATION_S:
            found.setdefault(stage, {})[labels["part"]] = value
    return tuple(
        ObservedStage(stage, *(parts.get(part, 0.0) for part in ("compute", "transfer", "bubble", "sum")))
        for stage, parts in sorted(found.items())
        if "compute" in parts
    )


def _trials(samples: Samples) -> dict[str, ObservedTrial]:
    """The trials that say their state."""
    step, metric, step_s = (
        {labels["trial"]: value for labels, value in samples.get(f"trial_{kind}", [])}
        for kind in ("step", "metric", "step_seconds")
    )
    found = {}
    for labels, value in samples.get("trial_state", [])[:MAX_TRIALS]:
        name, known_s = labels["trial"], step_s.get(labels["trial"])
        if value == 1:
            made = step.get(name, 0)
            found[name] = ObservedTrial(
                labels["state"],
                int(made) if 0 <= made <= MAX_WHOLE else 0,
                metric.get(name),
                known_s if known_s is not None and _is_duration(known_s) else None,
            )
    return found


def _by_pair(rows: list[tuple[dict[str, str], float]]) -> dict[tuple[str, str], float]:
    return {(labels["source"], labels["target"]): value for labels, value in rows if math.isfinite(value) and value > 0}


async def _read(session: aiohttp.ClientSession, method: str, url: str, body: Any = None) -> tuple[int, str]:
    timeout = aiohttp.ClientTimeout(total=MAX_SECONDS)
    try:
        async with session.request(
            method, url, json=body, timeout=timeout, allow_redirects=False, headers={"Accept-Encoding": "identity"}
        ) as response:
            content = await response.content.read(MAX_BYTES + 1)
            while len(content) <= MAX_BYTES and (more := await response.content.read(MAX_BYTES + 1 - len(content))):
                content += more
            if len(content) > MAX_BYTES:
                raise ObserveError(f"{url} answered more than {MAX_BYTES} bytes")
            return response.status, content.decode("utf-8", errors="replace")
    except (aiohttp.ClientError, OSError) as error:  # asyncio's TimeoutError is an OSError
        raise ObserveError(f"{url}: {error!r}") from error
