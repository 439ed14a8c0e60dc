"""A worker's answer -> `Observation`, `Preflight`; what is not as it should be is an `ObserveError` with a sentence.

A worker is the user's code, and its answer may be made to cost time. So an answer may only be as large as the job makes
it (`max_bytes`, `max_lines`), and only what Hulk reads of it is parsed: its own series, and the one that the job names.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Final

from hulk_operator.observation import (
    Expected,
    Observation,
    ObservedAllReduce,
    ObservedLink,
    ObservedRegionLink,
    ObservedStage,
    ObservedTrial,
    ObserveError,
    Preflight,
)

MAX_BYTES: Final = 1 << 20  # of the largest job
MAX_LINE: Final = 4096
MAX_LINKS: Final = 4096  # a ring of the largest job
MAX_SIZES: Final = 64  # size classes of a plan
MAX_STAGES: Final = 1024  # of the longest pipeline
MAX_TRIALS: Final = 100  # of a sweep whose trials share devices
MAX_WHOLE: Final = 2**53  # counts above it are not exact anywhere
MAX_WHERE: Final = 1024  # characters, as status.checkpoint.where has at most
MAX_DURATION_S: Final = 1e9
MIN_COMPUTE_S: Final = 1e-9
ONE_RANK: Final = Expected()
Samples = dict[str, list[tuple[dict[str, str], float]]]
_OF_ANY_JOB: Final = (128 << 10, 2048)  # bytes and lines: also of a program that serves much of its own
_OF_A_RANK: Final = (1 << 10, 16)  # its compute, whether it takes part, its links
_PREFIX: Final = "hulk_worker_"
_READ: Final = frozenset(
    {
        "all_reduce_bound_seconds",
        "all_reduce_predicted_seconds",
        "all_reduce_seconds",
        "all_reduces_total",
        "checkpoint_bytes",
        "checkpoint_info",
        "checkpoint_refused",
        "checkpoint_step",
        "compute_seconds",
        "gradient_bytes",
        "info",
        "link_bandwidth_bytes_per_second",
        "link_rtt_seconds",
        "loss",
        "member",
        "membership_epoch",
        "own_step",
        "parameters",
        "pipeline_seconds",
        "region_link_observed_bytes_per_second",
        "region_link_planned_bytes_per_second",
        "sent_bytes_total",
        "step",
        "step_seconds",
        "step_seconds_last",
        "trial_metric",
        "trial_state",
        "trial_step",
        "trial_step_seconds",
    }
)
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+([^ \t]+)(?:[ \t]+-?[0-9]+)?")
_LABEL: Final = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_FIRST: Final = re.compile(r"[a-zA-Z_:{]")  # of a sample's line
_ESCAPED: Final = re.compile(r"\\(.)")


def max_bytes(expected: Expected) -> int:
    """How long the answer of a worker may be.

    >>> max_bytes(Expected(num_ranks=8)), max_bytes(Expected(num_ranks=4096))
    (139264, 1048576)
    """
    return min(MAX_BYTES, _OF_ANY_JOB[0] + _OF_A_RANK[0] * expected.num_ranks)


def max_lines(expected: Expected) -> int:
    """How many lines it may have."""
    return _OF_ANY_JOB[1] + _OF_A_RANK[1] * expected.num_ranks


def parse_metrics(text: str, expected: Expected = ONE_RANK) -> Observation:
    """The observation in a Prometheus exposition. `ObserveError` when it is none; an impossible value is unsaid.

    A loss may be anything: one that is not finite any more is the news.

    >>> seen = parse_metrics("hulk_worker_step 12\\nhulk_worker_loss NaN\\nf1 0.5\\n", Expected(metric="f1"))
    >>> seen.step, seen.metric
    (12, 0.5)
    """
    num, most = text.count("\n"), max_lines(expected)
    if num > most:
        raise ObserveError(f"an exposition of {num} lines; at most {most} are read of {expected.num_ranks} ranks")
    samples: Samples = {}
    metric: float | None = None
    try:
        for name, labels, value in _rows(text, expected.metric):
            if name == expected.metric and not labels:
                metric = value
            if name.startswith(_PREFIX):
                samples.setdefault(name.removeprefix(_PREFIX), []).append((labels, value))
        return _observation(samples, metric)
    except (ValueError, KeyError) as error:  # a number or a label that is none, or is missing
        raise ObserveError(f"not a Prometheus exposition: {error}") from error


def _rows(text: str, metric: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """The samples that are read: Hulk's own, and those named `metric`."""
    for line in map(str.strip, text.split("\n")):
        if not line or line[0] == "#":
            continue
        if len(line) > MAX_LINE or not _FIRST.match(line):
            raise ValueError(f"line {line[:80]!r}")
        if not line.startswith((_PREFIX, metric) if metric else _PREFIX):
            continue
        found = _SAMPLE.fullmatch(line)
        if found is None:
            raise ValueError(f"line {line[:80]!r}")
        name, labels, value = found.groups()
        if name == metric or name.removeprefix(_PREFIX) in _READ:
            yield name, _labels(labels or ""), float(value)


def _labels(text: str) -> dict[str, str]:
    r"""The labels between braces.

    >>> _labels(r'source="a",target="b \"c\"",')
    {'source': 'a', 'target': 'b "c"'}
    """
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None:
            raise ValueError(f"labels {text[:80]!r}")
        labels[found[1]] = _ESCAPED.sub(_unescaped, found[2]) if "\\" in found[2] else found[2]
        at = found.end()
    return labels


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


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


def _observation(samples: Samples, metric: float | None) -> Observation:
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
        checkpoint_where=_where(samples),
        checkpoint_refused=_whole(samples, "checkpoint_refused"),
        links=_links(samples),
        all_reduces=_all_reduces(samples),
        region_links=_region_links(samples),
        stages=_stages(samples.get("pipeline_seconds", [])),
        epoch=_whole(samples, "membership_epoch"),
        trials=_trials(samples),
        metric=metric,
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


def _where(samples: Samples) -> str:
    found = next((labels["where"] for labels, _ in samples.get("checkpoint_info", [])), "")
    return found if len(found) <= MAX_WHERE and found.isprintable() else ""


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
