"""Speeds that jobs' pods report: what counts as measured, and how far one tenant's word reaches for another's plans."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hulk_operator.api import AcceleratorStatus, NodeProfile
from hulk_operator.api.base import format_time
from hulk_operator.inputs.speeds import (
    MAX_ENTRIES_OF_NAMESPACE,
    RETENTION,
    agreed,
    kept,
    known_speeds,
    possible,
    said_speeds,
    with_speeds,
)
from hulk_placement.accelerators import fastest
from hulk_placement.model import Model
from hulk_placement.workload import Workload
from hypothesis import given
from hypothesis import strategies as st
from views import NOW

PLAIN = Workload("research/demo", Model.of_totals(1000, 1e9), 8, {})


def entry(flops_per_s: int, namespace: str = "research", job: str = "earlier", **changes: Any) -> dict[str, Any]:
    said = {"product": "cpu", "workload": PLAIN.digest, "flopsPerSecond": flops_per_s, "time": format_time(NOW)}
    return {"namespace": namespace, "job": job, **said, **changes}


def measured(entries: dict[str, list[dict[str, Any]]], now: datetime = NOW) -> Workload:
    """The workload where each node's profile has these entries."""
    profiles = {
        name: NodeProfile.model_validate({"metadata": {"name": name}, "status": {"accelerators": found}})
        for name, found in entries.items()
    }
    said = said_speeds(profiles, dict.fromkeys(entries, "cpu"), now)
    return with_speeds(PLAIN, known_speeds(PLAIN.key, PLAIN.digest, said))


def test_speeds_count_by_workload_on_the_product_that_is_there() -> None:
    found = measured(
        {
            "a": [entry(5)],
            "b": [entry(5, workload="another")],
            "c": [entry(5, product="replaced")],
            "d": [entry(5, microBatch=3)],
        }
    )
    assert found.flops_per_s == {"a": 5.0, "d": 5.0}
    assert found.measured_micro_batch == {"d": 3}
    assert found.likely_flops_per_s == {}  # the other workload ran on no node of this one


def test_another_workload_tells_what_nodes_are_like() -> None:
    """It reached 3 and 12 FLOP/s on two nodes, and this one 6 on the first: the second is likely to reach 24."""
    found = measured(
        {
            "a": [entry(3, workload="another"), entry(6)],
            "b": [entry(12, workload="another"), entry(99, product="replaced")],
            "c": [entry(99, product="replaced")],
        }
    )
    assert (found.flops_per_s, found.likely_flops_per_s) == ({"a": 6.0}, {"b": 24.0})


@pytest.mark.parametrize(
    ("name", "entries", "flops_per_s", "likely"),
    [
        ("another tenant", [entry(10**9, "evil")], None, None),
        ("however many jobs it starts", [entry(10**9, "evil", f"j{n}") for n in range(50)], None, None),
        ("newer than the namespace's own", [entry(5), entry(10**9, "evil")], 5.0, None),
        ("a job of the same name", [entry(5), entry(10**9, "evil", "demo")], 5.0, None),
        ("nobody knows who", [entry(10**9, "", "")], None, None),
        ("nobody knows who, of this name", [entry(10**9, "", "demo")], None, None),
        ("against two that agree", [entry(40, "b"), entry(44, "c"), entry(10**9, "evil")], None, 42.0),
        ("slower than two that agree", [entry(40, "b"), entry(44, "c"), entry(1, "evil")], None, 42.0),
        ("against one: nobody is believed", [entry(40, "b"), entry(10**9, "evil")], None, None),
        ("within what counts as agreeing", [entry(40, "b"), entry(50, "evil")], None, 45.0),
        ("just beyond", [entry(40, "b"), entry(51, "evil")], None, None),
        ("two against two", [entry(4, "b"), entry(4, "c"), entry(9, "evil"), entry(9, "evil-too")], None, None),
        (
            "its own jobs differ: the newest",
            [entry(5, time=format_time(NOW - timedelta(hours=1))), entry(6, job="z")],
            6.0,
            None,
        ),
        (
            "the job itself before others of its namespace",
            [entry(7, job="demo", time=format_time(NOW - timedelta(hours=1))), entry(6, job="z")],
            7.0,
            None,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_tenants_word_is_not_measured_for_another(
    name: str, entries: list[dict[str, Any]], flops_per_s: float | None, likely: float | None
) -> None:
    found = measured({"a": entries})
    assert found.flops_per_s.get("a") == flops_per_s, name
    assert found.likely_flops_per_s.get("a") == likely, name


def test_a_tenant_does_not_speak_through_another_workload_either() -> None:
    """It ran something else where this job's namespace ran, and on a node that it wants the job to go to."""
    lies = {"a": [entry(5), entry(1, "evil", workload="x")], "b": [entry(10**9, "evil", workload="x")]}
    assert measured(lies).likely_flops_per_s == {}
    honest = {
        node: [*said, entry(2 * value, "c", workload="y")]
        for (node, said), value in zip(lies.items(), (3, 6), strict=True)
    }
    assert measured(honest).likely_flops_per_s == {}, "b is 10^9 times a, says one, and twice a, says another"


def test_speeds_expire() -> None:
    entries = {"a": [entry(5), entry(7, "b"), entry(7, "c")]}
    assert measured(entries, NOW + RETENTION - timedelta(seconds=1)).flops_per_s == {"a": 5.0}
    late = measured(entries, NOW + RETENTION)
    assert (late.flops_per_s, late.likely_flops_per_s) == ({}, {})


@given(
    st.lists(st.floats(1.0, 2.0), min_size=2, max_size=6),
    st.floats(1e-6, 1e18),
)
def test_whoever_is_alone_moves_no_figure_beyond_what_others_say(honest: list[float], lie: float) -> None:
    """Whatever one namespace says, others believe nothing that none of the others says, but for the spread."""
    for found in agreed([*({"a": value} for value in honest), {"a": lie}]).values():
        assert min(honest) / 1.25 <= found <= max(honest) * 1.25


def test_a_tenant_pushes_out_nothing_that_others_measured() -> None:
    entries = [AcceleratorStatus.model_validate(entry(5, "victim", time=format_time(NOW - timedelta(days=1))))]
    for number in range(400):
        said = entry(10**9, "evil", f"j{number}", time=format_time(NOW + timedelta(seconds=number)))
        entries = kept(entries, AcceleratorStatus.model_validate(said))
    assert [one.namespace for one in entries].count("evil") == MAX_ENTRIES_OF_NAMESPACE
    assert [one.flops_per_second for one in entries if one.namespace == "victim"] == [5]
    assert {one.job for one in entries if one.namespace == "evil"} == {f"j{n}" for n in range(384, 400)}, "the newest"


def test_a_new_figure_replaces_the_jobs_own_and_drops_what_no_one_answers_for() -> None:
    before = [entry(1), entry(2, job="other"), entry(3, "", ""), entry(4, "b", time=format_time(NOW - RETENTION))]
    found = kept(map(AcceleratorStatus.model_validate, before), AcceleratorStatus.model_validate(entry(9)))
    assert [(one.namespace, one.job, one.flops_per_second) for one in found] == [
        ("research", "other", 2),
        ("research", "earlier", 9),
    ]


@pytest.mark.parametrize(
    ("product", "reported", "expected"),
    [
        ("NVIDIA-A100-SXM4-80GB", 1e30, 312e12),
        ("NVIDIA-A100-SXM4-80GB", 100e12, 100e12),
        ("Tesla-V100-SXM2-16GB", 200e12, 125e12),
        ("NVIDIA-A100-SXM4-80GB-MIG-2g.20gb", 1e30, 312e12 * 2 / 7),
        ("nobody-knows", 1e30, fastest()),
    ],
)
def test_no_speed_is_above_the_data_sheet(product: str, reported: float, expected: float) -> None:
    assert possible(reported, product) == pytest.approx(expected)
